"""Arithmetic with broadcasting: shapes are drawn so that either side, both or neither is repeated."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.quantizer import Consumer
from roundoff.graph.backward.builder import backward_graph
from tests.contracts.backward_rule import check_rule, distinct, in_memory, node_model, open_raw

SETTINGS = settings(max_examples=12, deadline=None)
OPSETS = st.sampled_from([7, 8, 13, 14, 22])


@st.composite
def shapes(draw: st.DrawFn, count: int = 2) -> list[tuple[int, ...]]:
    """Shapes that can be combined; of each axis some have one element, and some have no leading axes."""
    whole = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    found = []
    for _ in range(count):
        missing = draw(st.integers(0, len(whole)))
        flat = [draw(st.booleans()) for _ in whole]
        found.append(tuple(1 if one else size for size, one in zip(whole, flat, strict=True))[missing:])
    return found


@given(pair=shapes(), op_type=st.sampled_from(["Add", "Sub", "Mul", "Div"]), opset=OPSETS)
@settings(max_examples=30, deadline=None)
def test_the_four_operations(pair: list[tuple[int, ...]], op_type: str, opset: int) -> None:
    low = 0.5 if op_type == "Div" else -2
    check_rule(op_type, distinct(pair[0]), distinct(pair[1], seed=1, low=low), opset=opset)


@given(pair=shapes(), opset=st.sampled_from([7, 12, 13, 15]))
@SETTINGS
def test_powers_of_any_kind(pair: list[tuple[int, ...]], opset: int) -> None:
    check_rule("Pow", distinct(pair[0], low=0.4), distinct(pair[1], seed=1), opset=opset)


@pytest.mark.parametrize("power", [0, 1, 2, 3, -2])
def test_whole_powers_of_negative_numbers(power: int) -> None:
    check_rule("Pow", distinct((3, 4)), np.array(power, np.int64), opset=13)


def test_whole_powers_that_differ_by_element() -> None:
    check_rule("Pow", distinct((3, 4)), np.array([1, 2, 3, 4], np.int64), opset=13)


def test_the_power_of_a_negative_number_has_no_slope_in_its_exponent() -> None:
    inputs = [np.array([-2.0, 0.0, 2.0]), np.array([2.0])]
    proto = node_model("Pow", inputs, dtype=np.dtype(np.float32), opset=13, outputs=1, attributes={})
    backward = backward_graph(in_memory(proto), ["x1"])
    feed = {
        "x0": inputs[0].astype(np.float32),
        "x1": inputs[1].astype(np.float32),
        backward.seeds["y0"]: np.ones(3, np.float32),
    }
    (found,) = open_raw(backward.model.proto).run([backward.gradients["x1"]], feed)
    assert found == pytest.approx([4 * np.log(2)])


@given(three=shapes(3), op_type=st.sampled_from(["Max", "Min", "Sum", "Mean"]), opset=st.sampled_from([8, 12, 13]))
@settings(max_examples=20, deadline=None)
def test_any_number_of_operands(three: list[tuple[int, ...]], op_type: str, opset: int) -> None:
    arrays = [distinct(shape, seed=seed, low=-2 + 0.031 * seed) for seed, shape in enumerate(three)]
    check_rule(op_type, *arrays, opset=opset)
    check_rule(op_type, arrays[0], opset=opset)


def test_extremes_of_equal_numbers_share_the_gradient() -> None:
    proto = node_model("Max", [np.zeros(2)] * 2, dtype=np.dtype(np.float32), opset=13, outputs=1, attributes={})
    backward = backward_graph(in_memory(proto), ["x0", "x1"])
    feed = {"x0": np.array([1, 2], np.float32), "x1": np.array([1, 0], np.float32)}
    feed[backward.seeds["y0"]] = np.array([10, 10], np.float32)
    session = open_raw(backward.model.proto)
    assert session.run([backward.gradients["x0"]], feed)[0].tolist() == [5, 10]
    assert session.run([backward.gradients["x1"]], feed)[0].tolist() == [5, 0]


@given(pair=shapes(), opset=st.sampled_from([9, 16]))
@SETTINGS
def test_where(pair: list[tuple[int, ...]], opset: int) -> None:
    whole = np.broadcast_shapes(*pair)
    chosen = np.random.default_rng(0).random(whole) < 0.5
    check_rule("Where", chosen, distinct(pair[0]), distinct(pair[1], seed=1), opset=opset)


def test_mod() -> None:
    check_rule("Mod", distinct((3, 4)), np.full(4, 1.5), only=[0], opset=13, fmod=1)


def test_one_node_that_reads_a_tensor_twice_has_two_edges() -> None:
    proto = node_model("Mul", [np.zeros(3)] * 2, dtype=np.dtype(np.float32), opset=13, outputs=1, attributes={})
    proto.graph.node[0].input[1] = "x0"
    del proto.graph.input[1]
    backward = backward_graph(in_memory(proto), ["x0"], edges=[Consumer("node", 0), Consumer("node", 1)])
    x = np.array([1, 2, 3], np.float32)
    feed = {"x0": x, backward.seeds["y0"]: np.ones(3, np.float32)}
    session = open_raw(backward.model.proto)
    assert session.run([backward.gradients["x0"]], feed)[0].tolist() == [2, 4, 6]
    assert session.run([backward.gradients[Consumer("node", 1)]], feed)[0].tolist() == [1, 2, 3]
