"""Outlier channel: one scale for channels of very different size, so that the small ones are lost."""

from dataclasses import replace

import numpy as np

from roundoff.core.plan import Step
from roundoff.core.tensors import Array
from roundoff.diagnosis.ideal import called, range_or_bits_suffice, tried
from roundoff.diagnosis.interventions import with_slice_ranges
from roundoff.diagnosis.registry import ENOUGH, Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Fixes, Suspect
from roundoff.messages.message import message
from roundoff.quantize.recipes import PER_CHANNEL

# The largest channel over the median one; below this all of them use most of the codes.
_SPREAD = 4.0
# A channel with less than this part of the median one is dead.
_DEAD = 1e-4


@cause("outlier-channel", of="quantization", order=50)
class OutlierChannel:
    """One scale serves channels of very different size, and the small ones are lost."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """How much larger the largest channel is than the median one."""
        spreads = [_spread(low, high) for _, low, high in _candidates(case, suspect)]
        largest = max(spreads, default=0.0)
        return Signal(min(1.0, largest / 100), {"largest_over_median": largest}) if largest >= _SPREAD else None

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """A scale for each channel, same bits; of a weight for what it writes, else for what it reads.

        Scales of channels also heal a range that is wrong for all of them, which is no matter of channels.
        """
        if range_or_bits_suffice(case, suspect):
            return None
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
        what, inner = called(suspect), _is_inner(case, suspect, axis)
        which = "_inner" if inner else ""
        largest, median = int(reaches.argmax()), float(np.median(reaches[_loud(reaches)]))
        small = int(np.where(_loud(reaches), reaches, np.inf).argmin())
        # The channel that sets the scale is named; where all others are as large, with the one that is lost by it.
        lost = reaches[largest] / median < median / reaches[small]
        which_summary = f"{which}_small" if lost else which
        proof = tried(
            case,
            suspect,
            fixes,
            changed=message(f"diagnosis.outlier_channel_changed{which}", what=what, count=reaches.size),
            summary=message(
                f"diagnosis.outlier_channel_summary{which_summary}",
                what=what,
                channel=largest,
                reach=float(reaches[largest]),
                **({"small": small, "little": float(reaches[small])} if lost else {"median": median}),
            ),
            changes=[RemedyChange("per_channel", tensors=suspect.tensors, nodes=suspect.nodes, axis=axis)],
        )
        return _with_source(case, suspect, proof) if inner else proof

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """Scales for each channel of a weight; other channels are made alike before."""
        if suspect.kind == "weight" and proof.changes[0].axis == case.facts.channel_axis(
            case.facts.quantizers[suspect.name]
        ):
            title = message("diagnosis.outlier_channel_remedy_weight", node=suspect.node)
            variation = RemedyChange("variation", nodes=suspect.nodes, value=PER_CHANNEL)
            return Remedy(title, "free", (*proof.changes, variation, *_otherwise(suspect)))
        title = message("diagnosis.outlier_channel_remedy", tensor=suspect.tensor)
        return Remedy(title, "free", _otherwise(suspect))


def _otherwise(suspect: Suspect) -> tuple[RemedyChange, ...]:
    """What helps where channels cannot have scales of their own."""
    alike = RemedyChange("transform", suspect.tensors, suspect.nodes, step=Step("equalize"))
    return alike, RemedyChange("bits", suspect.tensors, suspect.nodes, value="s16")


def _candidates(case: Case, suspect: Suspect) -> list[tuple[int, Array, Array]]:
    """Axes whose slices have one scale, with the ranges of the slices."""
    quantizer = case.facts.quantizers[suspect.name]
    own = quantizer.spec.axis if quantizer.params.scale.size > 1 else None
    found = [] if suspect.kind == "bias" else case.facts.channel_ranges(suspect)
    return [each for each in found if own is None or each[0] != own]


def _loud(reaches: Array) -> Array:
    """Which channels hold anything: one with next to nothing beside the others is dead, and loses nothing."""
    return np.asarray(reaches > _DEAD * float(np.median(reaches[reaches > 0])) if reaches.any() else reaches > 0)


def _spread(low: Array, high: Array) -> float:
    """The largest channel over the median one, or that over the smallest; dead ones do not count."""
    reaches = np.maximum(np.abs(low), np.abs(high)).astype(np.float64)
    loud = reaches[_loud(reaches)]
    if loud.size < 2:
        return 0.0
    median = float(np.median(loud))
    return max(float(loud.max()) / median, median / float(loud.min()))


def _is_inner(case: Case, suspect: Suspect, axis: int) -> bool:
    """Whether an axis of a weight is that of what it reads."""
    return suspect.kind == "weight" and axis != case.facts.channel_axis(case.facts.quantizers[suspect.name])


def _with_source(case: Case, suspect: Suspect, proof: Intervention) -> Intervention:
    """The same, with the tensor whose channels the weight meets, and who computes it."""
    entering = case.facts.nodes[suspect.node].input[0]
    source = next((each for each in case.facts.suspects if entering in each.tensors), None)
    if source is None or source.join:  # what is joined is suspected on its own
        return proof
    return replace(proof, nodes=source.nodes, tensors=(entering,))
