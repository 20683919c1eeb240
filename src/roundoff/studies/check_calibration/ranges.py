"""How ranges come about: how they grow with the number of samples, and which sample alone sets them.

Both follow from the smallest and the largest value of each tensor in each sample. What is kept of these does not
grow with the number of samples: for each of a few random orders the extremes between doublings, and for each
tensor the two outermost samples.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from roundoff.core.progress import Progress
from roundoff.core.quantizers import QuantSpec
from roundoff.core.target import Target
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.interface import inputs
from roundoff.graph.load import Model
from roundoff.graph.preparation.steps import prepare
from roundoff.graph.shapes import input_channel_axis
from roundoff.graph.weights import Weights
from roundoff.measure.statistics import TensorStats
from roundoff.messages.message import NOTHING, Message, english, joined, message
from roundoff.preprocessing.conventions import InputObservation, leading, rank
from roundoff.quantize.calibration.calibration import observed_range, range_error
from roundoff.quantize.calibration.methods import get_method, options_of
from roundoff.quantize.calibration.observer import Observation, Observer
from roundoff.quantize.parameters import check_finite
from roundoff.quantize.planning.planner import plan_quantization
from roundoff.run.budget import UNLIMITED, RunBudget
from roundoff.run.capture import LiveSource, Samples
from roundoff.studies.check_calibration.result import InputFacts

# What samples are by themselves: moments, a fingerprint and a small picture of each, without running a model.

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


ORDERS = 16
"""Random orders over which growth is averaged."""


def sample_marks(samples: int) -> tuple[int, ...]:
    """Numbers of samples at which ranges are looked at: all, half, a quarter ... down to one; ascending."""
    marks = [samples]
    while marks[-1] > 1:
        marks.append(math.ceil(marks[-1] / 2))
    return tuple(reversed(marks))


def width(low: Array, high: Array) -> Array:
    """Width of a range with the zero that codes must cover; 0 where nothing was seen."""
    return np.asarray(np.maximum(high, 0.0) - np.minimum(low, 0.0))


class RangeRecord:
    """The extremes of each tensor over samples.

    Args:
        tensors: How many tensors.
        samples: How many samples there will be.
        seed: Of the random orders.
    """

    def __init__(self, tensors: int, samples: int, *, seed: int) -> None:
        self.marks = sample_marks(samples)
        random = np.random.default_rng(seed)
        ranks = np.stack([random.permutation(samples) for _ in range(ORDERS)])
        # Between which two marks each sample comes, in each order.
        self._steps = np.searchsorted(self.marks, ranks, side="right").astype(np.int32)
        shape = (ORDERS, len(self.marks), tensors)
        self._low, self._high = np.full(shape, np.inf), np.full(shape, -np.inf)
        # The two outermost of each side: value and sample. Of the lower side with the sign changed.
        self._outer = np.full((2, 2, tensors), -np.inf)
        self._owner = np.full((2, 2, tensors), -1, dtype=np.int64)

    def add(self, sample: int, low: Array, high: Array) -> None:
        """See one sample.

        Args:
            sample: Its number, below that of samples; each once.
            low: Smallest value of each tensor, float64 [tensors]; +inf where there is none.
            high: Largest value; -inf where there is none.
        """
        orders, steps = np.arange(ORDERS), self._steps[:, sample]
        self._low[orders, steps] = np.minimum(self._low[orders, steps], low)
        self._high[orders, steps] = np.maximum(self._high[orders, steps], high)
        for side, values in enumerate((-low, high)):
            self._insert(side, values, sample)

    def _insert(self, side: int, values: Array, sample: int) -> None:
        outer, owner = self._outer[side], self._owner[side]
        first, second = values > outer[0], values > outer[1]
        outer[1] = np.where(first, outer[0], np.where(second, values, outer[1]))
        owner[1] = np.where(first, owner[0], np.where(second, sample, owner[1]))
        outer[0] = np.where(first, values, outer[0])
        owner[0] = np.where(first, sample, owner[0])

    @property
    def low(self) -> Array:
        """Smallest value of each tensor in all samples."""
        return np.asarray(-self._outer[0, 0])

    @property
    def high(self) -> Array:
        """Largest value of each tensor in all samples."""
        return np.array(self._outer[1, 0])

    def shares(self) -> Array:
        """Width at each mark over that of all samples, [orders, marks, tensors]; 1 where there is no width."""
        low = np.minimum.accumulate(self._low, axis=1)
        high = np.maximum.accumulate(self._high, axis=1)
        widths = width(low, high)
        return np.asarray(np.divide(widths, widths[:, -1:], out=np.ones_like(widths), where=widths[:, -1:] > 0))

    def lone(self) -> tuple[Array, Array]:
        """Which sample alone sets the range of each tensor, and by which factor it widens it.

        Returns:
            Numbers of samples (-1 where there is none), and factors from 1 on; infinite where only one sample has
            any width.
        """
        whole = width(self.low, self.high)
        best, factors = np.full(whole.size, -1, dtype=np.int64), np.ones(whole.size)
        for sample in (self._owner[0, 0], self._owner[1, 0]):
            without = [
                np.where(self._owner[side, 0] == sample, self._outer[side, 1], self._outer[side, 0])
                for side in (0, 1)
            ]
            left = width(-without[0], without[1])
            factor = np.ones_like(whole)
            with np.errstate(over="ignore"):
                np.divide(whole, left, out=factor, where=left > 0)
            factor = np.where((left <= 0) & (whole > 0), np.inf, factor)
            better = factor > factors
            best, factors = np.where(better, sample, best), np.where(better, factor, factors)
        return best, factors


# What is checked, and how strictly.


@dataclass(frozen=True, slots=True)
class CalibrationCheckSettings:
    """How to check a calibration set.

    Attributes:
        target: For which chip tensors will be quantized; says which tensors, and by which method.
        method: Calibration method; the target's own when empty.
        options: Options of the method.
        share: Share of the samples that is held out where no others are given; 0 for none.
        seed: Of what is chosen at random.
        limits: What the run may take.
    """

    target: Target
    method: str = ""
    options: Mapping[str, float] = field(default_factory=dict)
    share: float = 0.2
    seed: int = 0
    limits: RunBudget = UNLIMITED


# Samples that ranges were not found on: how many of their values are cut off, and whether that is chance.


def chance_of_exceeding(samples: int, others: int, exceeding: int) -> float:
    """The chance that so many of `others` lie beyond all `samples` on one side, when both are of one kind.

    Exact: all of the outermost `exceeding` of both together must be among the others.
    """
    chance = 1.0
    for place in range(exceeding):
        chance *= (others - place) / (samples + others - place)
    return chance


class HeldOutRecord:
    """Counts values beyond ranges.

    Args:
        covered: Ends of what codes cover, as found on the other samples.
        seen: Smallest and largest value of the other samples.
    """

    def __init__(self, covered: tuple[Array, Array], seen: tuple[Array, Array]) -> None:
        (self._lowest, self._highest), self._seen = covered, seen
        tensors = covered[0].size
        self.count = 0
        self._values, self._outside = np.zeros(tensors, np.int64), np.zeros(tensors, np.int64)
        self.exceeding = np.zeros((2, tensors), np.int64)
        self._low, self._high = np.full(tensors, np.inf), np.full(tensors, -np.inf)

    def add(self, arrays: Sequence[Array], low: Array, high: Array) -> None:
        """See one sample: its tensors, and their smallest and largest values."""
        self.count += 1
        # Most tensors of most samples stay within, and need no look at each value.
        beyond = (low < self._lowest) | (high > self._highest)
        for place, array in enumerate(arrays):
            self._values[place] += array.size
            if beyond[place]:
                outside = (array < self._lowest[place]) | (array > self._highest[place])
                self._outside[place] += int(np.count_nonzero(outside))
        self.exceeding += np.stack([low < self._seen[0], high > self._seen[1]])
        self._low, self._high = np.minimum(self._low, low), np.maximum(self._high, high)

    def outside(self) -> Array:
        """Share of values beyond the range, of each tensor."""
        return np.asarray(self._outside / np.maximum(1, self._values))

    def overshoot(self) -> Array:
        """How far values go beyond the range, over its width; infinite where it has none."""
        width = self._highest - self._lowest
        low = np.maximum(self._lowest - self._low, 0.0)
        high = np.maximum(self._high - self._highest, 0.0)
        most = np.where(np.isfinite(low), low, 0.0), np.where(np.isfinite(high), high, 0.0)
        over = np.maximum(*most)
        ratio = np.where(over > 0, np.inf, 0.0)
        np.divide(over, width, out=ratio, where=width > 0)
        return ratio


# The tensors whose ranges a calibration set decides, seen sample by sample.

# Quarters of the set, whose distributions are kept apart; and orders in which they are put together.
_PARTS = 4
_ORDERS = ((0, 1, 2, 3), (1, 0, 3, 2), (2, 3, 0, 1), (3, 2, 1, 0), (0, 2, 1, 3), (1, 3, 2, 0))


@dataclass(frozen=True, slots=True)
class ObservedTensors:
    """What is watched.

    Attributes:
        model: The float model as it is quantized.
        specs: How each tensor will be quantized, as a whole; in execution order.
        method: Calibration method.
        distribution: Whether the method needs more than the smallest and largest value.
        options: Options of the method.
        inputs: The inputs of the model.
    """

    model: Model
    specs: dict[str, QuantSpec]
    method: str
    distribution: bool
    options: dict[str, float]
    inputs: tuple[str, ...]


def observed_tensors(model: Model, settings: CalibrationCheckSettings) -> ObservedTensors:
    """The tensors that a target quantizes by what is observed, and the inputs.

    Raises:
        BadInput: The model cannot be quantized, has no inputs, or there is no such method.
    """
    name = settings.method or settings.target.calibration.method
    chosen = get_method(name)
    fed = tuple(spec.name for spec in inputs(model) if spec.dtype != "str")
    if not fed:
        what = english("{path} has no inputs, so it has no calibration set.", path=model.path)
        raise BadInput(what, fix=english("give a model with inputs"))
    prepared = prepare(model)
    plan = plan_quantization(prepared.model, settings.target, origins=prepared.origins, method=name)
    try:
        check_finite(plan, Weights(prepared.model))
    except BadInput as error:
        raise BadInput(error.what, fix=english("repair the model: no samples make up for that")) from error
    specs = {
        each.tensor: each.spec.along(None)
        for each in reversed(plan.quantizers)
        if each.kind == "activation" and each.fixed_range is None
    }
    if not specs:
        raise BadInput(
            "No range of {path} depends on samples when it is quantized for {name}.",
            fix=english("see 'roundoff targets {name}', or choose another --target", name=settings.target.name),
            path=model.path,
            name=settings.target.name,
        )
    options = options_of(chosen, settings.options)
    ordered = dict(reversed(specs.items()))
    return ObservedTensors(prepared.model, ordered, name, chosen.needs != "range", options, fed)


@dataclass(frozen=True, slots=True, eq=False)
class CalibratedRanges:
    """Ranges by the calibration method, widened to hold zero; float64 [tensors] each.

    Attributes:
        low: Lower ends.
        high: Upper ends.
        outside: Share of the values they were found on that is beyond.
    """

    low: Array
    high: Array
    outside: Array


class RangeObservation:
    """What is remembered of all tensors and samples.

    Args:
        watched: What is watched.
        samples: How many samples there will be.
        seed: Of random orders.
    """

    def __init__(self, watched: ObservedTensors, samples: int, *, seed: int) -> None:
        self._watched = watched
        self.record = RangeRecord(len(watched.specs), samples, seed=seed)
        self.count = 0
        self._part = np.random.default_rng(seed).permutation(samples) % _PARTS
        parts = _PARTS if watched.distribution else 0
        self._observers = [[Observer() for _ in range(parts)] for _ in watched.specs]

    def add(self, sample: int, arrays: Sequence[Array], low: Array, high: Array) -> None:
        """See one sample: its tensors, and their smallest and largest values."""
        self.count += 1
        self.record.add(sample, low, high)
        for observers, array in zip(self._observers, arrays, strict=True):
            if observers:
                observers[self._part[sample]].add(array)

    def ranges(self) -> CalibratedRanges:
        """The ranges as they are now."""
        if not self._watched.distribution:
            low, high = np.minimum(self.record.low, 0.0), np.maximum(self.record.high, 0.0)
            return CalibratedRanges(low, high, np.zeros(low.size))
        rows = [self._range(place, _ORDERS[0]) for place in range(len(self._observers))]
        low, high, outside = (np.array([row[column] for row in rows]) for column in range(3))
        return CalibratedRanges(low, high, outside)

    def shares(self) -> tuple[tuple[int, ...], Array]:
        """Numbers of samples, and widths of ranges over those of all, [orders, numbers, tensors]."""
        if not self._watched.distribution:
            return self.record.marks, self.record.shares()
        total = self.record.marks[-1]
        if total < _PARTS:
            return (total,), np.ones((1, 1, len(self._observers)))
        widths = np.empty((len(_ORDERS), 3, len(self._observers)))
        for place in range(len(self._observers)):
            whole = self._width(place, _ORDERS[0])
            for number, order in enumerate(_ORDERS):
                widths[number, :, place] = self._width(place, order[:1]), self._width(place, order[:2]), whole
        last = widths[:, -1:]
        shares = np.divide(widths, last, out=np.ones_like(widths), where=last > 0)
        return (math.ceil(total / 4), math.ceil(total / 2), total), shares

    def _width(self, place: int, parts: Sequence[int]) -> float:
        low, high, _ = self._range(place, parts)
        return high - low

    def _range(self, place: int, parts: Sequence[int]) -> tuple[float, float, float]:
        spec = list(self._watched.specs.values())[place]
        merged = _merged([self._observers[place][part].observation() for part in parts])
        if merged.finite == 0:
            return 0.0, 0.0, 0.0
        low, high = observed_range(merged, spec, self._watched.method, self._watched.options)
        outside = range_error(merged, spec, low, high).clipped if len(parts) == _PARTS else 0.0
        return min(float(low), 0.0), max(float(high), 0.0), outside


def _merged(parts: Sequence[Observation]) -> Observation:
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    return merged


def observe_ranges(  # noqa: PLR0913 - what to run, on what, and who looks
    watched: ObservedTensors,
    samples: Samples,
    indices: Sequence[int],
    *,
    seen: RangeObservation | None,
    fed: InputRecord,
    held_out: HeldOutRecord | None,
    settings: CalibrationCheckSettings,
    progress: Progress,
) -> None:
    """Run the model over samples; those with NaN or infinite inputs are looked at, and not run.

    Args:
        watched: What is watched.
        samples: What it is fed.
        indices: Which of them.
        seen: Remembers tensors by the numbers of samples; None where they are not part of the set.
        fed: Remembers inputs.
        held_out: Counts what is beyond ranges.
        settings: Limits.
        progress: Told of every sample.
    """
    names = list(watched.specs)
    source = LiveSource(
        watched.model,
        samples,
        tensors=list(dict.fromkeys((*watched.inputs, *names))),
        max_memory=settings.limits.max_memory,
        threads=settings.limits.threads,
    )
    progress.start("looking at samples", len(indices))
    try:
        for index in indices:
            sample = samples.names[index]
            facts = fed.add(index, {name: source.read(name, sample) for name in watched.inputs})
            progress.advance()
            if facts.nonfinite:
                continue
            arrays = [source.read(name, sample) for name in names]
            low, high = np.array(list(_extremes(arrays))).T
            if held_out is not None:
                held_out.add(arrays, low, high)
            if seen is not None:
                seen.add(index, arrays, low, high)
    finally:
        progress.finish()
        source.close()


def _extremes(arrays: Sequence[Array]) -> Iterator[tuple[float, float]]:
    """Smallest and largest finite value of each."""
    for array in arrays:
        observer = Observer(ranges_only=True)
        observer.add(array)
        found = observer.observation()
        yield float(found.low[0]), float(found.high[0])
