"""Gains and offsets between two pictures: which channel is which, and what no straight line explains."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from roundoff.core.tensors import Array
from roundoff.messages.message import NOTHING, Message, message
from roundoff.preprocessing.conventions import MeanStd
from roundoff.studies.check_io.layouts import is_whole
from roundoff.studies.check_io.normalization import FLOAT_ROUNDING, ValueChange, Values, name_values
from roundoff.studies.check_io.result import Correction, IoChange

FORWARD = message("check_io.verified_forward")
"""Said of what loses information: the deployed side's values are made from training's."""

# A channel that varies less than this part of its size is constant.
_CONSTANT = 1e-6
# Robust fitting drops what is off by more than this many times the median error, and looks again this often.
_OUTLYING, _ROUNDS = 6.0, 4
_MOST_EXHAUSTIVE = 4
# Values beyond this come from bytes of another type.
_ABSURD = 1e30


@dataclass(frozen=True, slots=True)
class ChannelFit:
    """Which channel of the one side each channel of the other is, and how well.

    Attributes:
        order: For each channel of training, the channel of the deployed side.
        unexplained: Share of training's variance that the best straight line per channel leaves.
        ties: Other orders that do equally well.
    """

    order: tuple[int, ...]
    unexplained: float
    ties: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class LinearFit:
    """Training is `matrix` times the deployed side plus `offset`, both over channels.

    Attributes:
        matrix: float64 [training's channels, deployed channels].
        offset: float64 [training's channels].
    """

    matrix: Array
    offset: Array

    def apply(self, pixels: Array) -> Array:
        """Map [..., deployed channels] to float64 [..., training's channels]."""
        mapped: Array = pixels.astype(np.float64) @ self.matrix.T + self.offset
        return mapped


def best_order(training: Array, deployed: Array) -> ChannelFit | None:
    """Pair channels by correlation.

    Args:
        training: float64 [pixels, channels].
        deployed: float64 [pixels, channels], maybe of another number.

    Returns:
        None when there are no pixels, or the values of either side do not vary.
    """
    if not len(training) or np.abs(deployed).max(initial=0) > _ABSURD:
        return None
    spread_a, spread_b = training.var(axis=0), deployed.var(axis=0)
    varying = spread_a > (_CONSTANT * np.abs(training).max(axis=0, initial=0)) ** 2
    if not varying.any() or not (spread_b > 0).any():
        return None
    # Of training's channel i the best straight line over the deployed channel j leaves var(i) - cov(i, j)^2 /
    # var(j). So one product of matrices judges every pair of channels, and an order costs the sum over its pairs.
    centred_a, centred_b = training - training.mean(axis=0), deployed - deployed.mean(axis=0)
    shared = centred_a.T @ centred_b / len(training)
    with np.errstate(divide="ignore", invalid="ignore"):
        explained = np.where(spread_b > 0, shared**2 / np.where(spread_b > 0, spread_b, 1), 0)
    left = np.where(varying[:, None], np.maximum(spread_a[:, None] - explained, 0), 0)
    total = spread_a[varying].sum()
    scores = {order: float(sum(left[i, j] for i, j in enumerate(order))) / total for order in _orders(left.shape)}
    if not scores:
        return None
    best = min(scores.values())
    # Rounding of sums of squares is about this large.
    equal = [order for order, score in scores.items() if score <= 1.5 * best + 1e-12]
    return ChannelFit(equal[0], scores[equal[0]], tuple(equal[1:]))


def _orders(shape: tuple[int, int]) -> list[tuple[int, ...]]:
    """Assignments to try, the plainest first."""
    wanted, had = shape
    if had == 1:
        return [(0,) * wanted]
    plain = tuple(range(wanted)) if wanted <= had else ()
    if wanted > had:
        return []
    if had > _MOST_EXHAUSTIVE:
        return [plain, plain[::-1]] if wanted == had else [plain]
    turned = plain[:3][::-1] + plain[3:]
    first = list(dict.fromkeys((plain, turned)))
    return first + [order for order in itertools.permutations(range(had), wanted) if order not in first]


def fit_channels(training: Array, deployed: Array, order: tuple[int, ...]) -> LinearFit:
    """The best gain and offset of each channel, in the order given; float64 [pixels, channels] both."""
    matrix = np.zeros((training.shape[1], deployed.shape[1]))
    offset = np.zeros(training.shape[1])
    for channel, source in enumerate(order):
        values, wanted = deployed[:, source], training[:, channel]
        spread = values.var()
        if spread == 0 or wanted.var() == 0:
            gain = 1.0
        else:
            gain = float(((values - values.mean()) * (wanted - wanted.mean())).mean() / spread)
        matrix[channel, source] = gain
        offset[channel] = wanted.mean() - gain * values.mean()
    return LinearFit(matrix, offset)


def fit_colours(training: Array, deployed: Array) -> tuple[LinearFit, Array]:
    """The best mixture of all channels, with pixels left out that were cut off at a limit.

    Returns:
        The fit, and which pixels it holds for.
    """
    # A pixel at the smallest or largest value of a channel may have been cut off there: no line holds for it. What
    # was cut off before a mixture of channels does not show so, and is dropped round by round as an outlier.
    kept = np.ones(len(training), bool)
    for side in (training, deployed):
        for channel in side.T:
            kept &= (channel > channel.min()) & (channel < channel.max())
    design = np.column_stack([deployed, np.ones(len(deployed))])
    solution = np.zeros((design.shape[1], training.shape[1]))
    for _ in range(_ROUNDS):
        if kept.sum() < 4 * design.shape[1]:
            break
        solution = np.linalg.lstsq(design[kept], training[kept], rcond=None)[0]
        error = np.abs(training - design @ solution).max(axis=1)
        limit = _OUTLYING * np.median(error[kept]) + 1e-9
        if (kept & (error > limit)).sum() == 0:
            break
        kept &= error <= limit
    return LinearFit(solution[:-1].T, solution[-1]), kept


PixelPairs = Iterable[tuple[Array, Array]]
"""Per sample: training's picture and the deployed one, as [pixels, channels]."""

Pairs = Callable[[], PixelPairs]

_ROWS = 1 << 17  # pixels that are verified at a time
_MOST_FITTED = 400_000  # pixels; a straight line needs no more
# A residual this much smaller than the difference leaves no doubt about the transformation.
CLEARLY_SMALLER = 100.0
# Rounding to whole numbers is off by half a step at most, and the fit by a little.
_HALF_STEP = 0.56
_FEWEST_LEVELS = 8
# Where rounding is claimed, this share of the variance must be explained all the same.
_MOST_UNEXPLAINED = 0.02
_FITTED = 10.0
_NOT_WORSE = 3.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to read the deployed side.

    Attributes:
        changes: What differs when it is right, but for channels and values.
        pairs: Gives the pictures of all samples, read so.
        fit: Which channel is which, on a sample of pixels.
    """

    changes: tuple[IoChange, ...]
    pairs: Pairs
    fit: ChannelFit

    @property
    def count(self) -> int:
        """How many changes, the order of channels among them."""
        return len(self.changes) + (order_change(self.fit.order, len(self.fit.order)) is not None)


@dataclass(frozen=True, slots=True)
class Claim:
    """A transformation with its proof.

    Attributes:
        changes: What differs.
        linear: The map of values, over channels.
        exact: Whether nothing beyond the tolerance is left.
        accepted: Whether it explains the difference clearly.
        plain: Whether the values' part of it is a gain and an offset without a meaning.
        fitted: Whether its numbers are those of a fit, and not known beforehand.
        residual: Largest absolute difference left.
        rms: Root mean square of what is left.
        spread: Standard deviation of training's values.
        notes: What is left, and what cannot be told.
        alternatives: Other meanings of the same numbers.
        training: How training makes numbers of pixels; empty when not known.
    """

    changes: tuple[IoChange, ...]
    linear: LinearFit
    exact: bool
    accepted: bool
    plain: bool
    fitted: bool
    residual: float
    rms: float
    spread: float
    notes: tuple[Message, ...] = ()
    alternatives: tuple[Message, ...] = ()
    training: Message = NOTHING

    @property
    def guessed(self) -> bool:
        """Whether its numbers come of the values themselves; under noise these prove nothing."""
        return self.fitted or any(change.kind == "codes" for change in self.changes)

    @property
    def proven(self) -> bool:
        """Whether it holds, also where it says that nothing differs."""
        return self.accepted or self.exact


def better(claim: Claim) -> tuple[bool, bool, int, bool, float]:
    """Sort key: proven claims first, then those of few and named changes."""
    return (not claim.accepted, not claim.exact, len(claim.changes), claim.plain, claim.residual)


def sample_pixels(pairs: PixelPairs, most: int) -> tuple[Array, Array]:
    """At most so many pixels of both sides, finite ones, evenly from all samples; float64 [pixels, channels]."""
    step, held = 1, 0
    firsts: list[Array] = []
    seconds: list[Array] = []
    for training, deployed in pairs:
        own = max(step, len(training) // most)
        firsts.append(training[::own].astype(np.float64))
        seconds.append(deployed[::own].astype(np.float64))
        held += len(firsts[-1])
        while held > 2 * most:
            # Every second one of all, so that samples count alike however many there are.
            firsts, seconds = ([each[::2] for each in side] for side in (firsts, seconds))
            step, held = 2 * step, sum(map(len, firsts))
    first, second = np.concatenate(firsts), np.concatenate(seconds)
    finite = np.isfinite(first).all(axis=1) & np.isfinite(second).all(axis=1)
    return first[finite], second[finite]


@dataclass(frozen=True, slots=True)
class ClaimCriteria:
    """By what claims are judged.

    Attributes:
        tolerance: Differences up to this do not count.
        before_rms: Root mean square of the difference as it was; None where shapes differ.
        known: Means and stds of the user's own.
    """

    tolerance: float
    before_rms: float | None = None
    known: tuple[MeanStd, ...] = ()


def verify(candidate: Candidate, judging: ClaimCriteria) -> Claim | None:
    """Fit and name the map of values, and see what it leaves on every value.

    Args:
        candidate: The way to read the deployed side.
        judging: By what it is judged.

    Returns:
        None when there is nothing to fit.
    """
    # Fitted on a sample of pixels, named, and then judged by what the name's own numbers leave on every value: a
    # fit that happens to be near a name is no proof, a residual of rounding on all samples is.
    first, second = sample_pixels(candidate.pairs(), _MOST_FITTED)
    chosen = best_order(first, second)
    if chosen is None:
        return None
    order = chosen.order
    fit = fit_channels(first, second, order)
    values = _values(first, second, fit, order)
    names = name_values(values, order, tolerance=judging.tolerance, known=judging.known)
    changes = (*candidate.changes, *_listed(order_change(order, second.shape[1])))
    judge = partial(_claim, changes, candidate=candidate, order=order, values=values, judging=judging)
    claims = [judge(named) for named in names]
    best = min(claims, key=lambda claim: (not claim.accepted, not claim.exact, claim.guessed))
    if changes and not best.exact:
        # What was misread may have lost digits; a gain of nearly one is no change of its own.
        as_is = judge(ValueChange(None, np.ones(len(order)), np.zeros(len(order))))
        best = as_is if as_is.rms <= _NOT_WORSE * best.rms else best
    others = [
        claim.changes[-1].text
        for claim in claims
        if claim.changes not in (best.changes, ())
        and not claim.plain
        and (claim.accepted, claim.exact, claim.guessed) == (best.accepted, best.exact, best.guessed)
    ]
    notes = best.notes
    if chosen.ties and len(order) > 1 and second.shape[1] > 1:
        notes = (*notes, message("check_io.too_much_alike"))
    return replace(best, notes=notes, alternatives=tuple(dict.fromkeys(others)))


def _claim(
    changes: tuple[IoChange, ...],
    named: ValueChange,
    *,
    candidate: Candidate,
    order: tuple[int, ...],
    values: Values,
    judging: ClaimCriteria,
) -> Claim:
    channels = len(values.gain)
    matrix = np.zeros((channels, max(order) + 1))
    matrix[np.arange(channels), list(order)] = named.gain
    left = residuals(candidate.pairs(), LinearFit(matrix, named.offset), channels_used=max(order) + 1)
    slack = judging.tolerance + FLOAT_ROUNDING * left.largest
    exact = left.worst <= slack
    full = (*changes, *_listed(named.change))
    reference = left.spread if judging.before_rms is None else min(judging.before_rms, left.spread)
    # Numbers that were fitted always explain some; they have to explain more than those with a name.
    clearly = left.rms * CLEARLY_SMALLER * (_FITTED if named.fitted else 1) <= reference
    rounded = _is_rounding(left, named, values)
    notes: tuple[Message, ...] = (named.note,) if named.note else ()
    if not exact and rounded:
        notes += (message("check_io.whole_numbers", step=f"{float(np.abs(named.gain).max()):.4g}"),)
    accepted = bool(full) and (exact or clearly or (rounded and not named.plain))
    return Claim(
        changes=full,
        linear=LinearFit(matrix, named.offset),
        exact=exact,
        accepted=accepted,
        plain=named.plain,
        fitted=named.fitted,
        residual=left.worst,
        rms=left.rms,
        spread=left.spread,
        notes=notes,
        training=named.training,
    )


@dataclass(frozen=True, slots=True)
class _Left:
    worst: float
    rms: float
    spread: float
    largest: float


def residuals(pairs: PixelPairs, linear: LinearFit, *, channels_used: int) -> _Left:
    """What a map leaves, over all values; where one side is not finite both have to be."""
    worst = total = square = mean = 0.0
    largest, count = 0.0, 0
    for training, deployed in (
        (one[start : start + _ROWS], other[start : start + _ROWS, :channels_used])
        for one, other in pairs
        for start in range(0, len(one), _ROWS)
    ):
        wanted = training.astype(np.float64)
        error = np.abs(wanted - linear.apply(deployed))
        odd = ~np.isfinite(error)
        if odd.any():
            same = odd & (np.isnan(wanted) == np.isnan(deployed.astype(np.float64)).any(axis=1, keepdims=True))
            error, wanted = (
                np.where(same, 0, np.where(odd, np.inf, error)),
                np.where(np.isfinite(wanted), wanted, 0),
            )
        worst = max(worst, float(error.max(initial=0)))
        square += float(np.square(error).sum())
        mean += float(wanted.sum())
        total += float(np.square(wanted).sum())
        largest = max(largest, float(np.abs(wanted).max(initial=0)))
        count += error.size
    count = max(count, 1)
    variance = max(total / count - (mean / count) ** 2, 0.0)
    return _Left(worst, float(np.sqrt(square / count)), float(np.sqrt(variance)), largest)


def _is_rounding(left: _Left, named: ValueChange, values: Values) -> bool:
    """Whether what is left is what rounding one side to whole numbers leaves."""
    # Rounded on the deployed side, the error is half a step there, times the gain; rounded in training, half of 1.
    step = float(np.abs(named.gain).max()) if values.whole else 1.0 if values.training_whole else 0.0
    if not step or values.levels < _FEWEST_LEVELS:
        return False
    small = left.rms**2 <= _MOST_UNEXPLAINED * left.spread**2
    return left.worst <= _HALF_STEP * step + FLOAT_ROUNDING * left.largest and small


def _values(first: Array, second: Array, fit: LinearFit, order: Sequence[int]) -> Values:
    picked = second[:, list(order)]
    gain = fit.matrix[np.arange(len(order)), list(order)]
    error = first - (picked * gain + fit.offset)
    return Values(
        gain=gain,
        offset=fit.offset,
        low=picked.min(axis=0),
        high=picked.max(axis=0),
        mean=picked.mean(axis=0),
        spread=picked.std(axis=0),
        rms=np.sqrt(np.square(error).mean(axis=0)),
        whole=is_whole(picked),
        levels=len(np.unique(picked[:20_000])),
        training_whole=is_whole(first),
    )


def order_change(order: tuple[int, ...], channels: int) -> IoChange | None:
    """What an order of channels means; None for channels as they are."""
    plain = tuple(range(len(order)))
    if order == plain and channels == len(order):
        return None
    count, setting = len(order), message("check_io.set_order")
    if channels == 1:
        value = message("check_io.set_channels", count=count)
        correction = Correction(message("check_io.set_colours"), value, (("colours", "RGB or BGR"),))
        return IoChange("channels", message("check_io.one_gray", count=count), correction)
    turned = order == plain[:3][::-1] + plain[3:]
    if order == plain or (turned and channels > count):
        key = "check_io.last_dropped_turned" if turned and count > 1 else "check_io.last_dropped"
        correction = Correction(message("check_io.set_colours"), message("check_io.set_alpha"))
        return IoChange("channels", message(key, count=channels, training=count), correction)
    if turned:
        value, facts = message("check_io.set_order_training"), (("order of channels", "training's"),)
        return IoChange("channel-order", message("check_io.rgb_bgr"), Correction(setting, value, facts))
    places = ", ".join(map(str, order))
    text = message("check_io.permuted_channels", channels=places)
    return IoChange("channel-order", text, Correction(setting, message("check_io.set_take", channels=places)))


def _listed(change: IoChange | None) -> tuple[IoChange, ...]:
    return () if change is None else (change,)
