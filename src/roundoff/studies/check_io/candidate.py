"""Trying one way to read the deployed side: fit, name, and verify on every value of every sample."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from roundoff.core.tensors import Array
from roundoff.messages.message import NOTHING, Message, message
from roundoff.preprocessing.conventions import MeanStd
from roundoff.studies.check_io.fitting import ChannelFit, LinearFit, best_order, fit_channels
from roundoff.studies.check_io.naming import Named, Values, name_values
from roundoff.studies.check_io.result import Correction, InputChange
from roundoff.studies.check_io.storage import is_whole

__all__ = ["Claim", "Judging", "Pairs", "PixelPairs", "Trial", "better", "order_change", "sample_pixels", "verify"]

PixelPairs = Iterable[tuple[Array, Array]]
"""Per sample: training's picture and the deployed one, as [pixels, channels]."""

Pairs = Callable[[], PixelPairs]

_ROWS = 1 << 17  # pixels that are verified at a time
_MOST_FITTED = 400_000  # pixels; a straight line needs no more
_FLOAT_ROUNDING = 4e-7
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
class Trial:
    """One way to read the deployed side.

    Attributes:
        changes: What differs when it is right, but for channels and values.
        pairs: Gives the pictures of all samples, read so.
        fit: Which channel is which, on a sample of pixels.
    """

    changes: tuple[InputChange, ...]
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
        residual: Largest absolute difference left.
        rms: Root mean square of what is left.
        spread: Standard deviation of training's values.
        notes: What is left, and what cannot be told.
        alternatives: Other meanings of the same numbers.
        training: How training makes numbers of pixels; empty when not known.
    """

    changes: tuple[InputChange, ...]
    linear: LinearFit
    exact: bool
    accepted: bool
    plain: bool
    residual: float
    rms: float
    spread: float
    notes: tuple[Message, ...] = ()
    alternatives: tuple[Message, ...] = ()
    training: Message = NOTHING


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
class Judging:
    """By what claims are judged.

    Attributes:
        tolerance: Differences up to this do not count.
        before_rms: Root mean square of the difference as it was; None where shapes differ.
        known: Means and stds of the user's own.
    """

    tolerance: float
    before_rms: float | None = None
    known: tuple[MeanStd, ...] = ()


def verify(trial: Trial, judging: Judging) -> Claim | None:
    """Fit and name the map of values, and see what it leaves on every value.

    Args:
        trial: The way to read the deployed side.
        judging: By what it is judged.

    Returns:
        None when there is nothing to fit.
    """
    first, second = sample_pixels(trial.pairs(), _MOST_FITTED)
    chosen = best_order(first, second)
    if chosen is None:
        return None
    order = chosen.order
    fit = fit_channels(first, second, order)
    values = _values(first, second, fit, order)
    names = name_values(values, order, tolerance=judging.tolerance, known=judging.known)
    changes = (*trial.changes, *_listed(order_change(order, second.shape[1])))
    judge = partial(_claim, changes, trial=trial, order=order, values=values, judging=judging)
    claims = [judge(named) for named in names]
    best = min(claims, key=lambda claim: (not claim.accepted, not claim.exact))
    if trial.changes and not best.exact:
        # What was misread may have lost digits; a gain of nearly one is no change of its own.
        as_is = judge(Named(None, np.ones(len(order)), np.zeros(len(order))))
        best = as_is if as_is.rms <= _NOT_WORSE * best.rms else best
    others = [
        claim.changes[-1].text
        for claim in claims
        if claim.changes != best.changes and claim.accepted and not claim.plain and claim.exact == best.exact
    ]
    notes = best.notes
    if chosen.ties and len(order) > 1 and second.shape[1] > 1:
        notes = (*notes, message("check_io.too_much_alike"))
    return replace(best, notes=notes, alternatives=tuple(dict.fromkeys(others)))


def _claim(
    changes: tuple[InputChange, ...],
    named: Named,
    *,
    trial: Trial,
    order: tuple[int, ...],
    values: Values,
    judging: Judging,
) -> Claim:
    channels = len(values.gain)
    matrix = np.zeros((channels, max(order) + 1))
    matrix[np.arange(channels), list(order)] = named.gain
    left = residuals(trial.pairs(), LinearFit(matrix, named.offset), channels_used=max(order) + 1)
    slack = judging.tolerance + _FLOAT_ROUNDING * left.largest
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


def _is_rounding(left: _Left, named: Named, values: Values) -> bool:
    """Whether what is left is what rounding one side to whole numbers leaves."""
    step = float(np.abs(named.gain).max()) if values.whole else 1.0 if values.training_whole else 0.0
    if not step or values.levels < _FEWEST_LEVELS:
        return False
    small = left.rms**2 <= _MOST_UNEXPLAINED * left.spread**2
    return left.worst <= _HALF_STEP * step + _FLOAT_ROUNDING * left.largest and small


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
        rms=float(np.sqrt(np.square(error).mean())),
        whole=is_whole(picked),
        levels=len(np.unique(picked[:20_000])),
        training_whole=is_whole(first),
    )


def order_change(order: tuple[int, ...], channels: int) -> InputChange | None:
    """What an order of channels means; None for channels as they are."""
    plain = tuple(range(len(order)))
    if order == plain and channels == len(order):
        return None
    count, setting = len(order), message("check_io.set_order")
    if channels == 1:
        value = message("check_io.set_channels", count=count)
        correction = Correction(message("check_io.set_colours"), value, (("colours", "RGB or BGR"),))
        return InputChange("channels", message("check_io.one_gray", count=count), correction)
    turned = order == plain[:3][::-1] + plain[3:]
    if order == plain or (turned and channels > count):
        key = "check_io.last_dropped_turned" if turned and count > 1 else "check_io.last_dropped"
        correction = Correction(message("check_io.set_colours"), message("check_io.set_alpha"))
        return InputChange("channels", message(key, count=channels, training=count), correction)
    if turned:
        value, facts = message("check_io.set_order_training"), (("order of channels", "training's"),)
        return InputChange("channel-order", message("check_io.rgb_bgr"), Correction(setting, value, facts))
    places = ", ".join(map(str, order))
    text = message("check_io.permuted_channels", channels=places)
    return InputChange("channel-order", text, Correction(setting, message("check_io.set_take", channels=places)))


def _listed(change: InputChange | None) -> tuple[InputChange, ...]:
    return () if change is None else (change,)
