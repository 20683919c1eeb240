"""Device formats undone and made again."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.tensors import open_source
from roundoff.tensors.ascend_dump.header import read_dump
from roundoff.tensors.ascend_dump.layouts import LaidOutValues, as_format, inverse_layout, restore, to_device
from roundoff.tensors.ascend_dump.source import original_values
from tests.ascend_dumps import vectors

FOUR = ("NC1HWC0", "FRACTAL_Z", "NHWC1C0", "C1HWNC0")
FIVE = ("NDC1HWC0", "FRACTAL_Z_3D", "FRACTAL_Z_3D_TRANSPOSE")


def numbered(shape: tuple[int, ...]) -> Array:
    return np.arange(1, np.prod(shape) + 1, dtype=np.int32).reshape(shape)


def undone(array: Array, name: str, original: tuple[int, ...], **options: object) -> LaidOutValues:
    return restore(array, inverse_layout(name, array.shape, original=original, **options))  # type: ignore[arg-type]


@given(
    st.sampled_from(FOUR), st.tuples(*[st.integers(1, 20)] * 2, *[st.integers(1, 4)] * 2), st.sampled_from([4, 16])
)
def test_images_come_back(name: str, shape: tuple[int, ...], block: int) -> None:
    truth = numbered(shape)
    stored = to_device(LaidOutValues(truth, "NCHW"), name, block=block)
    assert stored is not None
    laid = undone(stored, name, shape, order="NCHW")
    assert laid.axes == "NCHW"
    np.testing.assert_array_equal(laid.array, truth)


@given(st.sampled_from(FIVE), st.tuples(*[st.integers(1, 20)] * 2, *[st.integers(1, 3)] * 3))
def test_volumes_come_back(name: str, shape: tuple[int, ...]) -> None:
    truth = numbered(shape)
    stored = to_device(LaidOutValues(truth, "NCDHW"), name, block=16)
    assert stored is not None
    np.testing.assert_array_equal(undone(stored, name, shape, order="NCDHW").array, truth)


@given(
    st.sampled_from(["FRACTAL_NZ", "FRACTAL_ZZ"]), st.lists(st.integers(1, 20), min_size=2, max_size=4).map(tuple)
)
def test_matrices_come_back_with_all_their_leading_axes(name: str, shape: tuple[int, ...]) -> None:
    truth = numbered(shape)
    stored = to_device(LaidOutValues(truth), name, block=16)
    assert stored is not None
    np.testing.assert_array_equal(undone(stored, name, shape).array, truth)


def test_the_order_of_the_original_axes_is_told_by_its_shape() -> None:
    truth = numbered((1, 3, 5, 20))
    stored = to_device(LaidOutValues(truth, "NHWC"), "NC1HWC0", block=16)
    assert stored is not None
    assert stored.shape == (1, 2, 3, 5, 16)
    laid = undone(stored, "NC1HWC0", (1, 3, 5, 20))
    assert laid.axes == "NHWC"
    np.testing.assert_array_equal(laid.array, truth)


def test_without_the_original_shape_padding_stays() -> None:
    laid = undone(numbered((1, 2, 3, 5, 16)), "NC1HWC0", ())
    assert (laid.axes, laid.array.shape, laid.restored) == ("NCHW", (1, 32, 3, 5), True)


@pytest.mark.parametrize(
    ("name", "shape", "original"),
    [("NC1HWC0", (1, 2, 3, 5, 16), (1, 99, 3, 5)), ("FRACTAL_Z", (9, 2, 16, 16), ()),
     ("FRACTAL_NZ", (3, 1), (1, 2)), ("FRACTAL_NZ", (1, 1, 16, 16), (17, 3)),
     ("FRACTAL_Z_WINO", (1, 1, 2, 9, 8, 16), (8, 16, 3, 3))],
)  # fmt: skip
def test_what_cannot_be_undone_stays_as_the_device_had_it(
    name: str, shape: tuple[int, ...], original: tuple[int, ...]
) -> None:
    laid = undone(numbered(shape), name, original)
    assert (laid.array.shape, laid.restored) == (shape, False)


@given(st.integers(2, 6), st.integers(1, 9), st.integers(1, 20))
def test_grouped_weights_come_back(groups: int, outputs: int, inputs: int) -> None:
    truth = numbered((groups * outputs, inputs, 2, 1))
    together = min(np.lcm(16 // np.gcd(inputs, 16), 16 // np.gcd(outputs, 16)), groups)
    blocks, into, out = -(-groups // together), -(-together * inputs // 16), -(-together * outputs // 16)
    stored = np.zeros((blocks, into, 2, 1, out, 16, 16), np.int32)
    for index, value in np.ndenumerate(truth):
        block, place = divmod(index[0] // outputs, together)
        row, column = place * outputs + index[0] % outputs, place * inputs + index[1]
        stored[block, column // 16, index[2], index[3], row // 16, row % 16, column % 16] = value
    device = stored.reshape(blocks * into * 2, out, 16, 16)
    np.testing.assert_array_equal(undone(device, "FRACTAL_Z", truth.shape, groups=groups).array, truth)
    laid = undone(device, "FRACTAL_Z", (2, 1, inputs, groups * outputs), groups=groups)
    if laid.axes == "HWCN":  # small sizes fit other orders, too
        np.testing.assert_array_equal(laid.array, truth.transpose(2, 3, 1, 0))
    else:
        assert inputs <= 2 or outputs * groups <= 2


def test_a_weight_of_four_channels_comes_back() -> None:
    truth = numbered((20, 3, 3, 3))
    stored = np.zeros((48, 32), np.int32)
    for (n, c, h, w), value in np.ndenumerate(truth):
        stored[(h * 3 + w) * 4 + c, n] = value
    device = stored.reshape(3, 16, 2, 16).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(undone(device, "FRACTAL_Z_C04", truth.shape).array, truth)


def test_a_recurrent_weight_comes_back() -> None:
    inputs, states = 20, 18
    truth = numbered((inputs + states, 4 * states))
    stored = np.zeros((32 + 32, 4 * 32), np.int32)
    for (row, column), value in np.ndenumerate(truth):
        place = row if row < inputs else row - inputs + 32
        stored[place, column // states * 32 + column % states] = value
    device = stored.reshape(4, 16, 8, 16).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(undone(device, "FRACTAL_ZN_LSTM", truth.shape).array, truth)


def test_a_matrix_weight_comes_back() -> None:
    truth = numbered((20, 40))
    padded = np.pad(truth, [(0, 12), (0, 8)])
    device = padded.reshape(2, 16, 3, 16).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(undone(device, "FRACTAL_Z", truth.shape).array, truth)


def test_samples_of_the_vendor_come_out_as_their_truth() -> None:
    folder = vectors("format")
    cases = json.loads((folder / "cases.json").read_text())
    assert cases
    for case in cases:
        path = folder / case["dump"]
        laid = original_values(path, read_dump(path).outputs[0])
        truth = np.load(folder / f"{path.name.split('.')[1]}.original.npy")
        np.testing.assert_array_equal(laid.array, truth)
        if case["true_shape"] is not None:
            found = as_format(laid, case["target"], block=16)
            assert found is not None
            assert list(found.shape) == case["true_shape"]
    assert all(not info.problem for info in open_source(folder / "dump").tensors)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("shape", [(2, 3, 20, 17), (1, 1, 16, 16), (3, 2, 1, 40)])
def test_matrices_of_four_axes_get_the_letters_that_are_asked_for(layout: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    stored = to_device(LaidOutValues(array, layout), "FRACTAL_NZ", block=16)
    assert stored is not None
    back = restore(stored, inverse_layout("FRACTAL_NZ", stored.shape, original=shape, order=layout))
    assert back.axes == layout
    np.testing.assert_array_equal(back.array, array)
    other = "NHWC" if layout == "NCHW" else "NCHW"
    turned = as_format(back, other, block=16)
    axes = (0, 2, 3, 1) if layout == "NCHW" else (0, 3, 1, 2)
    np.testing.assert_array_equal(turned, array.transpose(axes))


@pytest.mark.parametrize(
    ("groups", "outputs", "inputs"), [(2, 8, 3), (5, 3, 4), (32, 1, 1), (3, 20, 17), (7, 2, 16)]
)
def test_grouped_weights_are_written_as_they_are_read(groups: int, outputs: int, inputs: int) -> None:
    array = np.random.default_rng(0).normal(size=(groups * outputs, inputs, 3, 2)).astype(np.float16)
    stored = to_device(LaidOutValues(array, "NCHW"), "FRACTAL_Z", block=16, groups=groups)
    assert stored is not None
    assert np.count_nonzero(stored) == array.size
    way = inverse_layout("FRACTAL_Z", stored.shape, original=array.shape, groups=groups)
    np.testing.assert_array_equal(restore(stored, way).array, array)
