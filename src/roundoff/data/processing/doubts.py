"""What is legal about an input's processing, and hardly ever meant."""

import numpy as np

from roundoff.core.tensors import Array
from roundoff.data.processing.steps import InputProcessing

__all__ = ["doubts"]

_BYTES = 255
# Means of pixels from 0 to 255 are about 110; those of values from 0 to 1 are below this.
_HIGHEST_UNIT_MEAN = 1.0
# Where the numbers of every large set of photographs lie, channel by channel.
_MEAN_OF_PIXELS, _STD_OF_PIXELS = (85, 150), (45, 80)


def doubts(processing: InputProcessing) -> tuple[str, ...]:
    """What to ask the user about; each a sentence without its full stop. Empty when nothing looks wrong."""
    return (*_about_order(processing), *_about_scale(processing), *_about_mean(processing))


def _about_order(processing: InputProcessing) -> list[str]:
    formats = {processing.source_format, processing.model_format}
    if formats == {"RGB", "BGR"} and not processing.swaps_channels:
        source, model = processing.source_format, processing.model_format
        doubt = (
            f"the source is {source} and the model was trained with {model}, but channels are not swapped: the "
            f"compiled model still expects {model}, so feed it that, or swap the channels before"
        )
        return [doubt]
    return []


def _about_scale(processing: InputProcessing) -> list[str]:
    std = np.abs(processing.std or (1.0,))
    if not _receives_pixels(processing) or (std >= 1).all():
        return []
    shown = _numbers(processing.std)
    if np.allclose(std, 1 / _BYTES, rtol=0.05):
        return [f"std {shown} looks like 1/255: x is divided by std, so 0..1 needs std 255, not 1/255"]
    doubt = (
        f"std {shown} is below 1 while the source has whole pixel values from 0 to 255: values of up to "
        f"{_BYTES / std.min():.0f} come out; a std for values from 0 to 1 has to be multiplied by 255 "
        f"({_numbers(tuple(_BYTES * value for value in processing.std))})"
    )
    return [doubt]


def _about_mean(processing: InputProcessing) -> list[str]:
    if not processing.mean:
        return []
    mean, std = np.abs(processing.mean), np.abs(processing.std or (1.0,))
    found = []
    if _receives_pixels(processing) and 0 < mean.max() <= _HIGHEST_UNIT_MEAN:
        found.append(
            f"mean {_numbers(processing.mean)} lies between 0 and 1 while the source has pixel values from 0 to "
            f"255; for those it is {_numbers(tuple(_BYTES * value for value in processing.mean))}"
        )
    elif mean.max() > _HIGHEST_UNIT_MEAN and std.max() < _HIGHEST_UNIT_MEAN:
        found.append(
            f"mean {_numbers(processing.mean)} is of pixels from 0 to 255 and std {_numbers(processing.std)} of "
            "values from 0 to 1: both are subtracted from and divide the same numbers"
        )
    if _looks_like(mean, _STD_OF_PIXELS) and _looks_like(std, _MEAN_OF_PIXELS):
        found.append(
            f"mean {_numbers(processing.mean)} looks like the std of pixels and std "
            f"{_numbers(processing.std)} like their mean: were they exchanged?"
        )
    return found


def _looks_like(values: Array, limits: tuple[int, int]) -> bool:
    return bool((values > limits[0]).all() and (values < limits[1]).all())


def _receives_pixels(processing: InputProcessing) -> bool:
    """Whether whole numbers come in as they are."""
    return processing.source_dtype in ("U8", "U16") and (processing.scale, processing.zero_point) == (1.0, 0)


def _numbers(values: tuple[float, ...]) -> str:
    return "[" + ", ".join(f"{value:.4g}" for value in values) + "]"
