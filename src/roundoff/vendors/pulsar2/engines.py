"""What computes a model for ``pulsar2 run``: onnxruntime, or the simulator of integer hardware."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array, InputSpec
from roundoff.errors import BadInput
from roundoff.graph.interface import inputs, outputs, topology
from roundoff.graph.load import Model
from roundoff.graph.reading.read import read_quantized
from roundoff.graph.subgraph import tap
from roundoff.graph.units import derived_constants
from roundoff.run.integer.runner import IntegerRunner
from roundoff.run.session import Session, open_session

__all__ = ["Engine", "IntegerEngine", "ReferenceEngine", "is_quantized", "refuse_foreign"]

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
# What the vendor's own files hold: operators of its quantized graph, and the compiled part as one node.
_FOREIGN = ("Ax", "AX", "NPU", "neu")


class Engine(Protocol):
    """Computes tensors of a model."""

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """What has to be fed."""
        ...

    @property
    def tensors(self) -> tuple[str, ...]:
        """What is computed, in execution order."""
        ...

    def run(self, feed: Mapping[str, Array], *, sample: str) -> dict[str, Array]:
        """Values by tensor; integer codes where a tensor inside of the model has some."""
        ...


def is_quantized(model: Model) -> bool:
    """Whether a model has quantizers."""
    return any(node.op_type in (_QUANTIZE, _DEQUANTIZE) for node in model.proto.graph.node)


def refuse_foreign(model: Model) -> None:
    """Refuse a model that only the vendor's tool can run.

    Raises:
        BadInput: It has operators of the vendor's.
    """
    for node in model.proto.graph.node:
        if node.domain not in ("", "ai.onnx") and node.op_type.startswith(_FOREIGN):
            what = (
                f"{model.path} holds the vendor's operator {node.op_type} ({node.name}), which only its tool runs."
            )
            raise BadInput(
                what, fix="give the float ONNX, or quant/quant_axmodel.onnx of 'roundoff pulsar2 build'"
            )


class ReferenceEngine:
    """Runs a model in onnxruntime as its graph says, quantizers included.

    Args:
        model: The model, float or with QuantizeLinear and DequantizeLinear.
        per_layer: Give what every operation computes; tensors that are quantized as their codes.
    """

    def __init__(self, model: Model, *, per_layer: bool) -> None:
        self._model = model
        self._places = {name: name for name in outputs(model)}
        if per_layer:
            self._places = {**_layers(model), **self._places}
        self._names = tuple(dict.fromkeys(self._places.values()))
        self._session: Session = open_session(model, outputs=tap(model, self._names))

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """What has to be fed."""
        return inputs(self._model)

    @property
    def tensors(self) -> tuple[str, ...]:
        """What is computed."""
        return tuple(self._places)

    def run(self, feed: Mapping[str, Array], *, sample: str) -> dict[str, Array]:
        """Values of one sample.

        Raises:
            ModelFailed: The model cannot be run.
        """
        found = dict(zip(self._names, self._session.run(feed, sample=sample), strict=True))
        return {name: found[place] for name, place in self._places.items()}


def _layers(model: Model) -> dict[str, str]:
    """What operations compute, by name, each with the tensor to read: its codes where it is quantized.

    A tensor that is quantized in two ways has its second codes under their own name.
    """
    graph = model.proto.graph
    fixed = derived_constants(graph)
    codes: dict[str, str] = {}
    places: dict[str, str] = {}
    fed = {spec.name for spec in inputs(model)}
    for node in topology(model).nodes:
        if node.op_type == _QUANTIZE and node.inputs:
            first = codes.setdefault(node.inputs[0], node.outputs[0])
            if first != node.outputs[0]:
                places[node.outputs[0]] = node.outputs[0]
            elif node.inputs[0] in fed:
                places[node.inputs[0]] = node.outputs[0]
        elif node.op_type != _DEQUANTIZE:
            places |= {name: name for name in node.outputs if name not in fixed}
    return {name: codes.get(name, place) for name, place in places.items()}


@dataclass(frozen=True, slots=True)
class IntegerEngine:
    """Runs a quantized model as integer hardware does. Made by `make`."""

    model: Model
    runner: IntegerRunner
    tensors: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def make(cls, model: Model, arithmetic: Arithmetic, *, per_layer: bool) -> "IntegerEngine":
        """Take the quantizers out of a model, for the simulator to apply.

        Args:
            model: The model with QuantizeLinear and DequantizeLinear.
            arithmetic: How the hardware computes.
            per_layer: Give what every operation computes.

        Raises:
            BadInput: The quantizers cannot be read.
        """
        quantized = read_quantized(model)
        known: Any = quantized.float_model
        made = [name for node in topology(known).nodes for name in node.outputs] if per_layer else []
        fixed = derived_constants(known.proto.graph)
        names = dict.fromkeys((*(name for name in made if name not in fixed), *outputs(known)))
        runner = IntegerRunner(known, quantized.quantizers, arithmetic)
        return cls(known, runner, tuple(names), quantized.notes)

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """What has to be fed."""
        return inputs(self.model)

    def run(self, feed: Mapping[str, Array], *, sample: str) -> dict[str, Array]:
        """Values of one sample.

        Raises:
            ModelFailed: A part of the model that runs in float failed.
        """
        found = self.runner.run(feed, self.tensors, sample=sample)
        results = frozenset(outputs(self.model))
        codes = found.codes
        return {
            name: codes[name] if name in codes and name not in results else found.values[name]
            for name in self.tensors
        }
