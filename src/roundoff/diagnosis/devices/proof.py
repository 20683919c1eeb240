"""How an intervention on a device's tensor is judged: by what is left of its error."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.replay import Pair
from roundoff.diagnosis.devices.suspects import DeviceSuspect
from roundoff.diagnosis.registry import Intervention
from roundoff.diagnosis.result import Measure, RemedyChange
from roundoff.measure.metrics import ratio_db
from roundoff.measure.pairs import channel_axis_of, measure_pair
from roundoff.messages.message import Argument, Message, as_message, joined, message, short_name
from roundoff.studies.compare.difference import describe

# Few channels, or the border, are to blame when they have this part of the error.
_MOST = 0.9
_FEW_CHANNELS = 0.34
_NAMED = 5
# A border says something when it is less than this part of the picture.
_LARGEST_BORDER = 0.7
# Pixels that a picture may be off.
_FARTHEST = 2


def pattern(pairs: tuple[Pair, ...]) -> Message:
    """Where the error is."""
    wrong = [np.square(np.nan_to_num(pair.found - pair.exact).astype(np.float64)) for pair in pairs]
    beyond = [np.mean(pair.off) for pair in pairs]
    share = float(np.mean(beyond))
    where = _channels(wrong) or _border(wrong) or _shift(pairs) or _kind(pairs)
    if where is None:
        return message("diagnosis.pattern_share", share=share)
    return message("diagnosis.pattern_share_where", share=share, where=where)


def _channels(wrong: list[Array]) -> Message | None:
    axis = channel_axis_of(wrong[0].shape)
    if axis is None or any(each.shape[axis] != wrong[0].shape[axis] for each in wrong):
        return None
    others = tuple(place for place in range(wrong[0].ndim) if place != axis)
    by_channel = np.sum([each.sum(axis=others) for each in wrong], axis=0)
    order = np.argsort(-by_channel)
    needed = int(np.searchsorted(np.cumsum(by_channel[order]), _MOST * by_channel.sum())) + 1
    if by_channel.size < 3 or needed > max(1, _FEW_CHANNELS * by_channel.size):
        return None
    key = f"diagnosis.pattern_channel{'s_more' if needed > _NAMED else 's' if needed > 1 else ''}"
    return message(key, channels=tuple(sorted(order[:needed][:_NAMED].tolist())), all=by_channel.size)


def _border(wrong: list[Array]) -> Message | None:
    picture = sum(each.reshape(-1, *each.shape[-2:]).sum(axis=0) for each in wrong) if wrong[0].ndim == 4 else None
    if picture is None or min(picture.shape) < 4:
        return None
    inside = float(picture[1:-1, 1:-1].sum())
    outer = 1 - (picture.shape[0] - 2) * (picture.shape[1] - 2) / picture.size
    if outer < _LARGEST_BORDER and inside <= (1 - _MOST) * float(picture.sum()):
        return message("diagnosis.pattern_border")
    return None


def _shift(pairs: tuple[Pair, ...]) -> Message | None:
    """Whether pictures are the right ones, some pixels away."""
    if pairs[0].exact.ndim != 4 or min(pairs[0].exact.shape[-2:]) <= 2 * _FARTHEST:
        return None
    best, shift = np.inf, (0, 0)
    for down in range(-_FARTHEST, _FARTHEST + 1):
        for right in range(-_FARTHEST, _FARTHEST + 1):
            left = sum(_inner(pair.found - np.roll(pair.exact, (down, right), (-2, -1))) for pair in pairs)
            if left < best:
                best, shift = left, (down, right)
    as_is = sum(_inner(pair.found - pair.exact) for pair in pairs)
    if shift == (0, 0) or best > (1 - _MOST) * as_is:
        return None
    return message("diagnosis.pattern_shifted", down=shift[0], right=shift[1])


def _inner(difference: Array) -> float:
    """Energy of a difference, without what a shift moves in from the other side."""
    inside = np.nan_to_num(difference[..., _FARTHEST:-_FARTHEST, _FARTHEST:-_FARTHEST]).astype(np.float64)
    return float(np.square(inside).sum())


def _kind(pairs: tuple[Pair, ...]) -> Message | None:
    worst = max(pairs, key=lambda pair: float(np.square(np.nan_to_num(pair.found - pair.exact)).sum()))
    with np.errstate(all="ignore"):
        moments = measure_pair(worst.exact, worst.found, channel_axis=channel_axis_of(worst.exact.shape))
        found = describe(moments, worst.exact, worst.found)
    return None if found.kind == "noise" else as_message(found.text)


# Single channels of a tensor that have a gain or an offset of their own.

LineFit = Callable[[Array, Array], tuple[float, float] | None]
LineOf = Literal["line", "lines", "line_reference"]

# A channel is wrong when its error has so many times the energy that is expected, and that others have.
_WRONG = 4.0
# More of the channels than this are not single ones.
_FEWEST_CHANNELS = 3
# One number cannot be told from fewer values, two not from fewer than these.
_FEWEST, _FEWEST_OF_TWO = 3, 8
# A line explains a channel when it takes away all but this part of its error, and no more is left than so many
# times what is expected anyway; a line that leaves less than this part of another is worth one more number.
_UNEXPLAINED, _MOST_LEFT, _CLEARLY_LESS = 0.1, 30.0, 0.5


@dataclass(frozen=True, slots=True)
class ChannelLine:
    """What one channel is of what it should be.

    Attributes:
        channel: Which one.
        gain: Its gain; more than zero.
        offset: Its offset.
    """

    channel: int
    gain: float
    offset: float

    @property
    def message(self) -> Message:
        """The same as a factor, a summand, or both."""
        if self.offset == 0:
            return message("diagnosis.channel_line_gain", channel=self.channel, gain=self.gain)
        if self.gain == 1:
            return message("diagnosis.channel_line_offset", channel=self.channel, offset=self.offset)
        return message("diagnosis.channel_line", channel=self.channel, gain=self.gain, offset=self.offset)


def channel_lines(
    pairs: Sequence[Pair], fit: LineFit, *, limit: tuple[float, float] = (-np.inf, np.inf)
) -> tuple[ChannelLine, ...]:
    """Gain and offset of the channels that are wrong; none when these are many, or one is wrong in another way.

    Args:
        pairs: The tensor and what it should be, in some samples.
        fit: Gain and offset of a line by most of its values.
        limit: Where values end.
    """
    shape = pairs[0].found.shape
    axis = channel_axis_of(shape)
    if axis is None or shape[axis] < _FEWEST_CHANNELS or any(p.found.shape[axis] != shape[axis] for p in pairs):
        return ()
    exact, found = (_by_channel([side(pair) for pair in pairs], axis) for side in (_free, _found))
    expected = sum(pair.expected.noise * pair.found.size for pair in pairs) / shape[axis]
    # Cut off like the device's own values, those that end early are right.
    error = np.square(found - np.clip(exact, *limit)).sum(axis=1)
    if not np.isfinite(error).all():
        return ()
    usual = max(expected, float(np.median(error)))
    wrong = np.flatnonzero(error > _WRONG * usual)
    if not 0 < wrong.size <= max(1, _FEW_CHANNELS * shape[axis]):
        return ()
    lines = []
    for channel in wrong.tolist():
        allowed = min(_UNEXPLAINED * float(error[channel]), _MOST_LEFT * usual)
        line = _line(exact[channel], found[channel], fit, limit=limit, allowed=allowed)
        if line is None:
            return ()
        lines.append(ChannelLine(channel, *line))
    return tuple(lines)


def _free(pair: Pair) -> Array:
    return pair.free


def _found(pair: Pair) -> Array:
    return pair.found


def _by_channel(arrays: Sequence[Array], axis: int) -> Array:
    rows = [np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1) for each in arrays]
    return np.concatenate(rows, axis=1).astype(np.float64)


def _line(
    x: Array, y: Array, fit: LineFit, *, limit: tuple[float, float], allowed: float
) -> tuple[float, float] | None:
    best, least = None, np.inf
    for gain, offset in _candidates(x, y, fit):
        left = float(np.square(y - np.clip(gain * x + offset, *limit)).sum())
        if gain > 0 and left <= allowed and left < _CLEARLY_LESS * least:
            best, least = (gain, offset), left
    return best


def _candidates(x: Array, y: Array, fit: LineFit) -> Iterator[tuple[float, float]]:
    """Gains and offsets that may be it, those of one number first."""
    if x.size < _FEWEST:
        return
    robust = fit(x, y) if x.size >= _FEWEST_OF_TWO else None
    energy = float(x @ x)
    if energy > 0:
        yield float(x @ y) / energy, 0.0
    if robust is not None:
        yield robust[0], 0.0
    yield 1.0, float(np.median(y - x))
    if robust is not None:
        yield robust


def with_lines(values: Array, lines: Sequence[ChannelLine]) -> Array:
    """Values with the gain and offset of each of these channels, in double precision."""
    changed = np.array(values, dtype=np.float64)
    axis = channel_axis_of(values.shape)
    by_channel = np.moveaxis(changed, 0 if axis is None else axis, 0)
    for line in lines:
        by_channel[line.channel] = by_channel[line.channel] * line.gain + line.offset
    return changed


def line_text(gain: float, offset: float, *, of: LineOf = "line") -> Message:
    """A gain and an offset as a factor, a summand, or both.

    Args:
        gain: The factor; 1 for none.
        offset: The summand; 0 for none.
        of: What they are of: what one tensor should be (``line``), what several channels should be (``lines``), or
            the reference (``line_reference``).
    """
    which = "" if gain != 1 and offset else "_gain" if gain != 1 else "_offset" if offset else "_none"
    numbers: dict[str, Argument] = {"gain": gain} if gain != 1 else {}
    return message(f"diagnosis.{of}{which}", **numbers, **({"offset": offset} if offset else {}))


def lines_text(lines: Sequence[ChannelLine], tensor: str, *, reference: bool = False) -> Message:
    """Which channels of a tensor are what: 'channel 3 of x is 0.5 times what it should be'.

    Args:
        lines: The channels.
        tensor: What the tensor is called.
        reference: Say 'the reference' for what it should be.
    """
    more = len(lines) - _NAMED
    first, plural = lines[0], len(lines) > 1
    if len({(f"{line.gain:.4g}", f"{line.offset:+.4g}") for line in lines}) == 1:
        of: LineOf = "line_reference" if reference else "lines" if plural else "line"
        return message(
            f"diagnosis.dequantization_channel{'s' if plural else ''}",
            channels=_few([line.channel for line in lines], more),
            tensor=tensor,
            line=line_text(first.gain, first.offset, of=of),
        )
    told = _few([line.message for line in lines], more)
    return message("diagnosis.dequantization_own_lines", count=len(lines), tensor=tensor, lines=told)


def _few(items: Sequence[Argument], more: int) -> Argument:
    named = tuple(items[:_NAMED])
    return message("terminal.and_more", names=named, count=more) if more > 0 else named


MOST_LEFT = 30.0
"""What explains all of a difference leaves no more than so many times what is expected anyway.

