"""Gathering and scattering by indices that are constant or computed, with repeated ones among them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from roundoff.graph.backward.builder import backward_graph
from tests.contracts.backward_rule import check_rule, distinct, in_memory, node_model, open_raw
from tests.models import value, wrapped


def ints(values: Any) -> Any:
    return np.array(values, np.int64)


INDICES = st.sampled_from([0, -1, [1], [0, 1], [1, 2], [2, 0], [1, 1, -1], [[0, 2], [2, -3]]])


@given(indices=INDICES, axis=st.integers(-3, 2), opset=st.sampled_from([7, 11, 16]))
@settings(max_examples=25, deadline=None)
def test_gather_by_constant_indices(indices: Any, axis: int, opset: int) -> None:
    check_rule("Gather", distinct((3, 4, 3)), ints(indices), opset=opset, axis=axis if opset >= 11 else axis % 3)


@pytest.mark.parametrize("opset", [9, 11, 13, 16, 22])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_by_computed_indices(opset: int, axis: int) -> None:
    chosen = ints([[0, 2], [2, 2]])
    nodes = [helper.make_node("Gather", ["x", "chosen"], ["y"], name="gather", axis=axis)]
    inputs = [value("x", (3, 3, 4)), value("chosen", (2, 2), TensorProto.INT64)]
    proto = wrapped(nodes, inputs, [value("y")], opset=opset)
    backward = backward_graph(in_memory(proto), ["x"])
    x = distinct((3, 3, 4)).astype(np.float32)
    seed = distinct(np.take(x, chosen, axis).shape, seed=1).astype(np.float32)
    feed = {"x": x, "chosen": chosen, backward.seeds["y"]: seed}
    (found,) = open_raw(backward.model.proto).run([backward.gradients["x"]], feed)
    expected = np.zeros_like(x)
    slots, parts = np.moveaxis(expected, axis, 0), seed
    np.add.at(slots, chosen, np.moveaxis(parts, [axis, axis + 1], [0, 1]))
    assert found == pytest.approx(expected)


def test_gather_by_computed_indices_needs_a_table_that_the_oldest_versions_lack() -> None:
    nodes = [helper.make_node("Gather", ["x", "chosen"], ["y"], name="gather")]
    inputs = [value("x", (3, 4)), value("chosen", (2,), TensorProto.INT64)]
    backward = backward_graph(in_memory(wrapped(nodes, inputs, [value("y")], opset=8)), ["x"])
    assert backward.without_rule["x"].endswith("needs opset 9, the model has 8")


@pytest.mark.parametrize("axis", [0, 1])
def test_gather_elements(axis: int) -> None:
    check_rule("GatherElements", distinct((3, 3)), ints([[0, 2, 2], [1, -1, 0]]), opset=16, axis=axis)


@pytest.mark.parametrize("indices", [[[0], [2], [0]], [[0, 1], [2, 2]], [[[0, 0]], [[0, 0]]]], ids=str)
def test_gather_nd(indices: Any) -> None:
    check_rule("GatherND", distinct((3, 3, 2)), ints(indices), opset=16)


@pytest.mark.parametrize("op_type", ["GatherElements", "GatherND"])
def test_adding_up_by_indices_needs_a_version_that_can(op_type: str) -> None:
    inputs = [np.zeros((3, 3)), ints([[0, 1]])]
    proto = node_model(op_type, inputs, dtype=np.dtype(np.float32), opset=13, outputs=1, attributes={})
    assert "needs opset 16" in backward_graph(in_memory(proto), ["x0"]).without_rule["x0"]


def test_scattering() -> None:
    x = distinct((4, 3))
    check_rule("ScatterElements", x, ints([[0, 2, 1]]), distinct((1, 3), seed=1), opset=11, axis=0)
    check_rule("Scatter", x, ints([[0, 2, 1]]), distinct((1, 3), seed=1), opset=9, axis=0, only=[0])
    check_rule("ScatterElements", x, ints([[0], [2], [1], [0]]), distinct((4, 1), seed=1), opset=18, axis=1)
    check_rule("ScatterND", x, ints([[0], [2]]), distinct((2, 3), seed=1), opset=13)


def test_scattering_by_sums_has_no_rule() -> None:
    inputs = [np.zeros((4, 3)), ints([[0, 2, 1]]), np.zeros((1, 3))]
    held = {"reduction": "add"}
    proto = node_model("ScatterElements", inputs, dtype=np.dtype(np.float32), opset=16, outputs=1, attributes=held)
    assert "'add'" in backward_graph(in_memory(proto), ["x0"]).without_rule["x0"]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("largest", [0, 1])
def test_the_largest_elements(axis: int, largest: int) -> None:
    x = distinct((4, 5)).astype(np.float32)
    node = helper.make_node("TopK", ["x", "k"], ["top", "places"], name="top", axis=axis, largest=largest)
    proto = wrapped([node], [value("x", (4, 5))], [value("top")], [numpy_helper.from_array(ints([2]), "k")])
    backward = backward_graph(in_memory(proto), ["x"])
    shape = (2, 5) if axis == 0 else (4, 2)
    feed = {"x": x, backward.seeds["top"]: np.ones(shape, np.float32)}
    (found,) = open_raw(backward.model.proto).run([backward.gradients["x"]], feed)
    order = np.argsort(x if not largest else -x, axis=axis)
    expected = np.zeros((4, 5))
    np.put_along_axis(expected, np.take(order, [0, 1], axis), 1, axis)
    assert found.tolist() == expected.tolist()
