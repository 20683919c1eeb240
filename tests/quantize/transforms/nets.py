"""Small networks in which channels can be scaled, and the proof that they compute what they did."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from roundoff.core.plan import OptionValue, Step
from roundoff.core.tensors import Array
from roundoff.graph.load import Model, name_nodes
from roundoff.quantize.steps import StepContext, Transformed, apply_transform
from roundoff.quantize.targets.files import load_target
from tests.graph.quantized_nets import run_model
from tests.models import value, wrapped
from tests.run.samples import MemorySamples


class Net:
    """A network under construction; every node is called after its result."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def hold(self, name: str, values: Any) -> str:
        array = np.asarray(values)
        self.weights.append(
            numpy_helper.from_array(array.astype(np.float32) if array.dtype == float else array, name)
        )
        return name

    def normal(self, name: str, *shape: int) -> str:
        return self.hold(name, self.rng.normal(size=shape) * 0.3)

    def uneven(self, name: str, *shape: int) -> str:
        """Weights whose first axis has rows of very different size."""
        scale = 2.0 ** self.rng.integers(-5, 6, size=(shape[0], *(1,) * (len(shape) - 1)))
        return self.hold(name, self.rng.normal(size=shape) * 0.3 * scale)

    def add(self, op_type: str, inputs: Sequence[str], result: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op_type, list(inputs), [result], name=result, **attributes))
        return result

    def model(self, inputs: Mapping[str, Sequence[int]], outputs: Sequence[str], **versions: Any) -> Model:
        proto = wrapped(
            self.nodes,
            [value(name, shape) for name, shape in inputs.items()],
            [value(name) for name in outputs],
            self.weights,
            **versions,
        )
        name_nodes(proto.graph)
        return Model(proto, Path("net.onnx"), 0)


def samples_for(model: Model, count: int = 3, seed: int = 1) -> MemorySamples:
    """Normal random inputs."""
    rng = np.random.default_rng(seed)
    shapes = {
        each.name: [dim.dim_value for dim in each.type.tensor_type.shape.dim] for each in model.proto.graph.input
    }
    return MemorySamples(
        [{name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(count)]
    )


def context_for(model: Model, target: str = "generic-int8-per-tensor", count: int = 3) -> StepContext:
    """Random samples for a network."""
    return StepContext(load_target(target), samples_for(model, count))


def step(name: str, **options: OptionValue) -> Step:
    """A step for all nodes."""
    return Step(name, tuple(sorted(options.items())))


def transformed_alike(model: Model, wanted: Step, context: StepContext | None = None) -> Transformed:
    """Transform a network, and see that the original was not touched and outputs are near."""
    before = model.proto.SerializeToString()
    done = apply_transform(wanted, model, context or context_for(model))
    assert model.proto.SerializeToString() == before
    for feed in samples_for(model, count=2, seed=99).feeds:
        for got, expected in zip(run_model(done.model, feed), run_model(model, feed), strict=True):
            scale = np.abs(expected).max(initial=1e-30)
            np.testing.assert_allclose(got / scale, expected / scale, atol=2e-5, rtol=0)
    return done


def same_bits(left: Model, right: Model, *, scale: float = 1.0) -> bool:
    """Whether two networks give the same bits, on samples that no calibration saw."""
    results: list[tuple[Array, Array]] = []
    for feed in samples_for(left, count=3, seed=77).feeds:
        loud = {name: (array * np.float32(scale)).astype(np.float32) for name, array in feed.items()}
        results += zip(run_model(left, loud), run_model(right, loud), strict=True)
    return all(np.array_equal(first, second) for first, second in results)
