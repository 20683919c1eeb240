"""Ways in which inputs are prepared, as functions: by one of them a slip is put right and so proven."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from roundoff.analysis.channel_axes import input_channel_axis
from roundoff.core.tensors import Array

__all__ = ["RESCALINGS", "Rescaling", "rescaled"]

# Of ImageNet, for pixels from 0 to 1, in the order red, green, blue.
_MEAN, _STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


@dataclass(frozen=True, slots=True)
class Rescaling:
    """One way to change inputs.

    Attributes:
        words: What to do to the samples, as the end of a sentence.
        change: Does it: values and their channel axis to values.
    """

    words: str
    change: Callable[[Array, int], Array]


def _along(numbers: Array, rank: int, axis: int) -> Array:
    shape = [1] * rank
    shape[axis] = -1
    return numbers.reshape(shape)


def _normalized(values: Array, axis: int) -> Array:
    if values.shape[axis] != _MEAN.size:
        return np.asarray((values - _MEAN.mean()) / _STD.mean())
    return np.asarray((values - _along(_MEAN, values.ndim, axis)) / _along(_STD, values.ndim, axis))


def _restored(values: Array, axis: int) -> Array:
    if values.shape[axis] != _MEAN.size:
        return np.asarray(values * _STD.mean() + _MEAN.mean())
    return np.asarray(values * _along(_STD, values.ndim, axis) + _along(_MEAN, values.ndim, axis))


RESCALINGS = (
    Rescaling("divide them by 255", lambda values, axis: values / 255),
    Rescaling("multiply them by 255", lambda values, axis: values * 255),
    Rescaling("bring them from 0..255 to -1..1", lambda values, axis: values / 127.5 - 1),
    Rescaling("bring them from -1..1 to 0..255", lambda values, axis: (values + 1) * 127.5),
    Rescaling("bring them from 0..1 to -1..1", lambda values, axis: values * 2 - 1),
    Rescaling("bring them from -1..1 to 0..1", lambda values, axis: (values + 1) / 2),
    Rescaling("subtract the mean of ImageNet and divide by its standard deviation", _normalized),
    Rescaling(
        "divide them by 255, then subtract the mean of ImageNet and divide by its standard deviation",
        lambda values, axis: _normalized(values / 255, axis),
    ),
    Rescaling("do not normalize them by the mean and standard deviation of ImageNet", _restored),
    Rescaling(
        "leave them as pixels, 0 to 255: do not normalize them by the mean and standard deviation of ImageNet",
        lambda values, axis: _restored(values, axis) * 255,
    ),
    Rescaling("turn the order of channels round: RGB for BGR", np.flip),
)
"""All of them; the first of several that do as well is taken."""


def rescaled(feed: Mapping[str, Array], how: Rescaling) -> dict[str, Array]:
    """A sample with its float inputs changed; others, such as masks and numbers of words, stay."""
    changed = {}
    for name, values in feed.items():
        if values.dtype.kind != "f" or values.ndim < 2:
            changed[name] = values
            continue
        exact = how.change(values.astype(np.float64), input_channel_axis(values.shape))
        changed[name] = np.ascontiguousarray(exact, dtype=values.dtype)
    return changed
