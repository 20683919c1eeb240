"""Resizing against the libraries it imitates."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from roundoff.core.tensors import Array
from roundoff.preprocessing.resize import Kernel, Resampling, resized

OPENCV = {
    "nearest": cv2.INTER_NEAREST,
    "bilinear": cv2.INTER_LINEAR,
    "bicubic": cv2.INTER_CUBIC,
    "area": cv2.INTER_AREA,
}
PILLOW = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "area": Image.Resampling.BOX,
}
# What OpenCV may be off by in bytes: with IPP its bicubic rounds in its own way, its area sums in float32.
BYTES_OFF = {"nearest": 0, "bilinear": 0, "bicubic": 1, "area": 1}

sizes = st.integers(1, 48)
shapes = st.tuples(sizes, sizes, sizes, sizes, st.sampled_from([1, 3, 4]))
# OpenCV treats whole ratios in its own way.
ratios = st.tuples(st.integers(1, 16), st.integers(1, 16), st.sampled_from([(2, 2), (3, 3), (4, 2), (5, 1)])).map(
    lambda drawn: (drawn[0] * drawn[2][0], drawn[1] * drawn[2][1], drawn[0], drawn[1], 3)
)


def picture(height: int, width: int, channels: int, *, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def by_opencv(pixels: Array, size: tuple[int, int], kernel: str) -> Array:
    result: Array = cv2.resize(pixels, size[::-1], interpolation=OPENCV[kernel])
    return result.reshape(*size, -1)


@pytest.mark.parametrize("kernel", OPENCV)
@settings(max_examples=60, deadline=None)
@given(st.one_of(shapes, ratios), st.integers(0, 1000))
def test_bytes_as_opencv(kernel: Kernel, shape: tuple[int, int, int, int, int], seed: int) -> None:
    height, width, *size, channels = shape
    pixels = picture(height, width, channels, seed=seed)
    got = resized(pixels, (size[0], size[1]), Resampling(kernel))
    assert got.dtype == np.uint8
    expected = by_opencv(pixels, (size[0], size[1]), kernel)
    assert np.abs(got.astype(int) - expected).max() <= BYTES_OFF[kernel]


@pytest.mark.parametrize("kernel", OPENCV)
@settings(max_examples=40, deadline=None)
@given(st.one_of(shapes, ratios), st.integers(0, 1000))
def test_floats_as_opencv(kernel: Kernel, shape: tuple[int, int, int, int, int], seed: int) -> None:
    height, width, *size, channels = shape
    pixels = np.random.default_rng(seed).random((height, width, channels), dtype=np.float32)
    got = resized(pixels, (size[0], size[1]), Resampling(kernel))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, by_opencv(pixels, (size[0], size[1]), kernel), atol=1e-5)


def test_bicubic_bytes_without_ipp_are_opencvs_to_the_bit_but_for_ties() -> None:
    was = cv2.ipp.useIPP()
    cv2.ipp.setUseIPP(False)
    try:
        pixels = picture(67, 45, 3)
        expected = by_opencv(pixels, (120, 31), "bicubic")
    finally:
        cv2.ipp.setUseIPP(was)
    assert np.mean(resized(pixels, (120, 31), Resampling("bicubic")) != expected) < 1e-3


@pytest.mark.parametrize("kernel", PILLOW)
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 48), st.integers(1, 48), st.integers(1, 48), st.booleans())
def test_antialiased_lines_as_pillow(kernel: Kernel, length: int, target: int, lines: int, across: bool) -> None:
    """One way only: in which order the two ways go depends on Pillow's version."""
    pixels = picture(lines, length, 1) if across else picture(length, lines, 1)
    size = (lines, target) if across else (target, lines)
    expected = np.asarray(Image.fromarray(pixels[..., 0]).resize(size[::-1], PILLOW[kernel]))
    np.testing.assert_array_equal(resized(pixels, size, Resampling(kernel, "antialiased"))[..., 0], expected)


@pytest.mark.parametrize("kernel", ["bilinear", "bicubic"])
def test_antialiased_floats_are_near_the_bytes(kernel: Kernel) -> None:
    pixels = np.clip(picture(40, 30, 3), 60, 190)
    whole = resized(pixels, (17, 13), Resampling(kernel, "antialiased"))
    exact = resized(pixels.astype(np.float32), (17, 13), Resampling(kernel, "antialiased"))
    assert np.abs(whole - exact).max() < 1.2


def test_asymmetric_places_pixel_x_at_x_times_the_ratio() -> None:
    line = np.arange(6, dtype=np.float32).reshape(1, 6, 1)
    got = resized(line, (1, 4), Resampling("bilinear", "asymmetric"))
    np.testing.assert_allclose(got[0, :, 0], [0, 1.5, 3, 4.5])


def test_aligned_corners_keep_the_first_and_last_pixel() -> None:
    line = np.arange(6, dtype=np.float32).reshape(1, 6, 1)
    got = resized(line, (1, 11), Resampling("bilinear", "align-corners"))
    np.testing.assert_allclose(got[0, :, 0], np.arange(11) / 2)
    got = resized(line, (1, 3), Resampling("nearest", "align-corners"))
    np.testing.assert_array_equal(got[0, :, 0], [0, 3, 5])


@settings(max_examples=40, deadline=None)
@given(
    shapes, st.sampled_from(["opencv", "antialiased", "asymmetric", "align-corners"]), st.sampled_from([*OPENCV])
)
def test_a_constant_picture_stays_constant(shape: tuple[int, int, int, int, int], style: str, kernel: str) -> None:
    height, width, *size, channels = shape
    if style in ("asymmetric", "align-corners") and kernel == "area":
        kernel = "bilinear"
    how = Resampling(kernel, style)  # type: ignore[arg-type]
    flat = np.full((height, width, channels), 93, np.uint8)
    np.testing.assert_array_equal(resized(flat, (size[0], size[1]), how), 93)
    np.testing.assert_allclose(resized(flat.astype(np.float64), (size[0], size[1]), how), 93, rtol=1e-6)


def test_the_same_size_changes_nothing_and_styles_have_names() -> None:
    pixels = picture(5, 4, 3)
    assert resized(pixels, (5, 4)) is pixels
    assert str(Resampling().words) == "bilinear (OpenCV)"
    assert str(Resampling("nearest", "antialiased").words) == "nearest (Pillow: half-pixel centres)"
    assert str(Resampling("nearest", "align-corners").words) == "nearest with aligned corners"
