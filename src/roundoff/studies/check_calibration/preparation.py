"""Samples that were prepared in one usual way where another was meant, by what sets of them are like."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.quantizers import Quantizer, parameters_from_range, representable_range
from roundoff.core.tensors import Array, InputSpec
from roundoff.graph.load import Model
from roundoff.graph.shapes import channel_moments, input_channel_axis
from roundoff.graph.subgraph import tap
from roundoff.graph.weights import Weights
from roundoff.measure.classes import class_predictions
from roundoff.messages.message import NOTHING, Message, joined, message, verbatim
from roundoff.preprocessing.conventions import (
    BYTE,
    Convention,
    Hypothesis,
    InputObservation,
    alike,
    leading,
    moment_distance,
    plausible,
    preparations,
    rank,
)
from roundoff.run.session import Session, open_session
from roundoff.studies.check_calibration.result import InputFacts

# Resizing goes a little beyond pixels; what fills less of them than this is something else.
_BEYOND, _FILLED = 3.0, 85.0
# Ways that are no further apart, in parts of what they span, are tried as one: how one scene differs from another
# hides such a difference. ImageNet, CLIP and CIFAR-10 are 3 to 8 % apart.
_ALIKE = 0.08
# Two sets are prepared otherwise when they are at least so far apart, when not more than this is left of it, and
# when their ends then agree to this part of the range.
_SETS_APART, _SETS_LEFT, _SETS_BETTER, _ENDS = 0.6, 0.5, 2.0, 0.35
# Sets of photographs hold black and white, up to so many pixels; those that do not may be of odd scenes.
_BLACK, _WHITE = 20.0, 235.0
# Numbers of channels that pictures have.
_PICTURES = (1, 3)
_MOST_NAMED = 4


@dataclass(frozen=True, slots=True, eq=False)
class PreparationGroup:
    """A way to prepare samples, with those that statistics cannot tell from it.

    Attributes:
        usual: The most usual of them.
        others: The others.
    """

    usual: Convention
    others: tuple[Convention, ...] = ()

    @property
    def words(self) -> Message:
        """The usual one as a formula."""
        return self.usual.words

    @property
    def also(self) -> tuple[Message, ...]:
        """The formulas of the others."""
        return tuple(dict.fromkeys(each.words for each in self.others if each.words != self.words))


def with_alternatives(text: Message, others: Iterable[Message]) -> Message:
    """A text that names one way, with the others that may be meant as well."""
    listed = list(others)
    if not listed:
        return text
    named = joined(
        listed[:_MOST_NAMED] + [verbatim("...")] * (len(listed) > _MOST_NAMED), key="terminal.alternatives"
    )
    return joined((text, message("check_calibration.not_told_apart", ways=named)))


def ways(channels: int) -> tuple[PreparationGroup, ...]:
    """All of them for so many channels, the most usual first."""
    groups: list[list[Convention]] = []
    for each in preparations(channels):
        home = next((group for group in groups if alike(group[0], each, _ALIKE)), None)
        if home is None:
            groups.append([each])
        else:
            home.append(each)
    return tuple(PreparationGroup(first, tuple(others)) for first, *others in groups)


def is_compatible(way: Convention, low: float, high: float) -> bool:
    """Whether values from `low` to `high` can come of pixels in this way, and fill enough of them."""
    bottom, top = (np.asarray((end - way.offset) / way.gain) for end in (low, high))
    inside = float(bottom.max()) >= -_BEYOND and float(top.min()) <= BYTE + _BEYOND
    return inside and float(top.max() - bottom.min()) > _FILLED and float(top.max()) > _FILLED


def spans_pixels(way: Convention, low: float, high: float) -> bool:
    """Whether values from `low` to `high` are pixels from black to white, prepared in this way."""
    bottom, top = (float(np.mean((end - way.offset) / way.gain)) for end in (low, high))
    return bottom <= _BLACK and top >= _WHITE


def preparation_mismatches(
    low: float, high: float, channels: int
) -> Iterator[tuple[PreparationGroup, PreparationGroup]]:
    """Pairs of how values may have been prepared, and how else they may have to be.

    Args:
        low: Smallest value.
        high: Largest value.
        channels: How many channels there are.
    """
    known = ways(channels)
    seen = [(each, _seen(each, low, high)) for each in known]
    for other in known:
        if not other.usual.slip:
            yield from ((one, other) for each, one in seen if one is not None and each is not other)


def _seen(way: PreparationGroup, low: float, high: float) -> PreparationGroup | None:
    """The one of a group that values from `low` to `high` can come of; best one that they fill."""
    possible = [each for each in (way.usual, *way.others) if is_compatible(each, low, high)]
    best = next((each for each in possible if spans_pixels(each, low, high)), possible[0] if possible else None)
    return None if best is None else PreparationGroup(best)


def mismatch_between(ours: InputFacts, theirs: InputFacts) -> tuple[Hypothesis, ...]:
    """How one set of samples and another seem to be prepared, where they are not prepared alike.

    Args:
        ours: An input in one set.
        theirs: The same input in the other.

    Returns:
        The likeliest first, then those that cannot be told from it; none when they may well be prepared alike, or
        in no known way.
    """
    channels = len(ours.means)
    if channels not in _PICTURES or channels != len(theirs.means):
        return ()
    if not (min(ours.stds) > 0 and min(theirs.stds) > 0):
        return ()
    one, other = _observed(ours), _observed(theirs)
    before = _left(one, other)
    if before < _SETS_APART:
        return ()
    ranked = [each for each in rank(one, other) if not each.wanted.slip]
    sure = [each for each in ranked if not each.same and _is_sure(each, one, other, before)]
    return leading(sure)


def _observed(facts: InputFacts) -> InputObservation:
    means, stds = np.array(facts.means), np.array(facts.stds)
    return InputObservation(means.size, np.array([facts.low]), np.array([facts.high]), means, stds)


def _left(ours: InputObservation, theirs: InputObservation, how: Hypothesis | None = None) -> float:
    """How far means and deviations are apart; after what a hypothesis would change."""
    assert ours.mean is not None  # noqa: S101 - sets have them
    assert ours.std is not None  # noqa: S101
    assert theirs.mean is not None  # noqa: S101
    assert theirs.std is not None  # noqa: S101
    mean, std = ours.mean, ours.std
    if how is not None:
        mean, std = how.change(mean, 0), std * how.wanted.gain / how.given.gain
    return moment_distance((mean, std), (theirs.mean, theirs.std))


def _is_sure(how: Hypothesis, ours: InputObservation, theirs: InputObservation, before: float) -> bool:
    """Whether little is left of what is between two sets, and both hold black and white."""
    ends = [
        float(np.mean(how.change(np.full(ours.channels, float(end)), 0))) for end in (ours.low[0], ours.high[0])
    ]
    low, high = float(theirs.low[0]), float(theirs.high[0])
    sides = ((how.given, float(ours.low[0]), float(ours.high[0])), (how.wanted, low, high))
    fits = max(abs(ends[0] - low), abs(ends[1] - high)) <= _ENDS * (high - low)
    filled = all(spans_pixels(*side) and is_compatible(*side) for side in sides)
    return fits and filled and _left(ours, theirs, how) < min(_SETS_LEFT, before / _SETS_BETTER)


# Samples and what a quantized file says of those that it was calibrated on.

_IMAGE_RANK = 4
# That samples were made in the same way as those of calibration must be less likely than another way by so much.
_LIKELIER = 0.25
# Pictures of one narrow kind, dark ones say, still span this part of what is between black and white ...
_NARROWEST = 0.05
# ... and do not end, by chance, this near to where black and white of another way are, unless that is a slip.
_AT_ITS_ENDS = 0.1
# What resizing and the grid of a quantizer go beyond black and white.
_SLACK = 0.02
# Ends that differ by one factor, within this part of it, and by less than this, are of one way to make inputs.
_SAME_FACTOR, _LITTLE = 0.05, 1.3
# Values that reach beyond a range by this part of it, or nowhere near this part of its ends, are lost or coarse:
# a grid that is the same on both sides of zero, or a power of two, is up to four times as wide as what it is for.
_LOST, _COARSE = 0.1, 0.1


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationMismatch:
    """An input whose values are not those that a quantized file was calibrated for.

    Attributes:
        tensor: The input.
        axis: Of its channels.
        told: In which ways both may have been made, the likeliest first; these cannot be told apart.
        values: The smallest and the largest of its values.
        range: What its quantizer can represent.
        used_then: The part of its range that it would use, made in the likeliest way.
    """

    tensor: str
    axis: int
    told: tuple[Hypothesis, ...]
    values: tuple[float, float]
    range: tuple[float, float]
    used_then: float

    @property
    def used(self) -> float:
        """The part of its range that it uses."""
        return _part(self.values, self.range)

    @property
    def spoils(self) -> bool:
        """Whether values are lost, or coarse, whatever follows: they need no proof."""
        beyond = max(self.range[0] - self.values[0], self.values[1] - self.range[1])
        furthest, end = (max(map(abs, each)) for each in (self.values, self.range))
        return beyond > _LOST * (self.range[1] - self.range[0]) or furthest < _COARSE * end

    @property
    def wanted(self) -> Message:
        """How the file was calibrated."""
        return _one_of([each.wanted.formula for each in self.told])

    @property
    def text(self) -> Message:
        """What is seen, in a sentence without its full stop."""
        return message(
            "check_calibration.calibrated_otherwise",
            tensor=self.tensor,
            low=self.values[0],
            high=self.values[1],
            range_low=self.range[0],
            range_high=self.range[1],
            given=_one_of([each.given.formula for each in self.told]),
            wanted=self.wanted,
        )


def mismatch_with_calibration(
    quantizers: Iterable[Quantizer], specs: Iterable[InputSpec], feeds: "Feeds"
) -> CalibrationMismatch | None:
    """The first input that was surely made in another way than the samples that a file was calibrated on.

    Args:
        quantizers: Those of the file.
        specs: The inputs of the network.
        feeds: Samples.
    """
    first = {each.tensor: each for each in reversed([*quantizers])}
    for name in (spec.name for spec in specs if spec.name in first):
        arrays = [feed[name] for feed in feeds]
        if not arrays or any(each.ndim != _IMAGE_RANK or not np.isfinite(each).all() for each in arrays):
            continue
        values, quantizer = np.concatenate(arrays), first[name]
        axis = input_channel_axis(values.shape)
        told = _told_apart(InputObservation.of(values, axis), _calibrated(quantizer, values.shape[axis]))
        if not told:
            continue
        low, high = representable_range(quantizer.params, quantizer.spec)
        ends, then = (float(low.min()), float(high.max())), told[0].change(values.astype(np.float64), axis)
        after = _part((float(then.min()), float(then.max())), ends)
        return CalibrationMismatch(name, axis, told, (float(values.min()), float(values.max())), ends, after)
    return None


def _told_apart(ours: InputObservation, theirs: InputObservation) -> tuple[Hypothesis, ...]:
    """In which ways samples and those of calibration were made; none where they may be made alike."""
    ranked = rank(ours, theirs)
    if not ranked or any(each.same for each in leading(ranked, _LIKELIER)):
        return ()
    if _is_scaled(ours, theirs):
        return ()
    told = leading(ranked)
    wanted = told[0].wanted
    chance = wanted.slip or _off(theirs, wanted)[1] > _AT_ITS_ENDS
    return () if chance and _is_narrow(ours, theirs) else told


def _is_scaled(ours: InputObservation, theirs: InputObservation) -> bool:
    """Whether the range of calibration is that of the samples, a little narrower or wider by one factor.

    A method that cuts off a little, or a margin, makes such ranges of samples that were made alike.
    """
    pairs = ((float(ours.low.min()), float(theirs.low.min())), (float(ours.high.max()), float(theirs.high.max())))
    span = max(abs(end) for pair in pairs for end in pair)
    ends = [pair for pair in pairs if max(map(abs, pair)) > _SLACK * span]
    if any(mine * other <= 0 for mine, other in ends):
        return False
    factors = [other / mine for mine, other in ends]
    alike = max(factors) - min(factors) <= _SAME_FACTOR * max(factors)
    return alike and all(1 / _LITTLE <= each <= _LITTLE for each in factors)


def _one_of(formulas: Sequence[Message]) -> Message:
    several = list(dict.fromkeys(formulas))
    if len(several) == 1:
        return several[0]
    return message("check_calibration.one_of", ways=joined(several, key="terminal.alternatives"))


def _is_narrow(ours: InputObservation, theirs: InputObservation) -> bool:
    """Whether pictures made as the samples are, if of a narrow kind, can have the range of calibration."""
    possible = plausible(ours)
    likely = [way for way, cost in possible if cost <= possible[0][1] + _LIKELIER]
    found = [_off(theirs, way) for way in likely]
    return any(beyond <= _SLACK and off <= 1 - _NARROWEST for beyond, off in found)


def _off(observed: InputObservation, way: Convention) -> tuple[float, float]:
    """How far ends are beyond those of black and white, and how far from them, in parts of what is between."""
    low, high = way.ends()
    if observed.low.size == 1:
        ends = float(low.min()), float(high.max())
        low, high = (np.array([end]) for end in (observed.represent(*ends) if observed.represent else ends))
    span = np.maximum(high - low, 1e-30)
    below, above = (low - observed.low) / span, (observed.high - high) / span
    return float(np.maximum(below, above).max()), float((np.abs(below) + np.abs(above)).max())


def _calibrated(quantizer: Quantizer, channels: int) -> InputObservation:
    """What a quantizer says of the values that it was calibrated on."""
    spec = quantizer.spec.along(None)
    low, high = representable_range(quantizer.params, quantizer.spec)
    if low.size == channels and quantizer.spec.axis is not None:
        return InputObservation(channels, low.reshape(-1).astype(np.float64), high.reshape(-1).astype(np.float64))

    def represent(bottom: float, top: float) -> tuple[float, float]:
        # A grid holds zero, may be the same on both sides of it, or reach up to twice as far.
        ends = representable_range(parameters_from_range(bottom, top, spec), spec)
        return float(ends[0]), float(ends[1])

    return InputObservation.within(float(low.min()), float(high.max()), channels, represent)


def _part(values: tuple[float, float], ends: tuple[float, float]) -> float:
    """The span of values over that of a range."""
    return (values[1] - values[0]) / max(ends[1] - ends[0], 1e-30)


# Ways in which inputs are changed, as functions: by one of them a slip is put right and so proven.


@dataclass(frozen=True, slots=True)
class Rescaling:
    """One way to change inputs.

    Attributes:
        words: What to do to the samples.
        change: Does it: values and their channel axis to values.
        seen: What they look like, x being a pixel from 0 to 255; empty when that is not known.
        wanted: What they should be.
        also: What else they may have to be, as far as this can tell.
    """

    words: Message
    change: Callable[[Array, int], Array]
    seen: Message = NOTHING
    wanted: Message = NOTHING
    also: tuple[Message, ...] = ()


_ALWAYS = (
    Rescaling(message("check_calibration.divide"), lambda values, axis: values / 255),
    Rescaling(message("check_calibration.multiply"), lambda values, axis: values * 255),
    Rescaling(message("check_calibration.turn_round"), np.flip),
)


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
        for one, other in preparation_mismatches(low, high, channels.pop()):
            if not surely or spans_pixels(one.usual, low, high):
                yield from_one_to_other(one, other)
    yield from _ALWAYS


def from_one_to_other(one: PreparationGroup, other: PreparationGroup) -> Rescaling:
    """Undo one preparation and do another."""

    def change(values: Array, axis: int) -> Array:
        return other.usual.made(one.usual.undone(values, axis), axis)

    words = message("check_calibration.make_instead", wanted=other.words, given=one.words)
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


# Batch normalizations that are looked at, from the input on; later ones say less of it.
_LOOKED_AT = 2
# Deviation: median over channels of |log variance ratio| plus that of the shift in standard deviations. Of right
# inputs it was 0.2 to 0.5 on MobileNetV1 and RepVGG; of inputs that lack their mean and scale 1.9 and more.
_SUSPICIOUS, _RIGHT, _GOOD, _BETTER = 1.2, 1.0, 0.4, 2.5
# Of many usual ways one comes near to any mean and std: numbers of nobody's that do so much better are told, too.
_NEARER = 1.5
FAR = 4.0
"""A deviation that no scene explains."""

# Known preparations are believed from here on, if what they make of samples fits.
_ODD = 0.9
# Another way must do better by so much.
_CLEARLY = 0.85
# Scenes make that much of a difference, in deviation and in accuracy: ways no further apart are not told apart.
_SCENES, _CHANCE = 0.3, 0.1
# Accuracy must rise by so much, and be so many times as high.
_GAIN, _FACTOR = 0.25, 1.5

Feeds = Sequence[Mapping[str, Array]]


@dataclass(frozen=True, slots=True)
class PreparationMismatch:
    """A way to change samples that makes them fit the model.

    Attributes:
        how: The way; None when they do not fit and no way is known.
        before: How they fit as they are: a deviation, or an accuracy.
        after: How they fit when they are changed.
        node: The batch normalization that says so; empty for accuracies.
        usual: Whether the way is one that people use; otherwise its numbers were fitted.
    """

    how: Rescaling | None
    before: float
    after: float
    node: str = ""
    usual: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class _Expectation:
    node: str
    tensor: str
    mean: Array
    variance: Array


def mismatch_by_statistics(
    model: Model, feeds: Feeds, *, threads: int | None = None
) -> PreparationMismatch | None:
    """Compare what the first batch normalizations see with what they saw in training.

    Args:
        model: The float model as it was exported; batch normalization must not be folded.
        feeds: A few samples.
        threads: Threads to use.

    Returns:
        None when there is nothing to compare with, or samples fit.
    """
    expected = list(_expectations(model))[:_LOOKED_AT]
    if not expected:
        return None
    tensors = list(dict.fromkeys(each.tensor for each in expected))
    session = open_session(model, outputs=tap(model, tensors), threads=threads)

    def deviation(each: Feeds) -> float:
        return _deviation(session, tensors, expected, each)

    before = deviation(feeds)
    if before < _ODD:
        return None
    usual, after = _best(feeds, deviation, lower=True, surely=before < FAR)
    if before < _SUSPICIOUS and after * _BETTER > before:
        return None
    fitted = _fitted(session, tensors, expected[0], feeds)
    rest = before if fitted is None else deviation([rescaled(feed, fitted) for feed in feeds])
    # Fitted numbers are believed where the usual ones are far worse, and not good by themselves.
    if usual is not None and fitted is not None and rest * _NEARER < after:
        usual = replace(usual, also=(fitted.words, *usual.also))
    how, after = (fitted, rest) if rest * _BETTER < after and after > _GOOD else (usual, after)
    if how is None or after > _RIGHT or after * _BETTER > before:
        return PreparationMismatch(None, before, before, expected[0].node, usual=False)
    return PreparationMismatch(how, before, after, expected[0].node, usual=how is usual)


def mismatch_by_labels(
    model: Model, feeds: Feeds, labels: Sequence[int], *, threads: int | None = None
) -> PreparationMismatch | None:
    """Look for a way to change samples after which the model is right far more often.

    Args:
        model: The float model.
        feeds: A few samples, of one row each.
        labels: The right class of each.
        threads: Threads to use.

    Returns:
        None when there is none, or the model does not tell classes.
    """
    session = open_session(model, threads=threads, optimize=True)

    def accuracy(each: Feeds) -> float:
        right = 0
        for feed, label in zip(each, labels, strict=True):
            found = class_predictions(session.run(feed)[0])
            if found is None or found.size != 1:
                return -1.0
            right += int(found[0] == label)
        return right / len(labels)

    before = accuracy(feeds)
    if before < 0 or before > 1 - _GAIN:
        return None
    how, after = _best(feeds, accuracy, lower=False)
    if how is None or after < before + _GAIN or after < before * _FACTOR:
        return None
    return PreparationMismatch(how, before, after)


def _fitted(session: Session, tensors: Sequence[str], expected: _Expectation, feeds: Feeds) -> Rescaling | None:
    """The one shift and scale of all inputs after which the first batch normalization fits best.

    What is before it is nearly always linear: scaling the input scales the result, and the result of a constant
    input says what a shift does.
    """
    place = tensors.index(expected.tensor)

    def moments(each: Feeds) -> tuple[Array, Array]:
        return channel_moments([session.run(feed)[place] for feed in each], 1)

    zero = Rescaling(NOTHING, lambda values, axis: np.zeros_like(values))
    one = Rescaling(NOTHING, lambda values, axis: np.ones_like(values))
    offset, unit = (moments([rescaled(feeds[0], how)])[0] for how in (zero, one))
    mean, variance = moments(feeds)
    live = (expected.variance > 0) & (variance > 0)
    if not live.any():
        return None
    scale = float(np.exp(np.median(np.log(variance[live] / expected.variance[live])) / 2))
    response, wanted = (unit - offset)[live], (expected.mean - offset)[live] * scale
    rest = (mean - offset)[live] - wanted
    power = float(np.square(response).sum())
    shift = float((response * rest).sum() / power) if power > 0 else 0.0
    if not np.isfinite(scale) or not np.isfinite(shift) or scale <= 0:
        return None
    words = message("check_calibration.subtract_about", shift=f"{shift:.3g}", scale=f"{scale:.3g}")
    return Rescaling(words, lambda values, axis: (values - shift) / scale)


def _best(
    feeds: Feeds, score: Callable[[Feeds], float], *, lower: bool, surely: bool = False
) -> tuple[Rescaling | None, float]:
    """The way that does best, with the others that do about as well as far as samples can tell."""
    best: tuple[Rescaling | None, float] = None, np.inf if lower else -np.inf
    tried = []
    for how in rescalings(feeds, surely=surely):
        value = score([rescaled(feed, how) for feed in feeds])
        tried.append((how, value if lower else -value))
        # Of ways that do about as well the more usual one, which comes first, is taken.
        if value < best[1] * _CLEARLY if lower else value > best[1] + (1 - _CLEARLY) * (best[0] is not None):
            best = how, value
    if best[0] is None:
        return best
    limit = best[1] + _SCENES if lower else _CHANCE - best[1]
    near = sorted((each for each in tried if each[1] <= limit), key=lambda each: each[1])
    named = [name for how, _ in near for name in (how.wanted or how.words, *how.also)]
    also = dict.fromkeys(name for name in (*best[0].also, *named) if name not in (best[0].wanted, best[0].words))
    return replace(best[0], also=tuple(also)), best[1]


def _expectations(model: Model) -> Iterator[_Expectation]:
    weights = Weights(model)
    for node in model.proto.graph.node:
        if node.op_type != "BatchNormalization" or len(node.input) < 5:
            continue
        if not all(name in weights.protos for name in node.input[3:5]) or node.input[0] in weights.protos:
            continue
        mean, variance = (weights[name].astype(np.float64).reshape(-1) for name in node.input[3:5])
        # As it was made, before any training, it says nothing.
        trained = bool(np.any(mean)) or not bool(np.all(variance == variance[:1]))
        if trained and bool(np.all(variance >= 0)) and np.any(variance > 0):
            yield _Expectation(node.name, node.input[0], mean, variance)


def _deviation(session: Session, tensors: Sequence[str], expected: Sequence[_Expectation], feeds: Feeds) -> float:
    runs = [session.run(feed) for feed in feeds]
    seen = {name: channel_moments([run[place] for run in runs], 1) for place, name in enumerate(tensors)}
    return float(np.mean([_apart(each, seen[each.tensor]) for each in expected]))


def _apart(expected: _Expectation, moments: tuple[Array, Array]) -> float:
    mean, variance = moments
    live = expected.variance > expected.variance.max() * 1e-6
    smallest = expected.variance[live] * 1e-12
    ratio = np.log(np.maximum(variance[live], smallest) / expected.variance[live])
    shift = np.abs(mean - expected.mean)[live] / np.sqrt(expected.variance[live])
    return float(np.median(np.abs(ratio)) + np.median(shift))
