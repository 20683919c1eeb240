"""Outlier channel: one scale for channels of very different size, so that the small ones are lost."""

import numpy as np

from roundoff.core.findings import Change, Remedy
from roundoff.core.recipe import Step
from roundoff.core.tensors import Array
from roundoff.diagnosis.alternatives import with_slice_ranges
from roundoff.diagnosis.case import Case, Fixes
from roundoff.diagnosis.proving import called, spoken, tried
from roundoff.diagnosis.registry import ENOUGH, Intervention, Signal, cause
from roundoff.diagnosis.suspects import Suspect
from roundoff.quantize.variations import PER_CHANNEL

__all__ = ["OutlierChannel"]

# The largest channel over the median one; below this all of them use most of the codes.
_SPREAD = 4.0


@cause("outlier-channel", order=50)
class OutlierChannel:
    """One scale serves channels of very different size, and the small ones are lost."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """How much larger the largest channel is than the median one."""
        spreads = [_spread(low, high) for _, low, high in _candidates(case, suspect)]
        largest = max(spreads, default=0.0)
        return Signal(min(1.0, largest / 100), {"largest_over_median": largest}) if largest >= _SPREAD else None

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """A scale for each channel, same bits; of a weight for what it writes, else for what it reads."""
        found = [
            self._sliced(case, suspect, axis, low, high)
            for axis, low, high in _candidates(case, suspect)
            if _spread(low, high) >= _SPREAD
        ]
        enough = (each for each in found if each.recovered >= ENOUGH)
        return next(enough, max(found, key=lambda each: each.recovered, default=None))

    def _sliced(self, case: Case, suspect: Suspect, axis: int, low: Array, high: Array) -> Intervention:
        fixes: Fixes = {
            name: with_slice_ranges(case.facts.quantizers[name], axis, low, high)
            if case.facts.quantizers[name].tensor == suspect.tensor
            else None
            for name in suspect.quantizers
        }
        reaches = np.maximum(np.abs(low), np.abs(high))
        largest = int(reaches.argmax())
        what, channels = called(suspect), _channels(case, suspect, axis)
        return tried(
            case,
            suspect,
            fixes,
            changed=f"{what} with a scale for each of its {reaches.size} {channels}, same bits",
            summary=f"{what} has one scale for {channels} of very different size: number {largest} reaches "
            f"{spoken(float(reaches[largest]))}, {spoken(_spread(low, high))} times the median",
            changes=[Change("per_channel", tensors=suspect.tensors, nodes=suspect.nodes, axis=axis)],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """Scales for each channel of a weight; other channels are made alike before."""
        if suspect.kind == "weight" and proof.changes[0].axis == case.facts.channel_axis(
            case.facts.quantizers[suspect.name]
        ):
            variation = Change("variation", nodes=suspect.nodes, value=PER_CHANNEL)
            return Remedy(
                f"give the weight of {suspect.node!r} a scale per channel", "free", (*proof.changes, variation)
            )
        step = Change("transform", tensors=suspect.tensors, nodes=suspect.nodes, step=Step("equalize"))
        wide = Change("bits", tensors=suspect.tensors, nodes=suspect.nodes, value="s16")
        return Remedy(f"equalize the channels of {suspect.tensor!r}, else 16 bits for it", "free", (step, wide))


def _candidates(case: Case, suspect: Suspect) -> list[tuple[int, Array, Array]]:
    """Axes whose slices have one scale, with the ranges of the slices."""
    quantizer = case.facts.quantizers[suspect.name]
    own = quantizer.spec.axis if quantizer.params.scale.size > 1 else None
    found = [] if suspect.kind == "bias" else case.facts.channel_ranges(suspect)
    return [each for each in found if own is None or each[0] != own]


def _spread(low: Array, high: Array) -> float:
    """The largest channel over the median one; silent ones do not count."""
    reaches = np.maximum(np.abs(low), np.abs(high))
    loud = reaches[reaches > 0]
    return float(loud.max() / np.median(loud)) if loud.size > 1 else 0.0


def _channels(case: Case, suspect: Suspect, axis: int) -> str:
    if suspect.kind != "weight" or axis == case.facts.channel_axis(case.facts.quantizers[suspect.name]):
        return "channels"
    return "input channels"
