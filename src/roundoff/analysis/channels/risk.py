"""What the channels' ranges mean for a scale that serves all of them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from roundoff.analysis.channels.record import ChannelRecord
from roundoff.analysis.inspected import Inspected
from roundoff.core.channel_spread import LEVEL_BOUNDS, ChannelBox, ChannelSpread, Risk
from roundoff.core.quantization import parameters_from_range
from roundoff.core.quantizer import Quantizer, QuantParams, QuantSpec
from roundoff.core.tensors import Array
from roundoff.core.wording import counted

__all__ = ["judge_channels"]

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
    risk = _risk(below, live, own_scales=own_scales)
    finite = not empty.all()
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
        advice=_advice(below, live, ratio, gain, risk) if finite else "no channel has a finite value",
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
    return 10 * math.log10(step * step / float(np.mean(own * own)))


def _risk(below: Mapping[str, int], live: int, *, own_scales: bool) -> Risk:
    if own_scales:
        return "own scales"
    if any(live and below[str(bound)] >= share * live for bound, share in _HIGH_RISK.items()):
        return "high"
    return "some" if below["16"] else "none"


def _advice(below: Mapping[str, int], live: int, ratio: float | None, gain: float, risk: Risk) -> str:
    if ratio is None:
        return "all channels are zero"
    if risk == "own scales":
        told = "each channel has a scale of its own: no risk"
        return f"{told}; one for all would leave {below['16']} of {live} with fewer than 16 levels"
    if live == 1:
        return "a single channel"
    if risk == "none":
        return (
            f"every channel has at least 16 levels; the widest has {ratio:.2g} times the range of the median one"
        )
    has = "has" if below["16"] == 1 else "have"
    few = f"{below['16']} of {counted(live, 'channel')} {has} fewer than 16 levels"
    fewer = f", {below['4']} fewer than 4" if below["4"] else ""
    gained = f"a scale for each channel would take {gain:.1f} dB off the rounding noise"
    return f"{few}{fewer}: {gained}; else equalize, smooth or take 16 bits"
