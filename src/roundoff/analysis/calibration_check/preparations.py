"""How people turn pixels into inputs: each way is a mean and a scale for every channel."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.core.calibration_check import InputFacts
from roundoff.core.tensors import Array

__all__ = ["PREPARATIONS", "Preparation", "could_be", "fills", "slip_between", "slips"]

# Of ImageNet, for pixels from 0 to 255, in the order red, green, blue; and those of the first Caffe networks.
_MEAN, _STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
_CAFFE = (122.68, 116.67, 104.01)
# Of MNIST and Fashion-MNIST, for the same.
_GREY = (("MNIST", 33.3285, 78.5655), ("Fashion-MNIST", 72.93, 90.015))
_PIXELS = 255.0
# Resizing goes a little beyond pixels; what fills less of them than this is something else.
_BEYOND, _FILLED = 3.0, 85.0

# Another pair must fit better by so much than a more usual one.
_CLEARLY = 0.85
# Two sets are prepared otherwise when they are at least so far apart, when not more than this is left of it, and
# when their ends then agree to this part of the range.
_APART, _LEFT, _BETTER, _ENDS = 0.6, 0.5, 2.0, 0.35
# Sets of photographs hold black and white, up to so many pixels; those that do not may be of odd scenes.
_BLACK, _WHITE = 20.0, 235.0

Numbers = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Preparation:
    """One way: (x - mean) / std of a pixel x from 0 to 255.

    Attributes:
        words: The way as a formula.
        mean: What is subtracted, one number or one for each of three channels.
        std: What the rest is divided by, likewise.
        proper: Whether networks are trained so; otherwise it is a slip.
    """

    words: str
    mean: Numbers
    std: Numbers
    proper: bool = True

    def numbers(self, channels: int) -> tuple[Array, Array]:
        """Mean and scale of each channel; their averages where there are not three."""
        fits = channels == len(self.mean) or len(self.mean) == 1
        mean, std = (np.array(each) if fits else np.array([np.mean(each)]) for each in (self.mean, self.std))
        return np.broadcast_to(mean, channels), np.broadcast_to(std, channels)


def _both_orders(words: str, mean: Numbers, std: Numbers, *, proper: bool = True) -> list[Preparation]:
    return [
        Preparation(words, mean, std, proper=proper),
        Preparation(f"{words}, channels being BGR", mean[::-1], std[::-1], proper=proper),
    ]


def _times(numbers: Numbers, factor: float) -> Numbers:
    return tuple(each * factor for each in numbers)


_ONES = (1.0, 1.0, 1.0)
PREPARATIONS: tuple[Preparation, ...] = (
    Preparation("x/255", (0.0,), (_PIXELS,)),
    Preparation("(x-127.5)/127.5", (127.5,), (127.5,)),
    *_both_orders("(x/255-mean)/std with mean and std of ImageNet", _MEAN, _STD),
    Preparation("x, plain pixels", (0.0,), (1.0,)),
    *_both_orders("x-mean with the mean of ImageNet, not divided", _CAFFE, _ONES),
    *_both_orders("x/255-mean with the mean of ImageNet, not divided by its std", _MEAN, _times(_ONES, _PIXELS)),
    Preparation("x-128", (128.0,), (1.0,)),
    Preparation("x/255-0.5", (127.5,), (_PIXELS,)),
    *(Preparation(f"(x/255-mean)/std with mean and std of {name}", (mean,), (std,)) for name, mean, std in _GREY),
    Preparation("x/255/255, divided twice", (0.0,), (_PIXELS**2,), proper=False),
    *_both_orders(
        "(x-mean)/std with the small mean and std of ImageNet, those for x/255",
        _times(_MEAN, 1 / _PIXELS),
        _times(_STD, 1 / _PIXELS),
        proper=False,
    ),
    *_both_orders(
        "(x/255-mean)/std with the large mean and std of ImageNet, those for x",
        _times(_MEAN, _PIXELS),
        _times(_STD, _PIXELS),
        proper=False,
    ),
)
"""All of them, the most usual first."""


def could_be(preparation: Preparation, low: float, high: float) -> bool:
    """Whether values from `low` to `high` can come of pixels in this way, and fill enough of them."""
    mean, std = np.array(preparation.mean), np.array(preparation.std)
    bottom, top = float(np.min(low * std + mean)), float(np.max(high * std + mean))
    inside = float(np.max(low * std + mean)) >= -_BEYOND and float(np.min(high * std + mean)) <= _PIXELS + _BEYOND
    return inside and top - bottom > _FILLED and top > _FILLED


def fills(preparation: Preparation, low: float, high: float) -> bool:
    """Whether values from `low` to `high` are pixels from black to white, prepared in this way."""
    mean, std = np.array(preparation.mean), np.array(preparation.std)
    return float(np.mean(low * std + mean)) <= _BLACK and float(np.mean(high * std + mean)) >= _WHITE


def slips(low: float, high: float, channels: int) -> Sequence[tuple[Preparation, Preparation]]:
    """Pairs of how values may have been prepared, and how else they may have to be.

    Args:
        low: Smallest value.
        high: Largest value.
        channels: How many channels there are; those of MNIST have one.
    """
    grey = channels == 1
    known = [each for each in PREPARATIONS if (grey or "MNIST" not in each.words)
             and not (grey and "BGR" in each.words)]  # fmt: skip
    seen = [each for each in known if could_be(each, low, high)]
    return [(one, other) for other in known if other.proper for one in seen if one is not other]


def slip_between(ours: InputFacts, theirs: InputFacts) -> tuple[Preparation, Preparation] | None:
    """How one set of samples and another seem to be prepared, where they are not prepared alike.

    Args:
        ours: An input in one set.
        theirs: The same input in the other.

    Returns:
        None when they may well be prepared alike, or in no known way.
    """
    mean, std = np.array(ours.means), np.array(ours.stds)
    other_mean, other_std = np.array(theirs.means), np.array(theirs.stds)
    if mean.size not in (1, 3) or mean.size != other_mean.size or not (np.all(std > 0) and np.all(other_std > 0)):
        return None

    def apart(values: Array, spread: Array) -> float:
        shift = np.abs(values - other_mean) / np.maximum(other_std, spread)
        return float(np.median(shift) + np.median(np.abs(np.log(spread / other_std))))

    before = apart(mean, std)
    best: tuple[float, tuple[Preparation, Preparation] | None] = (min(_LEFT, before / _BETTER), None)
    for one, other in slips(ours.low, ours.high, mean.size) if before >= _APART else ():
        (shift, scale), (other_shift, other_scale) = one.numbers(mean.size), other.numbers(mean.size)
        left = apart((mean * scale + shift - other_shift) / other_scale, std * scale / other_scale)
        ends = [float(np.mean((end * scale + shift - other_shift) / other_scale)) for end in (ours.low, ours.high)]
        width = theirs.high - theirs.low
        fits = max(abs(ends[0] - theirs.low), abs(ends[1] - theirs.high)) <= _ENDS * width
        sure = (
            fills(one, ours.low, ours.high)
            and fills(other, theirs.low, theirs.high)
            and could_be(other, theirs.low, theirs.high)
        )
        if left < best[0] and fits and sure:
            best = left * _CLEARLY, (one, other)
    return best[1]
