"""YUV and colour orders, against OpenCV and the definitions."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.preprocessing.colours import (
    MATRICES,
    PACKED_FORMATS,
    Csc,
    PackedFormat,
    from_yuv,
    packed,
    packed_shape,
    reordered,
    unpacked,
)
from tests.preprocessing.yuv import to_yuv
from tests.samples.support import complaint

VECTORS = Path(__file__).resolve().parents[3] / "shared" / "vectors" / "pulsar2" / "derived" / "csc.json"
CODES = {
    "YUV420SP": cv2.COLOR_YUV2RGB_NV12,
    "YVU420SP": cv2.COLOR_YUV2RGB_NV21,
    "YUYV422": cv2.COLOR_YUV2RGB_YUYV,
    "UYVY422": cv2.COLOR_YUV2RGB_UYVY,
}


def stored(height: int, width: int, color: PackedFormat, *, seed: int = 0) -> Array:
    shape = packed_shape(height, width, color)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("color", PACKED_FORMATS)
def test_unpacking_and_limited_range_as_opencv(color: PackedFormat) -> None:
    values = np.maximum(stored(12, 10, color), 16)  # below, OpenCV cuts luma at black first
    expected = cv2.cvtColor(values[..., 0] if values.shape[-1] == 1 else values, CODES[color])
    got = from_yuv(unpacked(values, color), Csc("limited-range"))
    # OpenCV rounds, and has a digit more of the same coefficients.
    assert np.abs(got - expected).max() < 1


@pytest.mark.parametrize("color", PACKED_FORMATS)
@settings(max_examples=20, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_packing_undoes_unpacking(color: PackedFormat, high: int, wide: int, seed: int) -> None:
    values = stored(2 * high, 2 * wide, color, seed=seed)
    np.testing.assert_array_equal(packed(unpacked(values, color), color), values)
    batch = np.stack([values, values[::-1]])
    np.testing.assert_array_equal(unpacked(batch, color)[0], unpacked(values, color))


def test_the_order_of_bytes() -> None:
    planes = np.array([[[10, 1, 2], [20, 1, 2]], [[30, 1, 2], [40, 1, 2]]], np.uint8)
    assert packed(planes, "YUV420SP").ravel().tolist() == [10, 20, 30, 40, 1, 2]
    assert packed(planes, "YVU420SP").ravel().tolist() == [10, 20, 30, 40, 2, 1]
    assert packed(planes, "YUYV422").ravel().tolist() == [10, 1, 20, 2, 30, 1, 40, 2]
    assert packed(planes, "UYVY422").ravel().tolist() == [1, 10, 2, 20, 1, 30, 2, 40]


def test_shared_chroma_is_the_mean() -> None:
    planes = np.zeros((2, 2, 3), np.uint8)
    planes[..., 1] = [[1, 2], [4, 4]]
    assert packed(planes, "YUV420SP")[2, 0, 0] == 3
    assert packed(planes, "YUYV422")[:, 0, 1].tolist() == [2, 4]


def test_odd_sizes_and_wrong_shapes_are_refused() -> None:
    with pytest.raises(BadInput) as caught:
        packed_shape(3, 4, "YUV420SP")
    complaint(caught, "3x4 pixels cannot be YUV420SP", fix="even")
    with pytest.raises(BadInput) as caught:
        unpacked(np.zeros((6, 4, 3)), "YUV420SP")
    complaint(caught, "[6, 4, 3] is no picture in YUV420SP", fix="height, width and format")
    with pytest.raises(BadInput):
        unpacked(np.zeros((6, 4)), "YUYV422")


@pytest.mark.parametrize("name", MATRICES)
def test_white_black_and_back(name: str) -> None:
    low, high = (16, 235) if "limited" in name else (0, 255)
    mode = Csc("matrix", tuple(v / 256 if i % 4 == 3 else v for i, v in enumerate(MATRICES[name])))
    grays = np.array([[low, 128, 128], [high, 128, 128]])
    np.testing.assert_allclose(from_yuv(grays, mode), [[0] * 3, [255] * 3], atol=0.15)
    colors = np.random.default_rng(0).uniform(0, 255, (20, 3))
    np.testing.assert_allclose(from_yuv(to_yuv(colors, name), mode), colors, atol=1e-9)


def test_rows_are_reversed_for_blue_first_unless_the_user_wrote_them() -> None:
    planes = np.array([[81.0, 90.0, 240.0]])
    for mode in ("full-range", "limited-range"):
        csc = Csc(mode)
        np.testing.assert_array_equal(from_yuv(planes, csc, reverse=True), from_yuv(planes, csc)[:, ::-1])
    own = Csc("matrix", (1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0))
    np.testing.assert_array_equal(from_yuv(planes, own, reverse=True), planes)


@pytest.mark.skipif(not VECTORS.is_file(), reason="the vendor's numbers are not at hand")
def test_the_vendors_numbers() -> None:
    given_ = json.loads(VECTORS.read_text())
    planes, rgb = np.array(given_["yuv"], float), given_["rgb"]
    over = tuple(np.ravel(given_["matrices"]["limited_bt601_bias_over_256"]))
    for key, csc in (
        ("limited_bt601_0_255", Csc("limited-range")),
        ("limited_bt601_bias_over_256", Csc("matrix", over)),
        ("full_jfif_0_255", Csc("full-range")),
    ):
        np.testing.assert_allclose(from_yuv(planes, csc), rgb[key], atol=1e-3)


def test_matrices_out_of_their_limits_are_refused_all_at_once() -> None:
    with pytest.raises(BadInput) as caught:
        Csc("matrix", MATRICES["BT.601 limited range"])
    complaint(caught, "number 4 is -222.912, not between -9 and 8; number 8 is 135.616", fix="units of 256")
    with pytest.raises(BadInput) as caught:
        Csc("matrix", (1.0, 2.0))
    complaint(caught, "has 2 numbers", fix="give 12")
    with pytest.raises(BadInput) as caught:
        Csc("full-range", (1.0,) * 12)
    complaint(caught, "does not use it", fix="leave the matrix out")
    with pytest.raises(BadInput):
        Csc("matrix", (float("nan"), *(0.0,) * 11))


def test_channels_are_reordered() -> None:
    pixels = np.arange(8).reshape(1, 2, 4)
    assert reordered(pixels, "RGBA", "BGR")[0].tolist() == [[2, 1, 0], [6, 5, 4]]
    assert reordered(pixels[..., :1], "GRAY", "RGB")[0].tolist() == [[0] * 3, [4] * 3]
    assert reordered(pixels, "RGBA", "RGBA") is pixels
    gray = reordered(np.full((1, 1, 3), 77, np.uint8), "BGR", "GRAY")
    assert gray.dtype == np.uint8
    assert gray.tolist() == [[[77]]]
    with pytest.raises(BadInput) as caught:
        reordered(pixels, "RGBA", "RAW")
    complaint(caught, "RGBA cannot become RAW", fix="convert")
