"""Ways in which inputs are changed, as functions: by one of them a slip is put right and so proven."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.analysis.calibration_check.slips import Way, fills, slips
from roundoff.analysis.channel_axes import input_channel_axis
from roundoff.core.tensors import Array

__all__ = ["Rescaling", "from_one_to_other", "rescaled", "rescalings"]


@dataclass(frozen=True, slots=True)
class Rescaling:
    """One way to change inputs.

    Attributes:
        words: What to do to the samples, as the end of a sentence.
        change: Does it: values and their channel axis to values.
        seen: What they look like, x being a pixel from 0 to 255; empty when that is not known.
        wanted: What they should be.
        also: What else they may have to be, as far as this can tell.
    """

    words: str
    change: Callable[[Array, int], Array]
    seen: str = ""
    wanted: str = ""
    also: tuple[str, ...] = ()


_ALWAYS = (
    Rescaling("divide them by 255", lambda values, axis: values / 255),
    Rescaling("multiply them by 255", lambda values, axis: values * 255),
    Rescaling("turn the order of channels round: RGB for BGR", np.flip),
)
# Numbers of channels that pictures have.
_PICTURES = (1, 3)


def rescalings(feeds: Sequence[Mapping[str, Array]], *, surely: bool = False) -> Iterator[Rescaling]:
    """Ways that may put samples right: from what they look like to what networks are fed with, usual ones first.

    Args:
        feeds: Samples.
        surely: Only take them for what they are from black to white: odd scenes may look like anything else.
    """
    pictures = [
        (float(values.min()), float(values.max()), values.shape[input_channel_axis(values.shape)])
        for feed in feeds
        for values in feed.values()
        if values.dtype.kind == "f" and values.ndim == 4 and values.size
    ]
    channels = {each[2] for each in pictures}
    if len(channels) == 1 and channels <= set(_PICTURES):
        low, high = min(each[0] for each in pictures), max(each[1] for each in pictures)
        for one, other in slips(low, high, channels.pop()):
            if not surely or fills(one.usual, low, high):
                yield from_one_to_other(one, other)
    yield from _ALWAYS


def from_one_to_other(one: Way, other: Way) -> Rescaling:
    """Undo one preparation and do another."""

    def change(values: Array, axis: int) -> Array:
        return other.usual.made(one.usual.undone(values, axis), axis)

    words = f"make {other.words} of pixels x from 0 to 255, instead of {one.words}"
    return Rescaling(words, change, one.words, other.words, other.also)


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
