"""What is wrong with a tensor, by what it is and what it should be: its scale, offset, ends, channels."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from roundoff.core.tensors import Array
from roundoff.messages.message import english
from roundoff.messages.numbers import first_of

CauseKind = Literal["scale", "offset", "shift", "saturation", "sums", "channel", "overflow", "other"]
Numbers = Literal["codes", "sums", "values"]
"""What a tensor holds: codes less their offset, sums of them, or numbers."""

Fused = Literal["", "compared", "replayed"]

_CLIPPED = 0.005
"""A share of values cut off at one end that is no accident."""

_FEW = 16
"""Values from which a line can be told."""

_TOGETHER = 3
"""Values at one end from which they are cut off there: one of them is always the last."""

_EXPLAINED = 0.35
"""What of an error a cause may leave."""

_ENOUGH = 1 << 20
"""Values from which a cause is told; of more, every so many."""

_CORNER = 8
_NAMED = 5
_ALIVE = 0.1
"""What the spread of a channel is at least, relative to that of the whole, to be missed when it is gone."""

_ONE_NUMBER = 0.9
"""The share of codes that a wrong offset moves by one and the same number; rounding may move others otherwise."""

_GAIN = 0.02
_SHIFT = 0.75
"""From how much on a scale is another one; and how many codes an offset must be off."""


@dataclass(frozen=True, slots=True)
class FaultCause:
    """Why a tensor is wrong.

    Attributes:
        kind: Which cause.
        text: The cause with its numbers.
    """

    kind: CauseKind
    text: str


def cause_of(
    found: Array, exact: Array, *, numbers: Numbers, coded: bool, fused: Fused = "", axis: int = 1
) -> FaultCause | None:
    """The cause that explains most of an error; None when none of these does.

    Args:
        found: What the device holds, in the shape of the original.
        exact: What it should hold.
        numbers: What they are.
        coded: Whether a scale or an offset can be at fault here: codes, and what was made of codes.
        fused: How it is known what an operator should write that computes more than codes, so that what it adds
            looks like an offset of them; empty for one that does not.
        axis: The axis of channels.
    """
    if found.shape != exact.shape or not found.size:
        return None
    dead = dead_channels(found, exact, axis=axis)
    if dead:
        named = first_of(list(map(str, dead)), _NAMED)
        text = english("channel {named} of {all} holds one value only", named=named, all=found.shape[axis])
        return FaultCause("channel", text)
    every = found.size // _ENOUGH + 1
    left, right = (side.reshape(-1)[::every].astype(np.float64) for side in (found, exact))
    if not np.isfinite(right).all():
        return None
    lost = ~np.isfinite(left)
    if lost.any():
        text = english(
            "overflow: {share:.2%} of the values are not finite where they should reach {reach:.6g}",
            share=float(lost.mean()),
            reach=float(max(right[lost], key=abs)),
        )
        return FaultCause("overflow", text)
    line = _line(left, right, numbers=numbers, fused=fused) if coded else None
    return _clipped(left, right, numbers=numbers) or line


def dead_channels(found: Array, exact: Array, *, axis: int = 1) -> tuple[int, ...]:
    """Channels of pictures that hold one value while those of the other side do not."""
    if found.ndim < 4 or found.shape != exact.shape or found.shape[axis] < 2 or found.dtype.kind not in "fiu":
        return ()
    mine, golden = (np.moveaxis(side, axis, 0) for side in (found, exact))
    # A corner tells of most channels that they are alive.
    part: tuple[slice, ...] = (slice(None), slice(1), *(slice(_CORNER),) * (found.ndim - 2))
    corner = mine[part].reshape(len(mine), -1)
    flat = np.flatnonzero((corner == corner[:, :1]).all(axis=1))
    dead = [int(place) for place in flat if mine[place].min() == mine[place].max()]
    if not dead or len(dead) == len(mine):
        return ()
    with np.errstate(all="ignore"):
        usual = float(np.std(exact, dtype=np.float64))
        return tuple(place for place in dead if np.std(golden[place], dtype=np.float64) > _ALIVE * usual)


def moved(found: Array, exact: Array) -> int:
    """By how many codes nearly all are off alike, those at the ends aside; rounding moves a few, either way."""
    if not found.size:
        return 0
    ends = (found > found.min()) & (found < found.max())
    apart = np.rint(found[ends] - exact[ends])
    if not apart.size:
        return 0
    usual = float(np.median(apart))
    return round(usual) if float((apart == usual).mean()) >= _ONE_NUMBER else 0


def _clipped(found: Array, exact: Array, *, numbers: Numbers) -> FaultCause | None:
    low, high = float(found.min()), float(found.max())
    above, below = (found >= high) & (exact > high), (found <= low) & (exact < low)
    clipped = above | below
    share = float(clipped.mean())
    rest = found[~clipped] - exact[~clipped]
    whole = float(np.square(found - exact).sum())
    if (
        share < _CLIPPED
        or max(above.sum(), below.sum()) < _TOGETHER
        or float(np.square(rest).sum()) > _EXPLAINED**2 * whole
    ):
        return None
    end, reach = (high, float(exact.max())) if above.sum() >= below.sum() else (low, float(exact.min()))
    if numbers == "sums":
        text = english(
            "clipped sums: {share:.2%} end at {end:.6g} where they should reach {reach:.6g}",
            share=share,
            end=end,
            reach=reach,
        )
        return FaultCause("sums", text)
    what = english("codes") if numbers == "codes" else english("values")
    text = english(
        "saturation: {share:.2%} of the {what} end at {end:.6g} where they should reach {reach:.6g}",
        share=share,
        what=what,
        end=end,
        reach=reach,
    )
    return FaultCause("saturation", text)


def _line(found: Array, exact: Array, *, numbers: Numbers, fused: Fused) -> FaultCause | None:
    inside = (found > found.min()) & (found < found.max()) & (exact > exact.min()) & (exact < exact.max())
    left, right = found[inside], exact[inside]
    if left.size < _FEW or not right.std() or not left.std():
        return None
    before = np.square(left - right).sum()
    through = float(left @ right / (right @ right))
    shift = float((left - right).mean())
    gain = float(np.cov(right, left)[0, 1] / right.var(ddof=1))
    both = float(left.mean() - gain * right.mean())
    limit = _EXPLAINED**2 * before
    # One number before two: a scale alone, an offset alone, then both.
    if np.square(left - through * right).sum() <= limit and abs(through - 1) > _GAIN:
        return FaultCause("scale", english("wrong scale: {gain:.4g} times what it should be", gain=1 / through))
    if np.square(left - right - shift).sum() <= limit:
        return _shifted(left, right, shift, fused=fused) if numbers == "codes" and abs(shift) > _SHIFT else None
    if np.square(left - gain * right - both).sum() <= limit and abs(gain - 1) > _GAIN and numbers == "codes":
        text = english(
            "wrong scale: {gain:.4g} times what it should be, with an offset of {shift:+.4g} codes",
            gain=1 / gain,
            shift=both,
        )
        return FaultCause("scale", text)
    return None


def _shifted(found: Array, exact: Array, shift: float, *, fused: Fused) -> FaultCause:
    """Codes that are off by one number: that of an offset is whole, what is added before rounding hardly ever."""
    if fused == "replayed" and not moved(found, exact):
        text = english("a constant is added before the codes, {shift:+.4g} of them", shift=shift)
        return FaultCause("shift", text)
    if fused == "compared":
        text = english("wrong offset, or a constant added before the codes: {shift:+.4g} of them", shift=shift)
        return FaultCause("offset", text)
    return FaultCause("offset", english("wrong offset: {shift:+.4g} codes from what it should be", shift=shift))
