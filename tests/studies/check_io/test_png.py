"""Pictures that any viewer reads."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from roundoff.studies.check_io.study import png_bytes


@given(
    height=st.integers(1, 9), width=st.integers(1, 9), channels=st.sampled_from((1, 3)), seed=st.integers(0, 99)
)
def test_what_is_written_is_read(height: int, width: int, channels: int, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)
    read = np.asarray(Image.open(io.BytesIO(png_bytes(pixels))))
    assert np.array_equal(read.reshape(pixels.shape), pixels)


@pytest.mark.parametrize(
    "pixels", [np.zeros((2, 2, 2), np.uint8), np.zeros((2, 0, 3), np.uint8), np.zeros((2, 2, 3))]
)
def test_what_is_no_picture_is_refused(pixels: np.ndarray) -> None:
    with pytest.raises(ValueError, match="no picture"):
        png_bytes(pixels)
