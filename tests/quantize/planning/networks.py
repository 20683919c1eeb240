"""Networks that planners stumble over, small and built in code."""

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests import models
from tests.models import value, weight, wrapped

node = helper.make_node


def scalar(name: str, number: float, dtype: Any = np.float32) -> Any:
    """A constant without axes."""
    return numpy_helper.from_array(np.array(number, dtype=dtype), name)


def integers(name: str, *numbers: int) -> Any:
    """A constant of whole numbers."""
    return numpy_helper.from_array(np.array(numbers, dtype=np.int64), name)


def attention() -> Any:
    """One head of attention behind a projection: products of two activations, shapes, softmax, a mask."""
    nodes = [
        node("MatMul", ["x", "w_q"], ["q"], name="query"),
        node("Add", ["q", "b_q"], ["q_b"], name="query_bias"),
        node("MatMul", ["x", "w_k"], ["k"], name="key"),
        node("Transpose", ["k"], ["k_t"], name="turn", perm=[0, 2, 1]),
        node("MatMul", ["q_b", "k_t"], ["scores"], name="scores"),
        node("Div", ["scores", "root"], ["scaled"], name="scale"),
        node("Softmax", ["scaled"], ["probabilities"], name="softmax", axis=-1),
        node("MatMul", ["probabilities", "x"], ["mixed"], name="mix"),
        node("Add", ["mixed", "x"], ["y"], name="residual"),
    ]
    weights = [weight("w_q", 6, 6), weight("w_k", 6, 6, seed=1), weight("b_q", 6, seed=2), scalar("root", 2.45)]
    return wrapped(nodes, [value("x", (1, 4, 6))], [value("y")], weights)


def gelu_mlp() -> Any:
    """Two layers with a spelled-out gelu between them."""
    nodes = [
        node("MatMul", ["x", "w1"], ["h"], name="fc1"),
        node("Add", ["b1", "h"], ["hb"], name="fc1_bias"),
        node("Div", ["hb", "root2"], ["d"], name="div"),
        node("Erf", ["d"], ["e"], name="erf"),
        node("Add", ["e", "one"], ["e1"], name="plus_one"),
        node("Mul", ["hb", "e1"], ["m"], name="mul"),
        node("Mul", ["m", "half"], ["g"], name="halve"),
        node("MatMul", ["g", "w2"], ["y"], name="fc2"),
    ]
    weights = [
        weight("w1", 4, 8),
        weight("b1", 8),
        weight("w2", 8, 3),
        scalar("root2", 2**0.5),
        scalar("one", 1.0),
        scalar("half", 0.5),
    ]
    return wrapped(nodes, [value("x", ("N", 4))], [value("y")], weights)


def swish_net() -> Any:
    """Two convolutions with a swish each; the first one's is also read between its nodes."""
    nodes = [
        node("Conv", ["x", "w1"], ["a"], name="conv1"),
        node("Sigmoid", ["a"], ["s"], name="sigmoid1"),
        node("Mul", ["a", "s"], ["b"], name="mul1"),
        node("Conv", ["b", "w2"], ["c"], name="conv2"),
        node("Sigmoid", ["c"], ["t"], name="sigmoid2"),
        node("Mul", ["t", "c"], ["d"], name="mul2"),
        node("GlobalAveragePool", ["s"], ["pooled"], name="pool"),
        node("Mul", ["d", "pooled"], ["y"], name="gate"),
    ]
    weights = [weight("w1", 4, 3, 1, 1), weight("w2", 4, 4, 1, 1)]
    return wrapped(nodes, [value("x", (1, 3, 5, 5))], [value("y")], weights)


def detector_head() -> Any:
    """Boxes and scores joined by one Concat, behind data movement."""
    nodes = [
        node("Conv", ["x", "w1"], ["features"], name="stem"),
        node("Relu", ["features"], ["f"], name="act"),
        node("Conv", ["f", "w2"], ["boxes"], name="boxes"),
        node("Conv", ["f", "w3"], ["logits"], name="logits"),
        node("Sigmoid", ["logits"], ["scores"], name="scores"),
        node("Reshape", ["boxes", "flat"], ["boxes_flat"], name="flatten_boxes"),
        node("Reshape", ["scores", "flat"], ["scores_flat"], name="flatten_scores"),
        node("Concat", ["boxes_flat", "scores_flat"], ["joined"], name="join", axis=1),
        node("Transpose", ["joined"], ["y"], name="turn", perm=[0, 2, 1]),
    ]
    weights = [
        weight("w1", 4, 3, 1, 1),
        weight("w2", 4, 4, 1, 1),
        weight("w3", 2, 4, 1, 1),
        integers("flat", 0, 0, -1),
    ]
    return wrapped(nodes, [value("x", (1, 3, 4, 4))], [value("y")], weights)


def shape_games() -> Any:
    """Shapes computed in float, indices, limits and a float that only says how far to resize."""
    nodes = [
        node("Conv", ["x", "w"], ["a"], name="conv"),
        node("Shape", ["a"], ["size"], name="shape"),
        node("Cast", ["size"], ["size_f"], name="to_float", to=TensorProto.FLOAT),
        node("Mul", ["size_f", "growth"], ["grown"], name="grow"),
        node("Cast", ["grown"], ["sizes"], name="to_int", to=TensorProto.INT64),
        node("Resize", ["a", "", "", "sizes"], ["big"], name="resize", mode="nearest"),
        node("Clip", ["big", "low", "high"], ["clipped"], name="clip"),
        node("ArgMax", ["clipped"], ["best"], name="argmax", axis=1),
        node("TopK", ["clipped", "one"], ["values", "places"], name="topk", axis=1),
        node("Gather", ["table", "best"], ["looked_up"], name="lookup"),
        node("Add", ["values", "offset"], ["y"], name="add"),
        node("Add", ["looked_up", "offset"], ["z"], name="add_too"),
    ]
    weights = [
        weight("w", 4, 3, 1, 1),
        numpy_helper.from_array(np.array([1, 1, 2, 2], dtype=np.float32), "growth"),
        scalar("low", -1.0),
        scalar("high", 1.0),
        integers("one", 1),
        weight("table", 4, 5),
        scalar("offset", 0.25),
    ]
    outputs = [value("y"), value("places", None, TensorProto.INT64), value("z")]
    return wrapped(nodes, [value("x", (1, 3, 4, 4))], outputs, weights)


