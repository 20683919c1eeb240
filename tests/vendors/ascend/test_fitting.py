"""Bringing a dumped tensor and its golden counterpart into one layout."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.tensors.ascend_dump.layouts import LaidOutValues, to_device
from roundoff.vendors.ascend.errors import Code, NotCompared
from roundoff.vendors.ascend.layouts import ComparisonContext, DeviceTensor, Fitted, GoldenTensor, fit


def how(**about: object) -> ComparisonContext:
    return ComparisonContext("op", lambda text: None, **about)  # type: ignore[arg-type]


def fractal(values: Array, *, columns: int = 16) -> Array:
    """Rows and columns in blocks, as FRACTAL_NZ has them."""
    *lead, rows, width = values.shape
    padded = np.pad(values, [*((0, 0) for _ in lead), (0, -rows % 16), (0, -width % columns)])
    split = padded.reshape(*lead, padded.shape[-2] // 16, 16, padded.shape[-1] // columns, columns)
    return np.moveaxis(split, -2, len(lead))


def same(found: Fitted) -> bool:
    return bool(np.array_equal(found.mine, found.golden))


@given(
    st.tuples(st.integers(1, 2), st.integers(1, 20), *[st.integers(1, 4)] * 2), st.sampled_from(["NCHW", "NHWC"])
)
def test_blocked_images_fit_golden_ones_of_either_layout(shape: tuple[int, ...], layout: str) -> None:
    image = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    stored = to_device(LaidOutValues(image, "NCHW"), "NC1HWC0", block=16)
    assert stored is not None
    golden = image if layout == "NCHW" else image.transpose(0, 2, 3, 1)
    for original in ((), golden.shape):
        found = fit(
            DeviceTensor(stored, "NC1HWC0", original), GoldenTensor(golden, layout, golden.shape), how=how()
        )
        assert same(found)
        assert not found.cut


@pytest.mark.parametrize("columns", [16, 32])
def test_fractals_of_any_block_fit(columns: int) -> None:
    golden = np.arange(20 * 40, dtype=np.float32).reshape(20, 40)
    found = fit(
        DeviceTensor(fractal(golden, columns=columns), "FRACTAL_NZ"),
        GoldenTensor(golden, "ND", golden.shape),
        how=how(),
    )
    assert same(found)


def test_fractals_of_four_axes_fit_unless_the_vendor_is_wanted() -> None:
    golden = np.arange(2 * 3 * 20 * 17, dtype=np.float32).reshape(2, 3, 20, 17)
    mine, target = DeviceTensor(fractal(golden), "FRACTAL_NZ"), GoldenTensor(golden, "NCHW", golden.shape)
    assert same(fit(mine, target, how=how()))
    with pytest.raises(NotCompared, match="Due to the different shapes"):
        fit(mine, target, how=how(strict=True))


@pytest.mark.parametrize(
    ("shape", "code"), [((40, 40), Code.FRACTAL), ((1, 20, 40), Code.FRACTAL), ((3, 40), Code.FRACTAL)]
)
def test_shapes_that_blocks_cannot_have_are_refused(shape: tuple[int, ...], code: Code) -> None:
    stored = fractal(np.zeros((20, 40), np.float32))
    with pytest.raises(NotCompared, match="The target shape") as caught:
        fit(DeviceTensor(stored, "FRACTAL_NZ"), GoldenTensor(np.zeros(shape, np.float32), "ND", shape), how=how())
    assert caught.value.code is code


def test_layouts_without_a_name_or_a_way_are_refused() -> None:
    values = np.zeros((1, 1, 2, 2, 16), np.float32)
    with pytest.raises(NotCompared, match="is not supported") as caught:
        fit(DeviceTensor(values, "NC1HWC0"), GoldenTensor(values, "NCL", ()), how=how())
    assert caught.value.code is Code.FORMAT
    with pytest.raises(NotCompared, match="There is no way from NC1HWC0") as caught:
        fit(DeviceTensor(values, "NC1HWC0"), GoldenTensor(values, "BN_WEIGHT", ()), how=how())
    assert caught.value.code is Code.FORMAT


def test_volumes_fit() -> None:
    golden = np.arange(2 * 5 * 3 * 2 * 2, dtype=np.float32).reshape(2, 5, 3, 2, 2)
    stored = to_device(LaidOutValues(golden, "NCDHW"), "NDC1HWC0", block=16)
    assert stored is not None
    assert same(fit(DeviceTensor(stored, "NDC1HWC0"), GoldenTensor(golden, "NCDHW", golden.shape), how=how()))


def test_a_smaller_golden_tensor_is_told_and_a_larger_refused() -> None:
    whole = np.arange(2 * 20 * 2 * 2, dtype=np.float32).reshape(2, 20, 2, 2)
    stored = to_device(LaidOutValues(whole, "NCHW"), "NC1HWC0", block=16)
    assert stored is not None
    for golden in (whole[:1], whole[:, :3]):
        found = fit(
            DeviceTensor(stored, "NC1HWC0", whole.shape), GoldenTensor(golden, "NCHW", golden.shape), how=how()
        )
        assert same(found)
        assert "Only a part was compared: (2, 20, 2, 2)" in found.cut
        assert fit(DeviceTensor(stored, "NC1HWC0"), GoldenTensor(golden, "NCHW", golden.shape), how=how()).cut
    larger = np.zeros((3, 20, 2, 2), np.float32)
    with pytest.raises(NotCompared) as caught:
        fit(DeviceTensor(stored, "NC1HWC0"), GoldenTensor(larger, "NCHW", larger.shape), how=how())
    assert caught.value.code is Code.SHAPE


def test_scalars_and_flat_tensors_fit_by_their_size() -> None:
    assert same(
        fit(DeviceTensor(np.ones((1, 1), np.float32), "NCHW"), GoldenTensor(np.ones(1), "ND", ()), how=how())
    )
    flat = np.arange(12, dtype=np.float32)
    found = fit(
        DeviceTensor(flat.reshape(3, 4), "ND"), GoldenTensor(flat.reshape(1, 3, 2, 2), "ND", ()), how=how()
    )
    assert (same(found), found.shape) == (True, (12,))
