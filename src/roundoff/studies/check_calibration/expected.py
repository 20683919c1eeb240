"""What the model itself says of its inputs: statistics of its first batch normalizations, and right answers.

A batch normalization stores the mean and variance that its input had in training. When samples are prepared as
they were then, it sees the same again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.graph.shapes import channel_moments, input_channel_axis
from roundoff.graph.subgraph import tap
from roundoff.graph.weights import Weights
from roundoff.run.evaluators import class_predictions
from roundoff.run.session import Session, open_session
from roundoff.studies.check_calibration.slips import Way, fills, slips

__all__ = [
    "FAR",
    "Rescaling",
    "Slip",
    "from_one_to_other",
    "rescaled",
    "rescalings",
    "slip_by_labels",
    "slip_by_statistics",
]


# Ways in which inputs are changed, as functions: by one of them a slip is put right and so proven.


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
class Slip:
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


def slip_by_statistics(model: Model, feeds: Feeds, *, threads: int | None = None) -> Slip | None:
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
        return Slip(None, before, before, expected[0].node, usual=False)
    return Slip(how, before, after, expected[0].node, usual=how is usual)


def slip_by_labels(
    model: Model, feeds: Feeds, labels: Sequence[int], *, threads: int | None = None
) -> Slip | None:
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
    return Slip(how, before, after)


def _fitted(session: Session, tensors: Sequence[str], expected: _Expectation, feeds: Feeds) -> Rescaling | None:
    """The one shift and scale of all inputs after which the first batch normalization fits best.

    What is before it is nearly always linear: scaling the input scales the result, and the result of a constant
    input says what a shift does.
    """
    place = tensors.index(expected.tensor)

    def moments(each: Feeds) -> tuple[Array, Array]:
        return channel_moments([session.run(feed)[place] for feed in each], 1)

    zero = Rescaling("", lambda values, axis: np.zeros_like(values))
    one = Rescaling("", lambda values, axis: np.ones_like(values))
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
    words = f"subtract about {shift:.3g}, then divide by about {scale:.3g}"
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
