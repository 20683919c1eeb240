"""Operations that only move elements."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from roundoff.graph.backward.builder import backward_graph
from tests.contracts.backward_rule import check_rule, distinct, in_memory, node_model, open_raw


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


@pytest.mark.parametrize("opset", [7, 13, 22])
def test_changes_of_shape(opset: int) -> None:
    x = distinct((2, 1, 3))
    check_rule("Reshape", x, ints(3, -1), opset=opset)
    check_rule("Flatten", x, opset=opset, axis=2)
    check_rule("Transpose", x, opset=opset)
    check_rule("Transpose", x, opset=opset, perm=[2, 0, 1])
    if opset < 13:
        check_rule("Squeeze", x, opset=opset, axes=[1])
        check_rule("Unsqueeze", x, opset=opset, axes=[0, 3])
    else:
        check_rule("Squeeze", x, ints(1), opset=opset)
        check_rule("Unsqueeze", x, ints(0, 3), opset=opset)
    check_rule("Squeeze", x, opset=opset)


@pytest.mark.parametrize("shape", [(2, 3, 4), (3, 1), (1,), (5, 2, 3, 4)], ids=str)
def test_expand(shape: tuple[int, ...]) -> None:
    check_rule("Expand", distinct((3, 1)), ints(*shape), opset=8)


@pytest.mark.parametrize("repeats", [(1, 1, 1), (2, 1, 3), (3, 2, 2), (0, 1, 1)], ids=str)
def test_tile(repeats: tuple[int, ...]) -> None:
    check_rule("Tile", distinct((2, 1, 3)), ints(*repeats), opset=7)


@given(
    axis=st.integers(-2, 1),
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    opset=st.sampled_from([7, 13]),
)
@settings(max_examples=10, deadline=None)
def test_concat(axis: int, sizes: list[int], opset: int) -> None:
    assume(opset >= 11 or axis >= 0)
    shapes = [(size, 2) if axis % 2 == 0 else (2, size) for size in sizes]
    check_rule("Concat", *(distinct(s, seed=seed) for seed, s in enumerate(shapes)), opset=opset, axis=axis)


@pytest.mark.parametrize("opset", [7, 11, 13, 18])
def test_split(opset: int) -> None:
    x = distinct((2, 6))
    if opset < 13:
        check_rule("Split", x, opset=opset, outputs=3, axis=1, split=[1, 2, 3])
    else:
        check_rule("Split", x, ints(1, 2, 3), opset=opset, outputs=3, axis=1)
    check_rule("Split", x, opset=opset, outputs=2, axis=0, **({"num_outputs": 2} if opset >= 18 else {}))


def test_parts_of_a_split_that_nobody_uses_get_zeros() -> None:
    proto = node_model(
        "Split", [np.zeros((2, 6))], dtype=np.dtype(np.float32), opset=13, outputs=3, attributes={"axis": 1}
    )
    backward = backward_graph(in_memory(proto), ["x0"], seeds=["y1"])
    feed = {"x0": np.zeros((2, 6), np.float32), backward.seeds["y1"]: np.ones((2, 2), np.float32)}
    (found,) = open_raw(backward.model.proto).run([backward.gradients["x0"]], feed)
    assert found.tolist() == [[0, 0, 1, 1, 0, 0]] * 2


@pytest.mark.parametrize("block", [1, 2])
def test_blocks_of_pixels(block: int) -> None:
    check_rule("SpaceToDepth", distinct((2, 2, 4, 2)), opset=7, blocksize=block)
    check_rule("DepthToSpace", distinct((2, 8, 2, 1)), opset=7, blocksize=block)
    for mode in ("DCR", "CRD"):
        check_rule("DepthToSpace", distinct((2, 8, 2, 1)), opset=13, blocksize=block, mode=mode)


BOUNDS = st.integers(-7, 7) | st.sampled_from([-(2**31), 2**31 - 1, -(2**63), 2**63 - 1])


@given(start=BOUNDS, end=BOUNDS, step=st.sampled_from([1, 2, 3, -1, -2]), axis=st.sampled_from([0, 1, -1]))
@settings(max_examples=40, deadline=None)
def test_slice(start: int, end: int, step: int, axis: int) -> None:
    # Backwards, the runtime takes the largest numbers for the beginning; the standard does not say so.
    assume(step > 0 or end < 2**31 - 1)
    x = distinct((5, 6))
    check_rule("Slice", x, ints(start), ints(end), ints(axis), ints(step), opset=13)


def test_slice_of_several_axes_in_all_versions() -> None:
    x = distinct((4, 5, 6))
    check_rule("Slice", x, opset=7, starts=[1, -4], ends=[3, 5], axes=[0, 2])
    check_rule("Slice", x, opset=9, starts=[1, 2], ends=[100, -1])
    check_rule("Slice", x, ints(1, 2), ints(100, -1), opset=10)
    check_rule("Slice", x, ints(3, 0, -1), ints(-9, 5, 0), ints(0, 1, 2), ints(-1, 2, -3), opset=13)


@given(pads=st.lists(st.integers(-1, 2), min_size=4, max_size=4), opset=st.sampled_from([7, 11, 13, 21]))
@settings(max_examples=15, deadline=None)
def test_constant_padding(pads: list[int], opset: int) -> None:
    rest = [] if opset < 11 else [ints(*pads)]
    check_rule("Pad", distinct((3, 4)), *rest, opset=opset, **({"pads": pads} if opset < 11 else {}))


@given(
    pads=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    mode=st.sampled_from(["reflect", "edge", "wrap"]),
    opset=st.sampled_from([7, 13, 19]),
)
@settings(max_examples=15, deadline=None)
def test_padding_with_the_tensor_itself(pads: list[int], mode: str, opset: int) -> None:
    assume(mode != "wrap" or opset >= 19)
    rest = [] if opset < 11 else [ints(*pads)]
    held = {"mode": mode} | ({"pads": pads} if opset < 11 else {})
    check_rule("Pad", distinct((3, 4)), *rest, opset=opset, **held)


def test_padding_of_chosen_axes() -> None:
    check_rule("Pad", distinct((3, 4)), ints(1, 2), None, ints(-1), opset=18)
    check_rule("Pad", distinct((3, 4)), ints(1, 2), None, ints(0), opset=18, mode="reflect")


@pytest.mark.parametrize("upper", [0, 1])
def test_triangles(upper: int) -> None:
    check_rule("Trilu", distinct((2, 3, 4)), opset=14, upper=upper)
    check_rule("Trilu", distinct((3, 4)), np.array(-1, np.int64), opset=14, upper=upper)


def test_casting_to_the_type_of_another() -> None:
    check_rule("CastLike", distinct((3,)), distinct((1,)), opset=15, only=[0])


def test_casting_between_floats() -> None:
    proto = node_model(
        "Cast",
        [np.zeros(3)],
        dtype=np.dtype(np.float32),
        opset=13,
        outputs=1,
        attributes={"to": TensorProto.DOUBLE},
    )
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    backward = backward_graph(in_memory(proto), ["x0"])
    feed = {"x0": np.zeros(3, np.float32), backward.seeds["y0"]: np.array([1, 2, 3], np.float64)}
    (found,) = open_raw(backward.model.proto).run([backward.gradients["x0"]], feed)
    assert found.dtype == np.float32
    assert found.tolist() == [1, 2, 3]
