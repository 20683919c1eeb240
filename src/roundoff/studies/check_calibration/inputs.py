"""What samples are by themselves: moments, a fingerprint and a small picture of each, without running a model."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.shapes import input_channel_axis
from roundoff.measure.statistics import TensorStats
from roundoff.messages.message import NOTHING, Message, joined, message
from roundoff.preprocessing.conventions import InputObservation, leading, rank
from roundoff.studies.check_calibration.result import InputFacts

TWICE = message("check_calibration.like_twice")
"""What values below 1/255 look like."""

# Blocks along an axis of the small picture, and the most values that are kept of one sample.
_BLOCKS, _MOST_VALUES = 16, 1024
# What is plainer than a formula of pixels.
_PLAINER = {
    "x / 255 / 255": TWICE,
    "x / 255": message("check_calibration.like_unit"),
    "x / 127.5 - 1": message("check_calibration.like_signed"),
    "x": message("check_calibration.like_pixels"),
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


def _looks_like(dtype: str, low: float, high: float, channels: int) -> Message:
    """What such values usually are; the likeliest first where several ways would give them."""
    if not dtype.startswith("float") or low == high:
        return message("check_calibration.like_constant") if low == high else NOTHING
    seen = InputObservation.within(low, high, channels)
    # Both sides are the same set: how it was made is what every pair has in common.
    told = leading([each for each in rank(seen, seen) if each.same])
    ways = list(dict.fromkeys(_PLAINER.get(each.given.name, each.given.formula) for each in told))
    return joined(ways[:_MOST_WAYS], key="terminal.alternatives") if ways else NOTHING


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


# Samples that are the same, or nearly, and samples that are unlike all others.

# Two samples are nearly the same when their squared distance is below this share of what is usual.
_NEAR = 0.01
# With fewer numbers, samples come close to each other by chance.
_FEWEST_VALUES = 16
# All samples together hardly differ when what they differ by is below this share of what they have in common.
_HARDLY = 5e-4
_ROWS = 512


def exact_groups(samples: Sequence[SampleFacts]) -> list[tuple[int, ...]]:
    """Samples whose values are all the same, in groups of two or more."""
    groups: dict[bytes, list[int]] = defaultdict(list)
    for each in samples:
        groups[each.digest].append(each.index)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def near_groups(samples: Sequence[SampleFacts]) -> list[tuple[int, ...]]:
    """Samples that are nearly the same as others, in groups; those that are exactly the same count as one.

    Distances are measured from what samples have in common, in units of what they are usually apart.
    """
    unique = list({each.digest: each for each in reversed(samples)}.values())[::-1]
    kept, pictures = _pictures(unique)
    if len(kept) < 3 or pictures.shape[1] < _FEWEST_VALUES:
        return []
    usual = _usual(pictures)
    if not usual > 0:
        return []
    parent = list(range(len(kept)))

    def root(place: int) -> int:
        while parent[place] != place:
            place = parent[place]
        return place

    for start, squares in _squared_distances(pictures, pictures):
        for row, column in zip(*np.nonzero(squares < 2 * usual * _NEAR), strict=True):
            if start + row < column:
                parent[root(int(column))] = root(int(start + row))
    groups: dict[int, list[int]] = defaultdict(list)
    for place, facts in enumerate(kept):
        groups[root(place)].append(facts.index)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def hardly_differ(samples: Sequence[SampleFacts]) -> bool:
    """Whether all samples are so much alike that they could be one; they are not equal, though."""
    kept, pictures = _pictures(samples)
    if len(kept) < 3 or pictures.shape[1] < _FEWEST_VALUES:
        return False
    common = np.median(pictures, axis=0)
    structure = float(np.square(common - common.mean()).sum())
    return 0 < _usual(pictures) < _HARDLY * structure


def nearest_distances(samples: Sequence[SampleFacts]) -> Array:
    """How far each sample is from the nearest other one, squared; those without a small picture are left out."""
    _, pictures = _pictures(samples)
    found = [np.empty(0)]
    for start, squares in _squared_distances(pictures, pictures):
        rows = np.arange(len(squares))
        squares[rows, start + rows] = np.inf
        found.append(squares.min(axis=1))
    return np.concatenate(found)


def distances_to(samples: Sequence[SampleFacts], others: Sequence[SampleFacts]) -> Array:
    """How far each of `others` is from the nearest of `samples`, squared."""
    theirs, ours = _pictures(others)[1], _pictures(samples)[1]
    if theirs.shape[1] != ours.shape[1] or not len(ours):
        return np.empty(0)
    return np.concatenate([np.empty(0), *(squares.min(axis=1) for _, squares in _squared_distances(theirs, ours))])


def _pictures(samples: Sequence[SampleFacts]) -> tuple[list[SampleFacts], Array]:
    """Those samples whose small pictures can be compared, and these; float64 [samples, n]."""
    shown = [each for each in samples if each.picture is not None and not each.nonfinite]
    sizes = [each.picture.size for each in shown if each.picture is not None]
    size = max(set(sizes), key=sizes.count) if sizes else 0
    kept = [each for each in shown if each.picture is not None and each.picture.size == size]
    arrays = [each.picture for each in kept if each.picture is not None]
    return kept, np.stack(arrays).astype(np.float64) if arrays else np.empty((0, 0))


def _usual(pictures: Array) -> float:
    """What a sample is usually away from the middle of all, squared; a few strange ones do not change it."""
    return float(np.median(np.square(pictures - np.median(pictures, axis=0)).sum(axis=1)))


def _squared_distances(rows: Array, columns: Array) -> Iterator[tuple[int, Array]]:
    """Squared distances of some rows at a time to all columns, with the number of the first row."""
    # Far from zero the squares would cancel.
    middle = np.median(columns, axis=0) if len(columns) else 0.0
    rows, columns = rows - middle, columns - middle
    norms = np.square(columns).sum(axis=1)
    for start in range(0, len(rows), _ROWS):
        part = rows[start : start + _ROWS]
        squares = np.square(part).sum(axis=1)[:, None] + norms - 2 * part @ columns.T
        yield start, np.maximum(squares, 0.0)
