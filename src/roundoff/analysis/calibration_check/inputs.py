"""What samples are by themselves: moments, a fingerprint and a small picture of each, without running a model."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.analysis.channel_axes import input_channel_axis
from roundoff.core.calibration_check import InputFacts
from roundoff.core.statistics import TensorStats
from roundoff.core.tensors import Array
from roundoff.preprocessing.ranking import Observation, leading, rank

__all__ = ["MOST_PICTURES", "TWICE", "InputRecord", "SampleFacts"]

TWICE = "pixels divided by 255 twice"
"""What values below 1/255 look like."""

# Blocks along an axis of the small picture, and the most values that are kept of one sample.
_BLOCKS, _MOST_VALUES = 16, 1024
# What is plainer than a formula of pixels.
_PLAINER = {
    "x / 255 / 255": TWICE,
    "x / 255": "0 to 1",
    "x / 127.5 - 1": "-1 to 1",
    "x": "pixels, 0 to 255",
}
# Of ways that cannot be told apart so many are named.
_MOST_WAYS = 3
# Small pictures are kept of so many samples; more are not compared with one another.
MOST_PICTURES = 4096


@dataclass(frozen=True, slots=True, eq=False)
class SampleFacts:
    """One sample.

    Attributes:
        index: Its number.
        digest: Hash of all its values; equal for samples that are the same.
        stats: Moments of each input.
        picture: A few averages of its values, float32 [n]; None when too many samples came before.
    """

    index: int
    digest: bytes
    stats: tuple[TensorStats, ...]
    picture: Array | None

    @property
    def nonfinite(self) -> int:
        """NaN and infinite elements."""
        return sum(each.nans + each.infs for each in self.stats)


class InputRecord:
    """What is remembered of the samples of one set: a few numbers each, and moments of all of them together."""

    def __init__(self) -> None:
        self.samples: list[SampleFacts] = []
        self.names: tuple[str, ...] = ()
        self._channels: dict[str, list[TensorStats]] = {}
        self._dtypes: dict[str, str] = {}

    def add(self, index: int, feed: Mapping[str, Array]) -> SampleFacts:
        """See one sample."""
        self.names = tuple(feed)
        digest = hashlib.sha256()
        stats, pictures = [], []
        wanted = len(self.samples) < MOST_PICTURES
        for name, array in feed.items():
            values = np.ascontiguousarray(array)
            digest.update(f"{name} {values.dtype} {values.shape}".encode())
            digest.update(values.tobytes())
            numbers = values if values.dtype.kind in "fiub" else values.astype(np.float32)
            stats.append(TensorStats.of(numbers))
            self._add_channels(name, numbers)
            if wanted:
                pictures.append(_picture(numbers, _MOST_VALUES // len(feed)))
        facts = SampleFacts(index, digest.digest(), tuple(stats), np.concatenate(pictures) if pictures else None)
        self.samples.append(facts)
        return facts

    def _add_channels(self, name: str, values: Array) -> None:
        self._dtypes[name] = values.dtype.name
        axis = input_channel_axis(values.shape) if values.ndim > 1 else 0
        rows = np.moveaxis(values, axis, 0) if values.ndim > 1 and values.shape[axis] <= 4 else values[None]
        parts = [TensorStats.of(np.ascontiguousarray(row)) for row in rows]
        known = self._channels.get(name)
        if known is None or len(known) != len(parts):
            self._channels[name] = parts
        else:
            self._channels[name] = [ours.merge(theirs) for ours, theirs in zip(known, parts, strict=True)]

    def inputs(self) -> tuple[InputFacts, ...]:
        """Each input of the model, over all samples."""
        return tuple(_facts(name, self._dtypes[name], self._channels[name]) for name in self.names)


def _facts(name: str, dtype: str, channels: Sequence[TensorStats]) -> InputFacts:
    seen = [each for each in channels if each.finite]
    low = min((each.minimum for each in seen), default=0.0)
    high = max((each.maximum for each in seen), default=0.0)
    means, stds = tuple(each.mean for each in channels), tuple(each.std for each in channels)
    return InputFacts(name, dtype, low, high, means, stds, _looks_like(dtype, low, high, len(means)))


def _looks_like(dtype: str, low: float, high: float, channels: int) -> str:
    """What such values usually are; the likeliest first where several ways would give them."""
    if not dtype.startswith("float") or low == high:
        return "constant" if low == high else ""
    seen = Observation.within(low, high, channels)
    # Both sides are the same set: how it was made is what every pair has in common.
    told = leading([each for each in rank(seen, seen) if each.same])
    names = dict.fromkeys(_PLAINER.get(each.given.name, each.given.formula) for each in told)
    return " | ".join(list(names)[:_MOST_WAYS])


def _picture(values: Array, most: int) -> Array:
    """Averages over blocks along the two longest axes; the values themselves where there are few."""
    finite = np.nan_to_num(values.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    if finite.size <= most:
        return finite.reshape(-1)
    longest = sorted(range(finite.ndim), key=lambda axis: -finite.shape[axis])[:2]
    for axis in longest:
        finite = _averaged(finite, axis)
    flat = finite.reshape(-1)
    if flat.size > most:
        flat = np.add.reduceat(flat, np.linspace(0, flat.size, most, endpoint=False).astype(np.int64))
    return np.asarray(flat, dtype=np.float32)


def _averaged(values: Array, axis: int) -> Array:
    size = values.shape[axis]
    blocks = min(_BLOCKS, size)
    starts = np.linspace(0, size, blocks, endpoint=False).astype(np.int64)
    counts = np.diff([*starts, size])
    shape = [1] * values.ndim
    shape[axis] = blocks
    return np.asarray(np.add.reduceat(values, starts, axis=axis) / counts.reshape(shape))