Something else, such as a bias that was added twice or weights that were exchanged, may be explained for the most
part by a line or by another order.
"""

# An explanation may leave this many times the error that is expected anyway.
_LEFT = 4.0
# Near to what is expected anyway, an explanation must still take this part of the error away; over more nodes than
# one kernel has, where what is expected is large and most ways explain some of it, nearly all.
_MOST_GONE, _MOST_GONE_WIDE = 0.5, 0.9


def called(suspect: DeviceSuspect) -> str:
    """What to call a tensor in a sentence."""
    return short_name(suspect.tensor)


def where(suspect: DeviceSuspect, whole: Message) -> Message:
    """A sentence that ends in whether the device itself is wrong or what it wrote."""
    return message(f"diagnosis.where_{suspect.flow.replace(' ', '_')}", whole=whole)


def only_dumped(remedy: Message) -> Message:
    """What to do about a dump, where that is all that is wrong."""
    return joined([remedy, message("diagnosis.device_itself_right")])


def _energies(pairs: Sequence[Pair], explained: Sequence[Array]) -> tuple[float, float, float, float]:
    """Energies of the signal, of the error as it is and as explained, and of what is expected."""
    signal = before = after = noise = 0.0
    for pair, other in zip(pairs, explained, strict=True):
        largest = float(np.abs(pair.exact[np.isfinite(pair.exact)]).max(initial=0.0))
        signal += float(np.square(np.nan_to_num(pair.exact, posinf=0, neginf=0).astype(np.float64)).sum())
        before += energy(pair.found, pair.exact, largest)
        after += energy(pair.found, other, largest)
        noise += pair.expected.noise * pair.exact.size
    return signal, before, after, noise


def energy(found: Array, exact: Array, largest: float) -> float:
    """Energy of a difference; an element that is not finite on one side only is off by the largest value."""
    with np.errstate(invalid="ignore", over="ignore"):
        difference = found.astype(np.float64) - exact
    same = (found == exact) | (np.isnan(found) & np.isnan(exact))
    difference = np.where(same, 0.0, np.where(np.isfinite(difference), difference, largest))
    return float(np.square(difference).sum())


def recovered(suspect: DeviceSuspect, explained: Sequence[Array]) -> float:
    """Part of the error beyond what is expected that an explanation takes away."""
    _, before, after, noise = _energies(suspect.pairs, explained)
    wrong = before - noise
    if not wrong > 0:
        return 0.0
    gone = max(0.0, 1 - after / before)
    most = _MOST_GONE_WIDE if suspect.wide else _MOST_GONE
    return min(1.0, 1 - max(0.0, after - _LEFT * noise) / wrong) if gone > most else gone


def residual_energy(suspect: DeviceSuspect, explained: Sequence[Array]) -> float:
    """Energy of the error that an explanation leaves, over what is expected of this device anyway."""
    _, _, after, noise = _energies(suspect.pairs, explained)
    return after / max(noise * suspect.floor**2, np.finfo(float).tiny)


def tried(
    suspect: DeviceSuspect,
    explained: Sequence[Array],
    *,
    changed: Message,
    summary: Message,
    changes: Sequence[RemedyChange] = (),
    detail: Argument = None,
) -> Intervention:
    """An intervention: what the tensor would be if the explanation is right, next to what the device wrote.

    Args:
        suspect: The tensor.
        explained: Its values by the explanation, in the samples of the suspect.
        changed: What was changed in the reference.
        summary: The finding.
        changes: The remedy as data.
        detail: What the remedy goes on to say.
    """
    signal, before, after, _ = _energies(suspect.pairs, explained)
    measure = Measure(
        message("diagnosis.measure_device", tensor=called(suspect)),
        "dB",
        ratio_db(signal, before),
        ratio_db(signal, after),
        samples=len(suspect.pairs),
    )
    return Intervention(changed, (measure,), recovered(suspect, explained), summary, tuple(changes), detail=detail)


# Integers rounded in other ways.

SHIFTED = 0.2
"""A mean difference of this many steps is no chance: rounding is unbiased, cutting off loses half a step."""

_ROUNDINGS = ("floor", "half_up", "half_away")


def arithmetics(usual: Arithmetic) -> Iterator[tuple[Message, Arithmetic]]:
    """Other ways to round, with what to say of them."""
    for rounding in _ROUNDINGS:
        if rounding != usual.rounding:
            yield message(f"diagnosis.rounds_{rounding}"), replace(usual, rounding=rounding)  # type: ignore[arg-type]
    for bits in (15, 8, 7):
        short = replace(usual, requantization="fixed_point", multiplier_bits=bits)
        yield message("diagnosis.rounds_factor", bits=bits), short
        yield message("diagnosis.rounds_factor_floor", bits=bits), replace(short, rounding="floor")
