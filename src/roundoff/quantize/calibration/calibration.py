"""Everything calibration observed of a model: enough to find the scales of any plan without running it again."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.progress import NO_DEADLINE, SILENT, Deadline, Progress
from roundoff.core.quantizers import OUTPUT_LIMITS, QuantSpec
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, nearest
from roundoff.graph.load import Model
from roundoff.graph.nodes import STANDARD_DOMAINS
from roundoff.graph.patterns import attributes
from roundoff.graph.weights import Weights
from roundoff.measure.metrics import ratio_db
from roundoff.messages.message import Message, english, message, some
from roundoff.quantize.calibration.density import levels_of
from roundoff.quantize.calibration.distribution import (
    Levels,
    ObservedDistribution,
    Points,
    split_pieces,
    split_points,
)
from roundoff.quantize.calibration.methods import Detail, Method, Options, get_method, options_of
from roundoff.quantize.calibration.observer import (
    MOST_ELEMENTS,
    ChannelMismatch,
    Observation,
    Observer,
    merge_observations,
)
from roundoff.run.bench import spread_first
from roundoff.run.capture import LiveSource, Samples, each_sample
from roundoff.run.evaluators import Subset
from roundoff.run.session import available_threads, give_back_memory


def observed_range(
    observation: Observation, spec: QuantSpec, method: str, options: Options | None = None
) -> tuple[Array, Array]:
    """Smallest and largest value that codes should cover.

    Args:
        observation: What was observed.
        spec: How values become codes; with an axis each channel has a range of its own.
        method: Name of the calibration method.
        options: Its options by name; those of other methods are allowed.

    Returns:
        Two float64 arrays, of shape [] or [C], for `roundoff.core.quantizers.parameters_from_range`.

    Raises:
        BadInput: There is no such method or option, or not enough was observed for it.
    """
    chosen = get_method(method)
    known = options_of(chosen, options)
    parts = [chosen.compute(part, spec, known) for part in _parts(_rows_for(observation, spec), chosen)]
    shape = () if spec.axis is None else (-1,)
    low, high = (np.concatenate([np.empty(0), *(part[end] for part in parts)]).reshape(shape) for end in (0, 1))
    return low, high


def weight_range(
    values: Array, spec: QuantSpec, method: str, options: Options | None = None
) -> tuple[Array, Array]:
    """Smallest and largest value that codes of a constant should cover.

    Args:
        values: The constant; of any shape, with ``spec.axis`` where each slice has a range of its own.
        spec: How values become codes.
        method: Name of the calibration method.
        options: Its options by name; those of other methods are allowed.

    Returns:
        As `observed_range`.
    """
    if spec.axis is None:
        return observed_range(_watched(values, None), spec, method, options)
    slices = np.moveaxis(values, spec.axis, 0)
    rows = slices.reshape(len(slices), math.prod(slices.shape[1:]))
    # Slices few enough that all their elements are kept; a slice too large for that has a fine histogram alone.
    at_once = MOST_ELEMENTS // max(1, rows.shape[1])
    if at_once == 0:
        whole = spec.along(None)
        parts = [observed_range(_watched(row, None), whole, method, options) for row in rows]
        return np.stack([part[0] for part in parts]), np.stack([part[1] for part in parts])
    groups = [rows[start : start + at_once] for start in range(0, max(1, len(rows)), at_once)]
    parts = [observed_range(_watched(group, 0), spec.along(0), method, options) for group in groups]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


@dataclass(frozen=True, slots=True)
class RangeError:
    """What a range costs, estimated from what was observed.

    Attributes:
        mse: Mean squared error of quantizing and back.
        sqnr_db: Mean square of the elements over it, in decibels; infinite when there is no error.
        clipped: Share of elements beyond the outermost codes.
    """

    mse: float
    sqnr_db: float
    clipped: float


def range_error(observation: Observation, spec: QuantSpec, low: Array, high: Array) -> RangeError:
    """Judge a range by the elements that were observed.

    Raises:
        BadInput: Only the range of the elements is known.
    """
    lows, highs = np.reshape(low, (-1, 1)), np.reshape(high, (-1, 1))
    sums = np.zeros(4)
    start = 0
    for part in _parts(_rows_for(observation, spec), get_method("mse")):
        rows = slice(start, start + part.low.size)
        sums += _sums(part, levels_of(lows[rows], highs[rows], spec))
        start = rows.stop
    error, power, clipped, total = sums.tolist()
    return RangeError(
        mse=error / max(1.0, total),
        sqnr_db=ratio_db(power, max(0.0, error)),
        clipped=clipped / max(1.0, total),
    )


def _sums(part: ObservedDistribution, levels: Levels) -> Array:
    """Squared errors, squares, clipped elements and all elements, over all rows."""
    zero = np.zeros_like(levels.step)
    squares = part.squared_error(Levels(zero + 1, zero, zero))
    errors = part.squared_error(levels)
    # Beyond half a step from the outermost levels.
    half = 0.0 if levels.floor else 0.5
    below, above = (levels.first - half) * levels.step, (levels.last + 1 - half) * levels.step
    clipped = part.beyond(below[:, 0], above[:, 0])
    return np.array(
        [np.sum(part.total * errors[:, 0]), np.sum(part.total * squares[:, 0]), clipped.sum(), part.total.sum()]
    )


def _rows_for(observation: Observation, spec: QuantSpec) -> Observation:
    """What was observed, with channels told apart exactly when the quantizer does."""
    if spec.axis is None:
        return observation.without_channels()
    if observation.axis is None or spec.axis not in (observation.axis, observation.axis - observation.rank):
        seen = (
            english("as a whole")
            if observation.axis is None
            else english("by channels of axis {axis}", axis=observation.axis)
        )
        raise BadInput(
            english(
                "A scale for each channel of axis {axis} was asked for a tensor that was observed {seen}.",
                axis=spec.axis,
                seen=seen,
            ),
            fix=english("calibrate again for this plan"),
        )
    return observation


def _watched(values: Array, axis: int | None) -> Observation:
    observer = Observer(axis)
    observer.add(values)
    return observer.observation()


def _parts(observation: Observation, chosen: Method) -> Iterator[ObservedDistribution]:
    if chosen.needs == "range":
        ends = np.stack([observation.low, observation.high], axis=1)
        yield Points(np.where(np.isfinite(ends), ends, np.nan))
        return
    if not observation.has_distribution:
        raise BadInput(
            english(
                "The method {name!r} needs the distribution of values, but only their range was observed.",
                name=chosen.name,
            ),
            fix=english("calibrate again with this method, or take the method 'minmax'"),
        )
    yield from distributions(observation)


def distributions(observation: Observation) -> Iterator[ObservedDistribution]:
    """The distribution of what was observed, some rows at a time, in order."""
    if observation.elements is not None:
        yield from split_points(observation.elements)
    elif observation.histogram is not None:
        yield from split_pieces(observation.histogram, observation.low, observation.high)


# A note names so many tensors.
_MOST_NAMED = 5
# Ranges of so many samples show how far others reach: `roundoff.diagnosis.subject` has the measurement.
_FEWEST = 32


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """What was observed of the tensors of a model.

    Attributes:
        observations: By tensor name, in execution order.
        samples: Number of samples seen.
        detail: Whether distributions are known, or ranges only.
        left_out: Number of samples that there was no time for.
    """

    observations: Mapping[str, Observation]
    samples: int
    detail: Detail
    left_out: int = 0

    @property
    def too_few(self) -> bool:
        """Whether the time sufficed for so few samples that their ranges accuse nobody."""
        return self.left_out > 0 and self.samples < _FEWEST

    @property
    def notes(self) -> tuple[Message, ...]:
        """What the user should know of the data."""
        notes = [] if self.samples > 1 else [message("quantize.one_sample")]
        if self.left_out:
            every = self.samples + self.left_out
            notes.insert(0, message("quantize.calibrated_in_time", count=self.samples, all=every))
        damaged = {name: each for name, each in self.observations.items() if each.nans or each.infs}
        for name, each in list(damaged.items())[:_MOST_NAMED]:
            bad = each.nans + each.infs
            notes.append(message("quantize.not_finite", tensor=repr(name), count=bad, all=each.count))
        if len(damaged) > _MOST_NAMED:
            notes.append(message("quantize.not_finite_more", count=len(damaged) - _MOST_NAMED))
        return (*notes, *self._notes_on_ranges())

    def _notes_on_ranges(self) -> list[Message]:
        empty, zero, constant = [], [], []
        for name, each in self.observations.items():
            if each.finite == 0:
                empty.append(name)
            elif not each.low.any() and not each.high.any():
                zero.append(name)
            elif each.axis is None and np.array_equal(each.low, each.high):
                constant.append(name)
        found = {
            "empty": empty,
            "zero": zero,
            "constant": constant,
        }
        return [
            message(f"quantize.range_{kind}", count=len(names), names=some(names, _MOST_NAMED, quoted=True))
            for kind, names in found.items()
            if names
        ]

    def observation(self, tensors: Sequence[str]) -> Observation:
        """What is known of the elements of several tensors together.

        Raises:
            BadInput: One was not observed, or they cannot share one scale.
        """
        for name in tensors:
            if name not in self.observations:
                raise BadInput(
                    english("Tensor {name!r} was not observed in this calibration.", name=name),
                    fix=english(
                        "{nearest} If the plan has changed, calibrate again",
                        nearest=nearest(name, self.observations),
                    ),
                )
        try:
            return merge_observations([self.observations[name] for name in tensors])
        except ChannelMismatch as error:
            what = english(
                "The tensors {tensors} cannot share their scales: {error}.",
                tensors=", ".join(map(repr, tensors)),
                error=error,
            )
            raise BadInput(what, fix=english("quantize them with one scale for the whole tensor")) from error

    def range(
        self, tensors: Sequence[str], spec: QuantSpec, method: str, options: Options | None = None
    ) -> tuple[Array, Array]:
        """Smallest and largest value that codes should cover when these tensors share one scale.

        Args:
            tensors: At least one.
            spec: How values become codes.
            method: Name of the calibration method.
            options: Its options by name; those of other methods are allowed.

        Returns:
            Two float64 arrays, of shape [] or [C], for `roundoff.core.quantizers.parameters_from_range`.

        Raises:
            BadInput: A tensor was not observed, or not enough for the method; or there is no such method.
        """
        try:
            return observed_range(self.observation(tensors), spec, method, options)
        except BadInput as error:
            raise BadInput(
                english("{tensors}: {what}", tensors=" and ".join(map(repr, tensors)), what=error.what),
                fix=error.fix,
            ) from error

    def merge(self, other: "Calibration") -> "Calibration":
        """What was observed in both, of the same model on different samples.

        Raises:
            BadInput: They did not observe the same tensors in the same way.
        """
        if list(self.observations) != list(other.observations) or self.detail != other.detail:
            what = english("Two calibrations of different tensors, or of different detail, cannot be merged.")
            raise BadInput(what, fix=english("calibrate both times with the same model and the same method"))
        try:
            merged = {name: each.merge(other.observations[name]) for name, each in self.observations.items()}
        except ChannelMismatch as error:
            what = english("The calibrations cannot be merged: {error}.", error=error)
            raise BadInput(what, fix=english("calibrate both times with the same plan")) from error
        left_out = self.left_out + other.left_out
        return Calibration(merged, self.samples + other.samples, self.detail, left_out)


Observe = Callable[[Model, Samples, Mapping[str, int | None], Detail], Calibration]
"""What observes in place of `calibrate`: a model, samples, what to observe, and whether ranges are enough."""


# Tensors whose elements follow from those of another one: what is known of one tells all of the other.
#
# Of a network's tensors nearly half are such: activations that only limit, and other shapes of the same elements.

_SAME_ELEMENTS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


@dataclass(frozen=True, slots=True)
class DerivedTensor:
    """Elements that are those of another tensor, in the same order, with limits.

    What becomes of elements that are not finite is not said: runtimes differ in that.

    Attributes:
        source: The other tensor.
        low: What is smaller becomes this.
        high: What is larger becomes this; at least `low`.
    """

    source: str
    low: float = -math.inf
    high: float = math.inf

    def limited(self, low: float, high: float) -> "DerivedTensor":
        """What is left when the result is limited once more."""
        return DerivedTensor(self.source, *(min(max(end, low), high) for end in (self.low, self.high)))


def find_derived(model: Model, tensors: Mapping[str, int | None]) -> dict[str, DerivedTensor]:
    """Those of some tensors that follow from others of them, which do not follow from any themselves.

    Args:
        model: The model.
        tensors: The tensors, each with the axis along which channels are told apart; only those without follow,
            and are followed.
    """
    whole = {name for name, axis in tensors.items() if axis is None}
    weights = Weights(model)
    known: dict[str, DerivedTensor] = {}
    for node in model.proto.graph.node:
        limits = element_limits(node, weights)
        if limits is None:
            continue
        source = node.input[0]
        before = known.get(source) or (DerivedTensor(source) if source in whole else None)
        if before is not None:
            known[node.output[0]] = before.limited(*limits)
    return {name: follower for name, follower in known.items() if name in whole}


def value_limits(node: Any, weights: Weights) -> tuple[float, float]:
    """What no value that a node gives goes beyond, whatever it is fed."""
    bounded = OUTPUT_LIMITS.get(node.op_type) if node.domain in STANDARD_DOMAINS else None
    return bounded or element_limits(node, weights) or (-math.inf, math.inf)


def element_limits(node: Any, weights: Weights) -> tuple[float, float] | None:
    """The limits that a node sets to the elements of its first input; None when it does anything else."""
    if node.domain not in STANDARD_DOMAINS or not node.input:
        return None
    if node.op_type in _SAME_ELEMENTS:
        return -math.inf, math.inf
    if node.op_type == "Relu":
        return 0.0, math.inf
    return _clip_limits(node, weights) if node.op_type == "Clip" else None


def _clip_limits(node: Any, weights: Weights) -> tuple[float, float] | None:
    given = attributes(node)
    limits = [float(given.get("min", -math.inf)), float(given.get("max", math.inf))]
    for place, name in enumerate(node.input[1:3]):
        if not name:
            continue
        if name not in weights.protos or weights.shape(name) not in ((), (1,)):
            return None
        limits[place] = float(np.ravel(weights[name])[0])
    low, high = limits
    # What a limit that is not finite leaves of all elements is no number, either.
    return (low, high) if low <= high and low < math.inf and high > -math.inf else None


@dataclass(frozen=True, slots=True, eq=False)
class MethodResult:
    """What one method makes of a tensor.

    Attributes:
        method: Its name.
        low: Smallest value that codes cover, of shape [] or [C].
        high: Largest value that codes cover.
        error: What that costs, estimated from the same observation.
    """

    method: str
    low: Array
    high: Array
    error: RangeError


def compare_methods(
    calibration: Calibration,
    tensors: Sequence[str],
    spec: QuantSpec,
    methods: Sequence[str],
    options: Options | None = None,
) -> tuple[MethodResult, ...]:
    """Let several methods find a range for tensors that share one scale; the model is not run again.

    Args:
        calibration: What was observed.
        tensors: The tensors.
        spec: How values become codes.
        methods: Names of the methods.
        options: Options of all methods by name.

    Raises:
        BadInput: A tensor was not observed, or only its range was; or there is no such method.
    """
    observation = calibration.observation(tensors)
    results = []
    for method in methods:
        low, high = observed_range(observation, spec, method, options)
        results.append(MethodResult(method, low, high, range_error(observation, spec, low, high)))
    return tuple(results)


# Running a model over samples while its tensors are observed: one pass over the data serves all methods.


def calibrate(  # noqa: PLR0913 - what to run, what to observe, and how much it may take
    model: Model,
    samples: Samples,
    tensors: Mapping[str, int | None],
    *,
    detail: Detail,
    threads: int | None = None,
    max_memory: int | None = None,
    progress: Progress = SILENT,
    deadline: Deadline = NO_DEADLINE,
) -> Calibration:
    """Observe tensors of a model.

    Memory does not depend on the number of samples. The result does not depend on their order. Where time may run
    out, samples are taken so that those there was time for span the set.

    Args:
        model: The model; inputs and what nodes compute can be observed, constants cannot.
        samples: What to feed it.
        tensors: What to observe, each with the axis along which channels are told apart, or None.
        detail: Whether ranges are enough, or distributions are needed.
        threads: Threads to use; all cores by default.
        max_memory: Bytes the process may take; most of the free memory by default.
        progress: Told of every sample.
        deadline: When no other sample is begun; one is observed in any case.

    Raises:
        BadInput: There is no such tensor, it holds no numbers, its channels change from sample to sample, or the
            samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    if not tensors:
        return Calibration({}, len(samples.names), detail)
    observers = {name: Observer(axis, ranges_only=detail == "range") for name, axis in tensors.items()}
    if math.isfinite(deadline.at):
        samples = Subset(samples, spread_first(len(samples.names)))
    source = LiveSource(
        model, samples, tensors=list(tensors), max_memory=max_memory, threads=_running_threads(threads, detail)
    )
    names = [info.name for info in source.tensors]
    followers = find_derived(model, tensors)
    seen = 0
    for sample in each_sample([source], "calibrating", progress=progress, deadline=deadline):
        seen += 1
        for name in names:
            if name not in followers:
                _observe(observers[name], source, name, sample)
            elif observers[followers[name].source].damaged:
                lost = ~np.isfinite(source.read(followers[name].source, sample)).reshape(-1)
                observers[name].add(source.read(name, sample).reshape(-1)[lost])
        if sample == source.samples[0]:
            give_back_memory()
    # The model is not needed any more, and what is known takes memory too.
    del source
    return Calibration(_observations(observers, followers, names), seen, detail, len(samples.names) - seen)


def _observations(
    observers: dict[str, Observer], followers: Mapping[str, DerivedTensor], names: Sequence[str]
) -> dict[str, Observation]:
    """What is known of each tensor."""
    found = {}
    for name in names:
        if name in followers:
            continue
        # Each observer goes as soon as it has told what it knows.
        observer = observers.pop(name)
        found[name] = observer.observation()
        for other, follower in followers.items():
            if follower.source == name:
                known, own = observer.limited(follower.low, follower.high), observers.pop(other).observation()
                found[other] = known.merge(own) if own.count else known
    return {name: found[name] for name in names}


def _running_threads(total: int | None, detail: Detail) -> int:
    """Threads for the model: counting keeps one busy next to it, looking for the range does not."""
    cores = total or available_threads()
    return max(1, cores - (detail == "histogram"))


def _observe(observer: Observer, source: LiveSource, name: str, sample: str) -> None:
    try:
        observer.add(source.read(name, sample))
    except ChannelMismatch as error:
        raise BadInput(
            english(
                "Tensor {name!r} cannot have a scale for each channel: {error} (sample {sample!r}).",
                name=name,
                error=error,
                sample=sample,
            ),
            fix=english("quantize it with one scale for the whole tensor"),
        ) from error
