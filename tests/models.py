"""Small ONNX models, built in code."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.tensors import Array
from roundoff.graph.load import Model, load_model
from roundoff.graph.nodes import make_model

Axes = Sequence[int | str | None] | None
IMAGE = (1, 3, 8, 8)


def value(name: str, shape: Axes = None, elem_type: int = TensorProto.FLOAT) -> Any:
    """An input or output of a graph."""
    return helper.make_tensor_value_info(name, elem_type, shape)


def weight(name: str, *shape: int, seed: int = 0) -> Any:
    """An initializer with small random values."""
    values = np.random.default_rng(seed).standard_normal(shape) * 0.3
    return numpy_helper.from_array(values.astype(np.float32), name)


def wrapped(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    weights: Sequence[Any] = (),
    **versions: Any,
) -> Any:
    """A model of these nodes."""
    return make_model(helper.make_graph(nodes, "test", inputs, outputs, weights), **versions)


def single_node(node: Any, inputs: Sequence[Any], weights: Sequence[Any] = (), **versions: Any) -> Any:
    """A model of one node whose first output is the model's."""
    return wrapped([node], inputs, [value(node.output[0])], weights, **versions)


def conv_net(batch: int | str = 1) -> Any:
    """Plain CNN: image -> conv1 -> relu1 -> conv2 -> relu2 -> pooled -> flat -> logits."""
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["conv1"], name="Conv1", pads=[1] * 4),
        helper.make_node("Relu", ["conv1"], ["relu1"], name="Relu1"),
        helper.make_node("Conv", ["relu1", "w2"], ["conv2"], name="Conv2", pads=[1] * 4, group=4),
        helper.make_node("Relu", ["conv2"], ["relu2"], name="Relu2"),
        helper.make_node("GlobalAveragePool", ["relu2"], ["pooled"], name="Pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], name="Flatten"),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["logits"], name="Classifier"),
    ]
    weights = [weight("w1", 4, 3, 3, 3), weight("w2", 4, 1, 3, 3), weight("w3", 4, 10), weight("b3", 10)]
    return wrapped(nodes, [value("image", (batch, 3, 8, 8))], [value("logits", (batch, 10))], weights)


def residual() -> Any:
    """image -> a, then a + relu(conv(a)); `a` is read twice."""
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["a"], name="stem", pads=[1] * 4),
        helper.make_node("Conv", ["a", "w2"], ["b"], name="body", pads=[1] * 4),
        helper.make_node("Relu", ["b"], ["c"], name="act"),
        helper.make_node("Add", ["a", "c"], ["sum"], name="add"),
    ]
    return wrapped(
        nodes, [value("image", IMAGE)], [value("sum")], [weight("w1", 3, 3, 3, 3), weight("w2", 3, 3, 3, 3)]
    )


def two_inputs() -> Any:
    """left and right (of a free length) -> scaled -> joined."""
    nodes = [
        helper.make_node("Mul", ["right", "gain"], ["scaled"], name="scale"),
        helper.make_node("Add", ["left", "scaled"], ["joined"], name="join"),
    ]
    inputs = [value("left", ("N", 5)), value("right", ("N", 5)), value("gain", (1,))]
    # An initializer that is also an input has a default; nobody has to feed it.
    return wrapped(nodes, inputs, [value("joined")], [weight("gain", 1)])


def two_outputs() -> Any:
    """Splits the channels; both halves are outputs, one of them through a node in between."""
    nodes = [
        helper.make_node("Split", ["x"], ["low", "high"], name="split", axis=1),
        helper.make_node("Sigmoid", ["high"], ["gate"], name="gate"),
    ]
    return wrapped(nodes, [value("x", (1, 4, 3))], [value("low"), value("gate")])


def branches() -> Any:
    """Two convolutions of one image, concatenated."""
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["wide"], name="wide", pads=[1] * 4),
        helper.make_node("Conv", ["image", "w2"], ["narrow"], name="narrow"),
        helper.make_node("Concat", ["wide", "narrow"], ["both"], name="concat", axis=1),
    ]
    return wrapped(
        nodes, [value("image", IMAGE)], [value("both")], [weight("w1", 2, 3, 3, 3), weight("w2", 5, 3, 1, 1)]
    )


def badly_named() -> Any:
    """Nodes without names, with one name for two, and one that sits on a generated name."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"], name="twin"),
        helper.make_node("Abs", ["b"], ["c"], name="twin"),
        helper.make_node("Relu", ["c"], ["d"], name="Relu_0"),
        helper.make_node("Sqrt", ["d"], ["y"]),
    ]
    return wrapped(nodes, [value("x", (2, 3))], [value("y")])


def with_if() -> Any:
    """An If whose branches read `scaled` from outside; `inner` is computed inside."""
    branch = [
        helper.make_graph(
            [
                helper.make_node(op, ["scaled"], [f"inner_{op}"]),
                helper.make_node("Neg", [f"inner_{op}"], [f"out_{op}"]),
            ],
            op,
            [],
            [value(f"out_{op}")],
        )
        for op in ("Relu", "Abs")
    ]
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["scaled"], name="scale"),
        helper.make_node("ReduceSum", ["x"], ["total"], name="total", keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["positive"], name="compare"),
        helper.make_node(
            "If", ["positive"], ["chosen"], name="choose", then_branch=branch[0], else_branch=branch[1]
        ),
        helper.make_node("Exp", ["chosen"], ["y"], name="exp"),
    ]
    constants = [numpy_helper.from_array(np.float32(number), name) for number, name in ((2, "two"), (0, "zero"))]
    return wrapped(nodes, [value("x", ("N", 3))], [value("y")], constants)


def with_sequence() -> Any:
    """A sequence of tensors, and strings, between tensors."""
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["parts"], name="split", axis=0),
        helper.make_node("ConcatFromSequence", ["parts"], ["joined"], name="join", axis=0),
        helper.make_node("Cast", ["joined"], ["text"], name="print", to=TensorProto.STRING),
        helper.make_node("Cast", ["text"], ["y"], name="parse", to=TensorProto.FLOAT),
    ]
    return wrapped(nodes, [value("x", (2, 3))], [value("y")])


def save(model: Any, path: Path) -> Path:
    """Write a model to a file."""
    onnx.save(model, path)
    return path


def loaded(model: Any, folder: Path) -> Model:
    """A model as `load_model` gives it."""
    return load_model(save(model, folder / "model.onnx"))


def random_feed(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, Array]:
    """float32 values for inputs of these shapes."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