def shared_weights() -> Any:
    """One initializer as the weight of two convolutions and as an operand of an Add, one bias of two."""
    nodes = [
        node("Conv", ["x", "w", "b"], ["a"], name="left"),
        node("Conv", ["z", "w", "b"], ["c"], name="right"),
        node("Add", ["a", "c"], ["s"], name="sum"),
        node("Add", ["s", "w"], ["y"], name="odd"),
    ]
    inputs = [value("x", (1, 3, 5, 5)), value("z", (1, 3, 5, 5))]
    return wrapped(nodes, inputs, [value("y")], [weight("w", 3, 3, 1, 1), weight("b", 3)])


def transposed() -> Any:
    """ConvTranspose without, with and with depthwise groups, and both kinds of Gemm."""
    nodes = [
        node("ConvTranspose", ["x", "w1", "b1"], ["a"], name="plain"),
        node("ConvTranspose", ["a", "w2", "b2"], ["b"], name="grouped", group=2),
        node("ConvTranspose", ["b", "w3", "b3"], ["c"], name="depthwise", group=4),
        node("Flatten", ["c"], ["d"], name="flatten"),
        node("Gemm", ["d", "w4", "b4"], ["e"], name="gemm", transB=1),
        node("Gemm", ["e", "w5", "b5"], ["f"], name="scaled", alpha=2.0),
        node("Gemm", ["f", "w6", "b6"], ["y"], name="one_bias"),
    ]
    weights = [
        weight("w1", 3, 4, 1, 1),
        weight("b1", 4),
        weight("w2", 4, 2, 1, 1),
        weight("b2", 4),
        weight("w3", 4, 1, 1, 1),
        weight("b3", 4),
        weight("w4", 7, 16),
        weight("b4", 7),
        weight("w5", 7, 5),
        weight("b5", 5),
        weight("w6", 5, 6),
        weight("b6", 1),
    ]
    return wrapped(nodes, [value("x", (1, 3, 2, 2))], [value("y")], weights)


def odd_sizes() -> Any:
    """Tensors without axes, without elements, of unknown shape, an infinite mask and a constant output."""
    mask = np.array([[0, -np.inf], [0, 0]], dtype=np.float32)
    nodes = [
        node("ReduceSum", ["x"], ["total"], name="total", keepdims=0),
        node("Mul", ["total", "two"], ["twice"], name="twice"),
        node("Slice", ["x", "none", "none"], ["nothing"], name="nothing"),
        node("Relu", ["nothing"], ["still_nothing"], name="relu"),
        node("Add", ["x", "mask"], ["masked"], name="mask"),
        node("Softmax", ["masked"], ["y"], name="softmax"),
        node("Identity", ["two"], ["fixed"], name="fixed"),
    ]
    weights = [scalar("two", 2.0), integers("none", 0), numpy_helper.from_array(mask, "mask")]
    outputs = [value("twice"), value("still_nothing"), value("y"), value("fixed", ())]
    return wrapped(nodes, [value("x", (2, 2))], outputs, weights)


def custom_operation() -> Any:
    """A node of another domain, behind which types are unknown."""
    nodes = [
        node("Conv", ["x", "w"], ["a"], name="before"),
        node("Mystery", ["a"], ["b"], name="mystery", domain="example.com"),
        node("Conv", ["b", "w"], ["c"], name="after"),
        node("Relu", ["c"], ["y"], name="relu"),
    ]
    weights = [weight("w", 3, 3, 1, 1)]
    return wrapped(nodes, [value("x", (1, 3, 4, 4))], [value("y")], weights, domains={"example.com": 1})


def half_precision() -> Any:
    """A network of float16."""
    half = [
        numpy_helper.from_array(np.full(shape, 0.5, dtype=np.float16), name)
        for name, shape in (("w", (3, 3, 1, 1)), ("b", (3,)))
    ]
    nodes = [node("Conv", ["x", "w", "b"], ["a"], name="conv"), node("Relu", ["a"], ["y"], name="relu")]
    ends = (TensorProto.FLOAT16,)
    return wrapped(nodes, [value("x", (1, 3, 4, 4), *ends)], [value("y", None, *ends)], half)


NETWORKS: dict[str, Callable[[], Any]] = {
    "conv_net": models.conv_net,
    "residual": models.residual,
    "two_inputs": models.two_inputs,
    "two_outputs": models.two_outputs,
    "branches": models.branches,
    "badly_named": models.badly_named,
    "with_if": models.with_if,
    "with_sequence": models.with_sequence,
    "attention": attention,
    "gelu_mlp": gelu_mlp,
    "swish_net": swish_net,
    "detector_head": detector_head,
    "shape_games": shape_games,
    "shared_weights": shared_weights,
    "transposed": transposed,
    "odd_sizes": odd_sizes,
    "custom_operation": custom_operation,
    "half_precision": half_precision,
}
"""By name, each a function that builds it."""
