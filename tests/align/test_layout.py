"""Finding the layout of one array in another."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from roundoff.align.layout import find_layout
from roundoff.align.pairing import Layout, TensorPair
from roundoff.align.usual_layout import of_their_own
from roundoff.core.tensors import Array
from tests.align.shapes import Shape, shapes


def numbers(shape: Shape, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def noisy(array: Array, share: float = 0.05) -> Array:
    return np.asarray(array + share * numbers(array.shape, seed=99), dtype=np.float32)


@settings(deadline=None, max_examples=60)
@given(shape=shapes(least_axes=2, most=7), order=st.randoms(use_true_random=False), seed=st.integers(0, 99))
def test_any_permutation_is_found(shape: Shape, order: object, seed: int) -> None:
    assume(math.prod(shape) >= 12)
    axes = list(range(len(shape)))
    order.shuffle(axes)  # type: ignore[attr-defined]
    reference = numbers(shape, seed)
    candidate = np.ascontiguousarray(reference.transpose(axes))
    layout = find_layout(reference, candidate)
    seen = candidate if layout is None else layout.apply(candidate)
    assert np.array_equal(seen, reference)


@pytest.mark.parametrize(
    ("shape", "axes", "name"),
    [
        ((1, 3, 8, 8), (0, 2, 3, 1), "NHWC -> NCHW"),
        ((2, 8, 9, 3), (0, 3, 1, 2), "NCHW -> NHWC"),
        ((3, 8, 8), (1, 2, 0), "HWC -> CHW"),
        ((8, 9, 3), (2, 0, 1), "CHW -> HWC"),
        ((1, 3, 4, 8, 8), (0, 2, 3, 4, 1), "NDHWC -> NCDHW"),
        ((1, 5, 7), (0, 2, 1), "axes (0,2,1)"),
        ((1, 8, 9, 1), (0, 3, 1, 2), "NCHW -> NHWC"),
        ((1, 16, 1, 1), (0, 2, 3, 1), "NHWC -> NCHW"),
    ],
)
def test_usual_permutations_have_names(shape: Shape, axes: tuple[int, ...], name: str) -> None:
    reference = numbers(shape)
    layout = find_layout(reference, noisy(reference.transpose(axes)))
    assert layout is not None
    assert layout.name == name


@pytest.mark.parametrize(
    ("axes", "name"),
    [((0, 1, 3, 2), "axes 2,3 swapped"), ((0, 2, 3, 1), "NHWC -> NCHW"), ((0, 3, 1, 2), "NCHW -> NHWC")],
)
def test_equal_shapes_that_disagree_are_restored(axes: tuple[int, ...], name: str) -> None:
    reference = numbers((1, 8, 8, 8))
    candidate = noisy(np.ascontiguousarray(reference.transpose(axes)))
    layout = find_layout(reference, candidate)
    assert layout is not None
    assert layout.name == name
    assert np.corrcoef(layout.apply(candidate).ravel(), reference.ravel())[0, 1] > 0.99


def test_a_buffer_under_the_wrong_label_is_restored() -> None:
    reference = numbers((1, 3, 6, 7))
    candidate = np.ascontiguousarray(reference.transpose(0, 2, 3, 1)).reshape(reference.shape)
    layout = find_layout(reference, candidate)
    assert layout is not None
    assert layout.name == "NHWC -> NCHW, though labelled (1,3,6,7)"
    assert np.array_equal(layout.apply(candidate), reference)


def test_equal_shapes_that_agree_or_cannot_be_restored_need_no_layout() -> None:
    reference = numbers((1, 8, 8, 8))
    assert find_layout(reference, noisy(reference)) is None
    assert find_layout(reference, noisy(reference, share=0.4)) is None
    assert find_layout(reference, numbers((1, 8, 8, 8), seed=5)) is None
    assert find_layout(reference, np.zeros_like(reference)) is None


@pytest.mark.parametrize(
    ("reference", "candidate", "name"),
    [
        ((1, 1000, 1, 1), (1, 1000), "reshaped (1,1000) -> (1,1000,1,1)"),
        ((1, 1000), (1000,), "reshaped (1000) -> (1,1000)"),
        ((2, 3, 4), (2, 12), "reshaped (2,12) -> (2,3,4)"),
        ((), (1,), "reshaped (1) -> ()"),
        ((1, 3, 4, 5), (3, 4, 5), "reshaped (3,4,5) -> (1,3,4,5)"),
    ],
)
def test_reshapes(reference: Shape, candidate: Shape, name: str) -> None:
    values = numbers(reference)
    layout = find_layout(values, values.reshape(candidate))
    assert layout is not None
    assert layout.name == name
    assert np.array_equal(layout.apply(values.reshape(candidate)), values)


def padded(array: Array, axis: int, length: int, value: float = 0.0) -> Array:
    extra = [(0, 0)] * array.ndim
    extra[axis] = (0, length - array.shape[axis])
    return np.pad(array, extra, constant_values=value)


@pytest.mark.parametrize("codes", [False, True])
@pytest.mark.parametrize(("axis", "length"), [(1, 64), (3, 16), (0, 4)])
def test_padding_on_one_axis(axis: int, length: int, codes: bool) -> None:
    reference = numbers((2, 60, 5, 6))
    stored = np.rint(reference * 20).astype(np.int8) if codes else reference
    candidate = padded(stored, axis, length, -128 if codes else 0)
    layout = find_layout(reference, candidate)
    assert layout is not None
    assert layout.name == f"axis {axis} padded {reference.shape[axis]} -> {length}"
    assert np.array_equal(layout.apply(candidate), stored)


def test_one_number_is_no_padding_unless_it_is_zero_or_a_code() -> None:
    ones = np.ones(3, np.float32)
    assert find_layout(ones, np.ones(4, np.float32)) is None
    assert find_layout(np.arange(3), np.array([0, 1, 2, 2])) is None  # indices are no codes
    assert find_layout(numbers((3, 4)), padded(numbers((3, 4)), 0, 5, 1.0)) is None
    assert find_layout(np.arange(3), np.array([0, 1, 2, 0])) is not None


def test_padding_in_another_order() -> None:
    reference = numbers((1, 3, 6, 6))
    candidate = np.ascontiguousarray(padded(reference, 1, 8).transpose(0, 2, 3, 1))
    for given_shape in ((1, 6, 6, 8), (6, 6, 8), (288,)):
        layout = find_layout(reference, candidate.reshape(given_shape))
        assert layout is not None
        assert layout.name.endswith("axis 1 padded 3 -> 8")
        assert np.array_equal(layout.apply(candidate.reshape(given_shape)), reference)


def test_what_is_cropped_must_be_padding() -> None:
    wide = numbers((1, 64, 5, 6))
    assert find_layout(wide[:, :60], wide) is None
    assert find_layout(wide[:, :, :4], wide) is None
    assert find_layout(numbers((1, 8)), numbers((2, 8))) is None
    spoilt = padded(wide, 1, 80)
    spoilt[0, 79, 4, 5] = np.nan
    assert find_layout(wide, spoilt) is None
    spoilt = padded(wide, 1, 80)
    spoilt[0, 79, 4, 5] = 1e-4  # next to nothing beside what is kept
    assert find_layout(wide, spoilt) is not None
    spoilt[0, 3, 4, 5] = np.nan  # what is kept may be broken, that is for the scores to say
    assert find_layout(wide, spoilt) is not None
    assert find_layout(wide[:, :60], np.full(wide.shape, "text")) is None


def blocks_of(array: Array, size: int) -> Array:
    count, channels, height, width = array.shape
    wide = padded(array, 1, math.ceil(channels / size) * size)
    return np.ascontiguousarray(wide.reshape(count, -1, size, height, width).transpose(0, 1, 3, 4, 2))


@pytest.mark.parametrize(
    ("channels", "note"), [(60, ", axis 1 padded 60 -> 64"), (64, ""), (3, ", axis 1 padded 3 -> 16")]
)
def test_channels_in_blocks(channels: int, note: str) -> None:
    reference = numbers((1, channels, 7, 9))
    candidate = blocks_of(reference, 16)
    layout = find_layout(reference, candidate)
    assert layout is not None
    assert layout.name == "NC1HWC0 -> NCHW" + note
    assert np.array_equal(layout.apply(candidate), reference)
    last = np.ascontiguousarray(reference.transpose(0, 2, 3, 1))
    layout = find_layout(last, candidate)
    assert layout is not None
    assert layout.name.startswith("NC1HWC0 -> NHWC")
    assert np.array_equal(layout.apply(candidate), last)


def test_channels_in_blocks_as_a_flat_buffer() -> None:
    reference = numbers((1, 60, 7, 9))
    candidate = blocks_of(reference, 16).reshape(-1)
    layout = find_layout(reference, candidate)
    assert layout is not None
    assert layout.name == "NC1HWC0 -> NCHW, axis 1 padded 60 -> 64, reshaped (4032) -> (1,4,7,9,16)"
    assert np.array_equal(layout.apply(candidate), reference)


def test_blocks_with_depth() -> None:
    reference = numbers((1, 20, 2, 3, 4))
    wide = padded(reference, 1, 32).reshape(1, 2, 16, 2, 3, 4)
    candidate = np.ascontiguousarray(wide.transpose(0, 3, 1, 4, 5, 2))
    layout = find_layout(reference, candidate)
    assert layout is not None
    assert layout.name == "NDC1HWC0 -> NCDHW, axis 1 padded 20 -> 32"
    assert np.array_equal(layout.apply(candidate), reference)


def test_shapes_that_nothing_explains() -> None:
    assert find_layout(numbers((1, 3, 4)), numbers((1, 5, 7))) is None
    assert find_layout(numbers((1, 8)), numbers((1, 4))) is None  # a candidate that lacks elements
    assert find_layout(np.zeros((0, 3)), np.zeros((3, 1))) is None
    assert find_layout(np.zeros((0, 3)), np.zeros((3, 0))) is None


def test_an_ambiguous_shape_needs_the_support_of_values() -> None:
    reference, other = numbers((1, 3, 8, 8)), numbers((1, 8, 8, 3), seed=7)
    assert find_layout(reference, other) is None
    # Where one order of axes fits, or where any gives the same scores, the shape decides.
    assert find_layout(numbers((1, 3, 8, 9)), numbers((1, 8, 9, 3), seed=7)).name == "NHWC -> NCHW"  # type: ignore[union-attr]
    assert find_layout(reference, np.zeros((1, 8, 8, 3))).name == "NHWC -> NCHW"  # type: ignore[union-attr]
    assert find_layout(np.ones_like(reference), other).name == "NHWC -> NCHW"  # type: ignore[union-attr]


def test_orders_that_explain_the_values_equally_well_give_the_usual_one() -> None:
    reference = np.broadcast_to(numbers((1, 3, 1, 1)), (1, 3, 8, 8))
    layout = find_layout(reference, np.ascontiguousarray(reference.transpose(0, 3, 2, 1)))
    assert layout is not None
    assert layout.name == "NHWC -> NCHW"


def test_integer_codes_show_the_layout_too() -> None:
    reference = numbers((1, 16, 8, 8))
    codes = np.round(reference.transpose(0, 2, 3, 1) * 30 + 7).astype(np.int8)
    assert find_layout(reference, codes).name == "NHWC -> NCHW"  # type: ignore[union-attr]


def test_values_that_are_no_numbers_have_no_layout_to_find() -> None:
    text = np.array([["a", "b", "c"], ["d", "e", "f"]])
    assert find_layout(text, text) is None
    assert find_layout(numbers((2, 3)), np.full((2, 3), np.nan)) is None
    assert find_layout(numbers((4, 1)), np.array(["a", "b", "c", "d"])).name == "reshaped (4) -> (4,1)"  # type: ignore[union-attr]


@pytest.mark.parametrize(("pictures", "odd"), [(0, False), (1, False), (2, True)])
def test_one_picture_among_rows_has_no_layout_of_its_own(pictures: int, odd: bool) -> None:
    """Rows lie as they do whether pictures are channels last or not: only other pictures can tell."""
    last = Layout("NHWC -> NCHW", axes=(0, 3, 1, 2))
    ours = {"conv": (1, 24, 4, 4), **{f"row{i}": (1, 16, 24) for i in range(5)}}
    ours |= {f"picture{i}": (1, 8, 6, 6) for i in range(pictures)}
    theirs = {**ours, "conv": (1, 4, 4, 24)}
    pairs = [TensorPair(name, name, "name", 1.0, last if name == "conv" else None) for name in ours]
    found = of_their_own(pairs, ours, theirs, ())
    assert bool(found) == odd
