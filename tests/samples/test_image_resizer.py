"""Pictures resized as OpenCV does it."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from roundoff.samples.images import place
from tests.samples.support import spec
from tests.samples.test_images import picture, pixels, read


@pytest.mark.parametrize("mode", ["stretch", "crop", "letterbox"])
@pytest.mark.parametrize("filter_", ["nearest", "bilinear", "area"])
def test_opencvs_resizing_to_the_bit(tmp_path: Path, mode: str, filter_: str) -> None:
    array = pixels(31, 44)
    path = picture(tmp_path / "a.png", array)
    options = {"resize": mode, "filter": filter_, "resizer": "opencv"}
    got = read(path, spec("x", 1, 12, 16, 3, dtype="uint8"), **options)[0]
    where = place((31, 44), (12, 16), canvas=(12, 16), mode=mode)  # type: ignore[arg-type]
    flags = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "area": cv2.INTER_AREA}
    scaled = cv2.resize(array, where.resized[::-1], interpolation=flags[filter_])
    top, left = where.offset
    if mode == "crop":
        expected = scaled[-top : -top + 12, -left : -left + 16]
    else:
        expected = np.full((12, 16, 3), 114, np.uint8)
        expected[top : top + scaled.shape[0], left : left + scaled.shape[1]] = scaled
    np.testing.assert_array_equal(got, expected)
