"""What distributions and channels mean for their quantizers, and what can be done about it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from roundoff.core.quantizers import Quantizer, QuantParams, QuantSpec, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.measure.metrics import ratio_db
from roundoff.messages.message import Message, joined, message
from roundoff.messages.numbers import first_of, number, percent_number
from roundoff.studies.distribution.records import ChannelRecord, Inspected
from roundoff.studies.distribution.result import (
    LEVEL_BOUNDS,
    ChannelBox,
    ChannelSpread,
    QuantizerFacts,
    Risk,
    ValueSummary,
)

# What to make of a distribution, in one sentence.

# Clipping that costs more than a rare outlier is worth.
_MUCH_CLIPPED = 0.001
# A normal distribution loses about one in a hundred of its values to zero at 8 bits.
_MUCH_ZEROED = 0.25
# With fewer bits so many are lost to zero as a rule.
_FEWEST_BITS = 8
# With fewer of its levels in use a code could as well have two bits less.
_FEW_LEVELS = 0.25
# Where all but two in a thousand values take less of the codes than this, the range serves the others.
_NARROW_MIDDLE = 0.25
# A range with this share on the side of zero where no values are.
_WASTED_SIDE = 0.4
# Codes of more bits are not short of levels.
_MOST_BITS = 16
# Channels this different in size are often what hurts the layer behind.
_UNEVEN_SCALES = 20.0
_NAMED_PEAKS = 3


def advise(
    before: ValueSummary, quantizer: QuantizerFacts | None, peaks: tuple[float, ...]
) -> tuple[bool, Message]:
    """Whether all is well, and that in words; or what stands out, most serious first, and what can be done."""
    findings = list(_findings(before, quantizer, peaks))
    remarks = [] if quantizer is None else list(_remarks(quantizer))
    return not findings, joined([*(findings or [_praise(quantizer)]), *remarks])


def _findings(
    before: ValueSummary, quantizer: QuantizerFacts | None, peaks: tuple[float, ...]
) -> Iterator[Message]:
    if before.nonfinite:
        yield message("distribution.advice_nonfinite", count=before.nonfinite, all=before.count)
    if before.minimum is None or before.maximum is None:
        return
    if before.minimum == before.maximum:
        zero, value = before.minimum == 0, f"{before.minimum:.4g}"
        yield message("distribution.advice_zero") if zero else message("distribution.advice_equal", value=value)
        return
    if quantizer is not None and quantizer.bits <= _MOST_BITS:
        yield from _range_findings(before, quantizer)
    if len(peaks) > 1:
        places = first_of([number(peak, 3) for peak in peaks], _NAMED_PEAKS)
        yield message("distribution.advice_peaks", count=len(peaks), places=places)


def _range_findings(before: ValueSummary, quantizer: QuantizerFacts) -> Iterator[Message]:
    levels = {"used": quantizer.levels_used, "all": quantizer.levels}
    if quantizer.clipped > _MUCH_CLIPPED:
        yield message("distribution.advice_clipped", share=percent_number(quantizer.clipped))
    wasted = _wasted_side(before, quantizer)
    if wasted:
        yield message(f"distribution.advice_no_{wasted}", **levels)
    middle = _middle_share(before, quantizer)
    if middle is not None and middle < _NARROW_MIDDLE:
        yield _narrow(before, quantizer, middle)
    elif (
        not wasted
        and quantizer.levels_used < _FEW_LEVELS * quantizer.levels
        and _could_use_more(before, quantizer)
    ):
        yield message("distribution.advice_levels", **levels)
    elif quantizer.bits >= _FEWEST_BITS and quantizer.zeroed > _MUCH_ZEROED:
        yield message("distribution.advice_zeroed", share=percent_number(quantizer.zeroed))


def _wasted_side(before: ValueSummary, quantizer: QuantizerFacts) -> Literal["negative", "positive", ""]:
    """The sign that no value has, though half of the codes have it."""
    span = quantizer.high - quantizer.low
    if before.minimum is not None and before.minimum >= 0 and -quantizer.low > _WASTED_SIDE * span:
        return "negative"
    if before.maximum is not None and before.maximum <= 0 and quantizer.high > _WASTED_SIDE * span:
        return "positive"
    return ""


def _middle_share(before: ValueSummary, quantizer: QuantizerFacts) -> float | None:
    """Share of the codes, zero included, that nearly all values take; None with a range per slice."""
    if quantizer.axis is not None:
        return None
    first = max(min(before.quantiles["0.001"], 0.0), quantizer.low)
    last = min(max(before.quantiles["0.999"], 0.0), quantizer.high)
    one_sided = bool(_wasted_side(before, quantizer))
    span = max(-quantizer.low, quantizer.high) if one_sided else quantizer.high - quantizer.low
    return (last - first) / span


def _narrow(before: ValueSummary, quantizer: QuantizerFacts, middle: float) -> Message:
    """Why nearly all values take few of the codes."""
    share = percent_number(middle)
    reach = max(abs(before.minimum or 0.0), abs(before.maximum or 0.0))
    widest = max(-quantizer.low, quantizer.high)
    if reach < widest / 2:
        return message("distribution.advice_wide_range", share=share, times=f"{widest / reach:.2g}")
    return message("distribution.advice_outliers", share=share)


def _could_use_more(before: ValueSummary, quantizer: QuantizerFacts) -> bool:
    return before.count - before.nonfinite >= quantizer.levels


def _remarks(quantizer: QuantizerFacts) -> Iterator[Message]:
    """What is no fault of the distribution, but worth a look."""
    if quantizer.bits <= _MOST_BITS and quantizer.scale_ratio > _UNEVEN_SCALES:
        yield message("distribution.advice_uneven", ratio=f"{quantizer.scale_ratio:.2g}")


def _praise(quantizer: QuantizerFacts | None) -> Message:
    if quantizer is None or quantizer.bits > _MOST_BITS:
        return message("distribution.advice_one_peak")
    clipped = "unclipped" if quantizer.clipped == 0 else "hardly_clipped"
    return message(f"distribution.advice_{clipped}", used=quantizer.levels_used, all=quantizer.levels)


# What the channels' ranges mean for a scale that serves all of them.

# What tensors that are not quantized are judged by: the most usual codes.
_CONSTANT_SPEC = QuantSpec(bits=8, signed=True, symmetric=True)
_ACTIVATION_SPEC = QuantSpec(bits=8, signed=False, symmetric=False)
# Shares of the channels from which the risk is high, by the levels they have fewer of.
_HIGH_RISK = {16: 0.10, 4: 0.01}


def judge_channels(
    record: ChannelRecord, inspected: Inspected, *, shape: tuple[int, ...], axis: int
) -> ChannelSpread:
    """Judge one tensor.

    Args:
        record: What was seen of it.
        inspected: What it is.
        shape: Its shape.
        axis: The axis its channels are on.
    """
    quantizer = inspected.quantizer
    spec = quantizer.spec if quantizer is not None else _assumed(inspected)
    seen = record.observation()
    empty = seen.low > seen.high
    low, high = np.where(empty, 0.0, seen.low), np.where(empty, 0.0, seen.high)
    reach = np.maximum(high, 0.0) - np.minimum(low, 0.0)
    own_scales = quantizer is not None and quantizer.params.scale.size > 1 and _same_axis(quantizer, axis, shape)
    shared = _shared_codes(quantizer, spec, low, high)
    own = _own_codes(quantizer if own_scales else None, spec, low, high)
    levels, own_levels = shared.levels(low, high), own.levels(low, high)
    alive = reach > 0
    below = {str(bound): int(np.count_nonzero(alive & (levels < bound))) for bound in LEVEL_BOUNDS}
    live = int(np.count_nonzero(alive))
    ratio = float(reach.max() / np.median(reach[alive])) if live else None
    gain = _gain_db(float(shared.step), own.step[alive])
    finite = not empty.all()
    risk: Risk = _risk(below, live, own_scales=own_scales) if finite else "no values"
    middle, means = record.quantiles(), record.means()
    return ChannelSpread(
        name=inspected.name,
        kind=inspected.kind,
        tensor=inspected.tensor,
        node=inspected.node,
        op_type=inspected.op_type,
        shape=shape,
        axis=axis,
        dtype=spec.dtype,
        assumed=quantizer is None,
        own_scales=own_scales,
        step=float(shared.step),
        boxes=tuple(
            ChannelBox(index, *map(float, (low[index], *middle[index], high[index], means[index], here, there)))
            for index, (here, there) in enumerate(zip(levels, own_levels, strict=True))
        ),
        live=live,
        range_ratio=ratio,
        below=below,
        gain_db=gain,
        risk=risk,
        resolution=record.resolution,
        advice=_channel_advice(below, live, ratio, gain, risk) if finite else message("channels.advice_nonfinite"),
    )


def _assumed(inspected: Inspected) -> QuantSpec:
    return _CONSTANT_SPEC if inspected.is_constant else _ACTIVATION_SPEC


def _same_axis(quantizer: Quantizer, axis: int, shape: tuple[int, ...]) -> bool:
    return quantizer.spec.axis is not None and quantizer.spec.axis % max(1, len(shape)) == axis


@dataclass(frozen=True, slots=True, eq=False)
class _Codes:
    """The steps of one scale, or of one for each channel, and how many of them there are on both sides of zero."""

    step: Array
    below_zero: Array
    above_zero: Array

    @classmethod
    def of(cls, params: QuantParams, spec: QuantSpec) -> "_Codes":
        below, above = params.zero_point - spec.code_min, spec.code_max - params.zero_point
        return cls(params.scale.astype(np.float64), below, above)

    def levels(self, low: Array, high: Array) -> Array:
        """Steps that ranges, zero included, span within the codes."""
        above = np.minimum(np.maximum(high, 0.0) / self.step, self.above_zero)
        below = np.minimum(np.maximum(-low, 0.0) / self.step, self.below_zero)
        return np.asarray(above + below)


def _shared_codes(quantizer: Quantizer | None, spec: QuantSpec, low: Array, high: Array) -> _Codes:
    """The one scale there is, or the one there would be."""
    if quantizer is not None and quantizer.params.scale.size == 1:
        params = quantizer.params
        return _Codes.of(QuantParams(params.scale.reshape(()), params.zero_point.reshape(())), spec)
    whole = parameters_from_range(low.min(initial=0.0), high.max(initial=0.0), spec.along(None))
    return _Codes.of(whole, spec)


def _own_codes(quantizer: Quantizer | None, spec: QuantSpec, low: Array, high: Array) -> _Codes:
    """The scales that channels have, or could have."""
    if quantizer is not None:
        return _Codes.of(quantizer.params, spec)
    return _Codes.of(parameters_from_range(low, high, spec.along(0)), spec)


def _gain_db(step: float, own: Array) -> float:
    """How much less noise there is when rounding errors are spread evenly over the channels' own steps."""
    if not own.size:
        return 0.0
    return ratio_db(step * step, float(np.mean(own * own)))


def _risk(below: Mapping[str, int], live: int, *, own_scales: bool) -> Risk:
    if own_scales:
        return "own scales"
    if any(live and below[str(bound)] >= share * live for bound, share in _HIGH_RISK.items()):
        return "high"
    return "some" if below["16"] else "none"


def _channel_advice(below: Mapping[str, int], live: int, ratio: float | None, gain: float, risk: Risk) -> Message:
    few, fewer = below["16"], below["4"]
    if ratio is None:
        return message("channels.advice_zero")
    if risk == "own scales":
        return message("channels.advice_own_scales", few=few, all=live)
    if live == 1:
        return message("channels.advice_single")
    if risk == "none":
        return message("channels.advice_enough", ratio=f"{ratio:.2g}")
    if not fewer:
        return message("channels.advice_few", few=few, all=live, gain=f"{gain:.1f}")
    return message("channels.advice_fewer", few=few, all=live, fewer=fewer, gain=f"{gain:.1f}")
