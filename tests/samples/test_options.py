"""Options that make no sense are refused before anything is read."""

from typing import Any

import pytest

from roundoff.errors import BadInput
from roundoff.samples.options import ImageOptions, SampleOptions
from tests.samples.support import complaint


@pytest.mark.parametrize(
    ("given", "part", "fix"),
    [
        ({"color": "rgbb"}, "There is no image colour 'rgbb'", "did you mean 'rgb'?"),
        ({"layout": "chw"}, "There is no image layout 'chw'", "nchw"),
        ({"resize": "fit"}, "There is no image resize mode 'fit'", "choose one of: none, stretch"),
        ({"filter": "linear", "resize": "crop"}, "There is no image filter 'linear'", "bilinear"),
        ({"size": (8, 8)}, "The image size has no effect", "--image-resize stretch, crop or letterbox"),
        ({"filter": "area"}, "The image filter has no effect", "leave --image-filter out"),
        ({"resizer": "opencv"}, "The image resizer has no effect", "leave --image-resizer out"),
        ({"pad": 1, "resize": "crop"}, "The pad value 1 has no effect", "--image-resize letterbox"),
        ({"pad": 256, "resize": "letterbox"}, "The pad value 256 is not a pixel value", "from 0 to 255"),
        ({"size": (0, 8), "resize": "crop"}, "The image size 0x8 holds no pixels", "--image-size 224x224"),
        ({"std": (1.0, 0.0)}, "The std (1.0, 0.0) contains zero", "other than 0"),
        ({"scale": 0.0}, "The scale 0.0 contains zero", "other than 0"),
        ({"mean": float("nan")}, "The mean nan is not a finite number", "--mean plain numbers"),
        ({"mean": ()}, "The mean () is not a finite number", "--mean plain numbers"),
    ],
)
def test_image_options(given: dict[str, Any], part: str, fix: str) -> None:
    with pytest.raises(BadInput) as caught:
        ImageOptions(**given)
    complaint(caught, part, fix=fix)


@pytest.mark.parametrize(
    ("given", "part", "fix"),
    [
        ({"format": "jpg"}, "There is no sample format 'jpg'", "choose one of: auto"),
        ({"limit": 0}, "0 samples are none at all", "--samples"),
        ({"raw_shape": (1, 0)}, "The raw shape 1x0 holds no values", "--raw-shape 1x3x224x224"),
    ],
)
def test_sample_options(given: dict[str, Any], part: str, fix: str) -> None:
    with pytest.raises(BadInput) as caught:
        SampleOptions(**given)
    complaint(caught, part, fix=fix)


def test_given_options_are_those_that_differ() -> None:
    assert ImageOptions().given() == ()
    assert ImageOptions(color="bgr", mean=0.0).given() == ("color", "mean")
