"""Networks with control flow, and outputs that are no numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.models import value, weight, wrapped
from tests.run.samples import MemorySamples

IMAGE = (1, 3, 8, 8)
_STEM = (
    helper.make_node("Conv", ["image", "w1"], ["a"], name="conv1", pads=[1] * 4),
    helper.make_node("Relu", ["a"], ["r"], name="relu1"),
)


def images(count: int = 4, dtype: Any = np.float32) -> MemorySamples:
    """Random images."""
    rng = np.random.default_rng(0)
    return MemorySamples([{"image": rng.standard_normal(IMAGE).astype(dtype)} for _ in range(count)])


def _held(array: Any, name: str) -> Any:
    return numpy_helper.from_array(array, name)


def _after_stem(nodes: Sequence[Any], constants: Sequence[Any]) -> Any:
    """A convolution and Relu that write `r`, these nodes that make `t` of it, and a last convolution."""
    last = helper.make_node("Conv", ["t", "w2"], ["y"], name="conv2", pads=[1] * 4)
    weights = [weight("w1", 4, 3, 3, 3), weight("w2", 2, 4, 3, 3), *constants]
    return wrapped([*_STEM, *nodes, last], [value("image", IMAGE)], [value("y")], weights)


def with_branches() -> Any:
    """An If whose branches read `r` from outside."""
    then = helper.make_graph(
        [helper.make_node("Conv", ["r", "w3"], ["t1"], name="inner", pads=[1] * 4)], "then", [], [value("t1")]
    )
    other = helper.make_graph([helper.make_node("Neg", ["r"], ["t2"], name="negated")], "else", [], [value("t2")])
    nodes = [
        helper.make_node("ReduceMean", ["r"], ["mean"], name="mean", keepdims=0),
        helper.make_node("Greater", ["mean", "zero"], ["yes"], name="compare"),
        helper.make_node("If", ["yes"], ["t"], name="choose", then_branch=then, else_branch=other),
    ]
    return _after_stem(nodes, [_held(np.float32(0), "zero"), weight("w3", 4, 4, 3, 3)])


def with_loop() -> Any:
    """A Loop that starts with `r` and adds it three times more, reading it from outside."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum_in", "r"], ["sum_out"], name="added"),
            helper.make_node("Identity", ["go_in"], ["go_out"], name="go"),
        ],
        "body",
        [
            value("turn", (), TensorProto.INT64),
            value("go_in", (), TensorProto.BOOL),
            value("sum_in", (1, 4, 8, 8)),
        ],
        [value("go_out", (), TensorProto.BOOL), value("sum_out", (1, 4, 8, 8))],
    )
    loop = helper.make_node("Loop", ["turns", "go", "r"], ["t"], name="loop", body=body)
    return _after_stem([loop], [_held(np.int64(3), "turns"), _held(np.array(True), "go")])


def with_scan() -> Any:
    """A Scan over the channels of `r` that scales by the mean of all, read from outside."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "row"], ["next"], name="added"),
            helper.make_node("Mul", ["next", "mean"], ["scaled"], name="scaled"),
        ],
        "body",
        [value("state", (8, 8)), value("row", (8, 8))],
        [value("next", (8, 8)), value("scaled", (8, 8))],
    )
    nodes = [
        helper.make_node("Squeeze", ["r", "first"], ["rows"], name="squeeze"),
        helper.make_node("ReduceMean", ["rows"], ["mean"], name="mean", keepdims=0),
        helper.make_node("Scan", ["start", "rows"], ["end", "all"], name="scan", body=body, num_scan_inputs=1),
        helper.make_node("Unsqueeze", ["all", "first"], ["t"], name="unsqueeze"),
    ]
    return _after_stem(nodes, [_held(np.zeros((8, 8), np.float32), "start"), _held(np.array([0]), "first")])


def with_tail(nodes: Sequence[Any], outputs: Sequence[Any], constants: Sequence[Any] = ()) -> Any:
    """A convolution, Relu, pooling and full connection that write `logits`, then these nodes."""
    head = [
        helper.make_node("GlobalAveragePool", ["r"], ["pooled"], name="pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], name="flatten"),
        helper.make_node("Gemm", ["flat", "w2"], ["logits"], name="fc"),
    ]
    weights = [weight("w1", 4, 3, 3, 3), weight("w2", 4, 10), *constants]
    return wrapped([*_STEM, *head, *nodes], [value("image", IMAGE)], outputs, weights)


def half_net() -> Any:
    """The same in half precision."""
    proto = with_tail([], [value("logits")])
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(_held(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    for each in (*proto.graph.input, *proto.graph.output):
        each.type.tensor_type.elem_type = TensorProto.FLOAT16
    return proto
