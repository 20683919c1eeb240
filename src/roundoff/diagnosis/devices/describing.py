"""What a wrong tensor looks like: which channels, which positions, how often."""

import numpy as np

from roundoff.analysis.difference import describe
from roundoff.core.measure import channel_axis_of, measure_pair
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.bench import Pair

__all__ = ["pattern"]

# Few channels, or the border, are to blame when they have this part of the error.
_MOST = 0.9
_FEW_CHANNELS = 0.34
_NAMED = 5
# A border says something when it is less than this part of the picture.
_LARGEST_BORDER = 0.7
# Pixels that a picture may be off.
_FARTHEST = 2


def pattern(pairs: tuple[Pair, ...]) -> str:
    """Where the error is, in words."""
    wrong = [np.square(np.nan_to_num(pair.found - pair.exact).astype(np.float64)) for pair in pairs]
    beyond = np.mean([np.mean(np.abs(pair.found - pair.exact) > pair.expected.tolerance) for pair in pairs])
    share = f"{beyond:.1%} of its values are off by more than that"
    where = _channels(wrong) or _border(wrong) or _shift(pairs) or _kind(pairs)
    return f"{share}, {where}" if where else share


def _channels(wrong: list[Array]) -> str:
    axis = channel_axis_of(wrong[0].shape)
    if axis is None or any(each.shape[axis] != wrong[0].shape[axis] for each in wrong):
        return ""
    others = tuple(place for place in range(wrong[0].ndim) if place != axis)
    by_channel = np.sum([each.sum(axis=others) for each in wrong], axis=0)
    order = np.argsort(-by_channel)
    needed = int(np.searchsorted(np.cumsum(by_channel[order]), _MOST * by_channel.sum())) + 1
    if by_channel.size < 3 or needed > max(1, _FEW_CHANNELS * by_channel.size):
        return ""
    named = ", ".join(str(index) for index in sorted(order[:needed][:_NAMED].tolist()))
    more = " and others" if needed > _NAMED else ""
    return f"almost all in channel{'s' if needed > 1 else ''} {named}{more} of {by_channel.size}"


def _border(wrong: list[Array]) -> str:
    picture = sum(each.reshape(-1, *each.shape[-2:]).sum(axis=0) for each in wrong) if wrong[0].ndim == 4 else None
    if picture is None or min(picture.shape) < 4:
        return ""
    inside = float(picture[1:-1, 1:-1].sum())
    outer = 1 - (picture.shape[0] - 2) * (picture.shape[1] - 2) / picture.size
    if outer < _LARGEST_BORDER and inside <= (1 - _MOST) * float(picture.sum()):
        return "almost all at the border: its padding"
    return ""


def _shift(pairs: tuple[Pair, ...]) -> str:
    """Whether pictures are the right ones, some pixels away."""
    if pairs[0].exact.ndim != 4 or min(pairs[0].exact.shape[-2:]) <= 2 * _FARTHEST:
        return ""
    best, shift = np.inf, (0, 0)
    for down in range(-_FARTHEST, _FARTHEST + 1):
        for right in range(-_FARTHEST, _FARTHEST + 1):
            left = sum(_inner(pair.found - np.roll(pair.exact, (down, right), (-2, -1))) for pair in pairs)
            if left < best:
                best, shift = left, (down, right)
    as_is = sum(_inner(pair.found - pair.exact) for pair in pairs)
    if shift == (0, 0) or best > (1 - _MOST) * as_is:
        return ""
    return f"as if shifted by {shift[0]:+d} rows and {shift[1]:+d} columns: its padding, or where windows start"


def _inner(difference: Array) -> float:
    """Energy of a difference, without what a shift moves in from the other side."""
    inside = np.nan_to_num(difference[..., _FARTHEST:-_FARTHEST, _FARTHEST:-_FARTHEST]).astype(np.float64)
    return float(np.square(inside).sum())


def _kind(pairs: tuple[Pair, ...]) -> str:
    worst = max(pairs, key=lambda pair: float(np.square(np.nan_to_num(pair.found - pair.exact)).sum()))
    with np.errstate(all="ignore"):
        moments = measure_pair(worst.exact, worst.found, channel_axis=channel_axis_of(worst.exact.shape))
        found = describe(moments, worst.exact, worst.found)
    return "" if found.kind == "noise" else found.text
