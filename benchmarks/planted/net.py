"""A network under construction that knows what its tensors hold, so that every layer can be normalized."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

from roundoff.core.tensors import Array
from roundoff.graph.load import Model, model_from_proto
from roundoff.graph.nodes import make_model

# Ridge of the least-squares classifier, and how far apart its classes are.
_RIDGE, _MARGIN = 1e-2, 6.0


@dataclass(frozen=True, slots=True)
class Spread:
    """What a layer's outputs are normalized to, channel by channel, as a batch normalization would."""

    mean: float = 0.25
    std: float = 1.0
    variation: float = 0.25


_USUAL = Spread()


class Net:
    """Nodes and weights so far; each node is run when it is added.

    Args:
        rng: Source of chance.
        inputs: Values of the inputs on which layers are normalized, the samples along the first axis.
    """

    def __init__(self, rng: np.random.Generator, inputs: Mapping[str, Array]) -> None:
        self.rng = rng
        self.values: dict[str, Array] = dict(inputs)
        self._inputs = tuple(inputs)
        self._nodes: list[Any] = []
        self._weights: dict[str, Array] = {}

    def constant(self, name: str, values: Any, dtype: str = "float32") -> str:
        self._weights[name] = np.asarray(values, dtype=dtype)
        return name

    def add(self, op: str, inputs: Sequence[str], *, name: str, **attributes: Any) -> str:
        """Add a node of one output; gives the name of that."""
        return self.add_many(op, inputs, name=name, outputs=1, **attributes)[0]

    def add_many(
        self, op: str, inputs: Sequence[str], *, name: str, outputs: int, **attributes: Any
    ) -> tuple[str, ...]:
        """Add a node; gives the names of its outputs."""
        names = tuple(f"{name}_out{index or ''}" for index in range(outputs))
        node = helper.make_node(op, list(inputs), list(names), name=name, **attributes)
        self._nodes.append(node)
        self.values |= zip(names, self._run(node), strict=True)
        return names

    def conv(  # noqa: PLR0913 - a convolution has as many
        self,
        x: str,
        channels: int,
        *,
        name: str,
        kernel: int = 3,
        stride: int = 1,
        dilation: int = 1,
        group: int = 1,
        spread: Spread | None = _USUAL,
    ) -> str:
        """A convolution with random weights; of one channel each with 0 channels.

        Its outputs are normalized; without a spread it has no bias either, for a batch normalization behind it.
        """
        inputs, axes = self.values[x].shape[1], self.values[x].ndim - 2
        group = group if channels else inputs
        channels = channels or inputs
        weight = self.rng.standard_normal((channels, inputs // group, *[kernel] * axes))
        attributes = {"group": group, "strides": [stride] * axes, "pads": [dilation * (kernel // 2)] * 2 * axes}
        if dilation > 1:
            attributes["dilations"] = [dilation] * axes
        if spread is None:
            weight *= (2 / weight[0].size) ** 0.5
            return self.add("Conv", [x, self.constant(f"{name}_weight", weight)], name=name, **attributes)
        return self._normalized("Conv", x, (name, weight, 1), spread=spread, **attributes)

    def batch_norm(self, x: str, *, name: str = "") -> str:
        """A batch normalization with the statistics of what it reads; named after that unless it has a name."""
        values, name = self.values[x], name or f"{x.removesuffix('_out')}/norm"
        count, others = values.shape[1], (0, *range(2, values.ndim))
        parameters = {
            "scale": self.rng.uniform(0.75, 1.25, count),
            "shift": self.rng.uniform(0, 0.5, count),
            "mean": values.mean(axis=others),
            "variance": values.var(axis=others),
        }
        held = [self.constant(f"{name}_{part}", numbers) for part, numbers in parameters.items()]
        return self.add("BatchNormalization", [x, *held], name=name)

    def dense(self, x: str, units: int, *, name: str, spread: Spread = _USUAL) -> str:
        """A fully connected layer whose outputs are normalized."""
        weight = self.rng.standard_normal((units, self.values[x].shape[1]))
        return self._normalized("Gemm", x, (name, weight, 1), spread=spread, transB=1)

    def _normalized(
        self, op: str, x: str, layer: tuple[str, Array, int], *, spread: Spread, **attributes: Any
    ) -> str:
        name, weight, axis = layer
        node = helper.make_node(op, [x, "w"], ["y"], name=name, **attributes)
        (raw,) = self._run(node, {"w": weight.astype(np.float32)})
        others = tuple(index for index in range(raw.ndim) if index != axis)
        gain = spread.std * self.rng.uniform(1 - spread.variation, 1 + spread.variation, len(weight))
        gain = gain / raw.std(axis=others)
        shift = spread.mean * self.rng.uniform(0, 2, len(weight)) - gain * raw.mean(axis=others)
        scaled = weight * gain.reshape(-1, *[1] * (weight.ndim - 1))
        parameters = [self.constant(f"{name}_weight", scaled), self.constant(f"{name}_bias", shift)]
        return self.add(op, [x, *parameters], name=name, **attributes)

    def matmul(self, x: str, units: int, *, name: str, std: float = 1.0) -> str:
        """A projection of the last axis, with a bias: MatMul and Add, as exporters write it."""
        inputs = self.values[x].shape[-1]
        weight = self.rng.standard_normal((inputs, units))
        raw = self.values[x] @ weight
        others = tuple(range(raw.ndim - 1))
        gain = std / raw.std(axis=others) * self.rng.uniform(0.8, 1.2, units)
        product = self.add("MatMul", [x, self.constant(f"{name}_weight", weight * gain)], name=f"{name}/MatMul")
        bias = self.constant(f"{name}_bias", -gain * raw.mean(axis=others) + self.rng.normal(0, 0.1, units))
        return self.add("Add", [product, bias], name=f"{name}/Add")

    def fitted(self, x: str, targets: Array, *, name: str) -> str:
        """A fully connected layer that gives targets as nearly as least squares can."""
        features = self.values[x].astype(np.float64)
        ones = np.ones((len(features), 1))
        design = np.concatenate([features, ones], axis=1)
        gram = design.T @ design + _RIDGE * len(features) * np.eye(design.shape[1])
        found = np.linalg.solve(gram, design.T @ targets)
        parameters = [self.constant(f"{name}_weight", found[:-1].T), self.constant(f"{name}_bias", found[-1])]
        return self.add("Gemm", [x, *parameters], name=name, transB=1)

    def classifier(self, x: str, labels: Array, *, name: str = "classifier") -> str:
        """A fully connected layer whose largest output is the class."""
        targets = _MARGIN * (np.eye(int(labels.max()) + 1)[labels] - 0.3)
        return self.fitted(x, targets, name=name)

    def relu(self, x: str) -> str:
        return self.add("Relu", [x], name=_after(x, "relu"))

    def relu6(self, x: str) -> str:
        limits = [self.constant("zero", 0.0), self.constant("six", 6.0)]
        return self.add("Clip", [x, *limits], name=_after(x, "clip"))

    def pooled(self, x: str, *, name: str = "head/pool") -> str:
        """Means of channels, flat."""
        return self.add("Flatten", [self.add("GlobalAveragePool", [x], name=name)], name=f"{name}/flatten")

    def model(self, outputs: Sequence[str], *, name: str) -> Model:
        """What was built, for one sample at a time."""
        given = [_declared(x, (1, *self.values[x].shape[1:])) for x in self._inputs]
        results = [_declared(x, (1, *self.values[x].shape[1:])) for x in outputs]
        weights = [numpy_helper.from_array(values, key) for key, values in self._weights.items()]
        graph = helper.make_graph(self._nodes, name, given, results, weights)
        return model_from_proto(make_model(graph), path=Path(f"{name}.onnx"))

    def _run(self, node: Any, more: Mapping[str, Array] | None = None) -> list[Array]:
        known = {**self.values, **self._weights, **(more or {})}
        feed = {name: known[name] for name in node.input if name}
        given = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feed.items()
        ]
        graph = helper.make_graph([node], "step", given, [ValueInfoProto(name=name) for name in node.output])
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        data = make_model(graph).SerializeToString()
        found: list[Array] = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(
            None, feed
        )
        return found


def _declared(name: str, shape: tuple[int, ...]) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _after(tensor: str, kind: str) -> str:
    """The name of the activation behind a layer."""
    return f"{tensor.removesuffix('_out')}/{kind}"
