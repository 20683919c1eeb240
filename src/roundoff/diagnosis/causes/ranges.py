"""Causes in the range of a quantizer: values beyond it, or one scale for what is of very different size."""

from dataclasses import replace

import numpy as np

from roundoff.core.plan import Step
from roundoff.core.tensors import Array
from roundoff.diagnosis.ideal import called, option_fixes, range_or_bits_suffice, slices_of, tried
from roundoff.diagnosis.interventions import reach, with_slice_ranges
from roundoff.diagnosis.registry import ENOUGH, Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Fixes, Suspect
from roundoff.messages.message import Argument, message
from roundoff.quantize.recipes import PER_CHANNEL

# Clipping: the range of a quantizer is smaller than what its tensor holds.

# Less than this share of the error's energy on saturated values is the tail of a range that was chosen well.
_LEAST_SHARE = 0.3


@cause("clipping", of="quantization", order=30)
class Clipping:
    """Values are cut off: the range of a quantizer is smaller than what its tensor holds."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """The share of the error's energy that saturated values have."""
        damage = case.facts.damage(suspect)
        if damage is None or suspect.kind == "bias" or damage.clipped_share < _LEAST_SHARE:
            return None
        numbers = {
            "clipped_energy_share": damage.clipped_share,
            "saturated_share": damage.saturated / max(1, damage.count),
        }
        return Signal(damage.clipped_share, numbers)

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """The same bits over the range that the values have."""
        fixes = option_fixes(case, suspect, "range")
        damage = case.facts.damage(suspect)
        if fixes is None or damage is None:
            return None
        low, high = reach(case.facts.quantizers[suspect.name])
        wide_low, wide_high = case.facts.value_range(suspect)
        share = damage.saturated / max(1, damage.count)
        ranges: dict[str, Argument] = {
            "what": called(suspect),
            "low": low,
            "high": high,
            "wide_low": wide_low,
            "wide_high": wide_high,
        }
        return tried(
            case,
            suspect,
            fixes,
            changed=message("diagnosis.clipping_changed", **ranges),
            summary=message("diagnosis.clipping_summary", **ranges, share=share),
            changes=[
                RemedyChange("range", tensors=suspect.tensors, nodes=suspect.nodes, low=wide_low, high=wide_high),
            ],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """Give it the range it needs."""
        low, high = case.facts.value_range(suspect)
        title = message("diagnosis.set_range", tensor=suspect.tensor, low=low, high=high)
        return Remedy(title, "free", proof.changes)


# Mixed ranges: tensors of different size share the scale of a Concat or an Add, and the small ones are lost.

# What is joined differs by so much in size that the smaller has less than two bits fewer than the others.
_RATIO = 4.0


@cause("mixed-range", of="quantization", order=40)
class MixedRange:
    """Tensors of different size share one scale where they are joined, and the small ones are lost."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """How much wider the widest of the joined tensors is than the narrowest."""
        spans = [high - low for _, (low, high) in _joined(case, suspect)]
        if len(spans) < 2 or min(spans) <= 0 or max(spans) / min(spans) < _RATIO:
            return None
        ratio = max(spans) / min(spans)
        return Signal(min(1.0, ratio / 100), {"widest_over_narrowest": ratio})

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """Each of them at its own range, same bits."""
        if range_or_bits_suffice(case, suspect):
            return None
        node = case.facts.nodes[suspect.join]
        fixes = option_fixes(case, suspect, "per_slice")
        how = message("diagnosis.mixed_range_changed", node=suspect.join)
        if fixes is None and node.op_type != "Concat":
            fixes, how = case.in_float(suspect), message("diagnosis.mixed_range_not_rounded", node=suspect.join)
        if fixes is None:
            return None
        joined = sorted(_joined(case, suspect), key=lambda each: each[1][1] - each[1][0])
        small, large = joined[0], joined[-1]
        kind = "concat" if node.op_type == "Concat" else "join"
        return tried(
            case,
            suspect,
            fixes,
            changed=how,
            summary=message(
                f"diagnosis.mixed_range_{kind}",
                node=suspect.join,
                op=node.op_type,
                small=small[0],
                low=small[1][0],
                high=small[1][1],
                large=large[0],
                large_low=large[1][0],
                large_high=large[1][1],
            ),
            changes=[_change(case, suspect)],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """Keep them apart, or give what they share more bits."""
        wide = RemedyChange("bits", tensors=suspect.tensors, nodes=(suspect.join,), value="s16")
        title = message("diagnosis.mixed_range_remedy", node=suspect.join)
        return Remedy(title, "free", (*proof.changes, wide))


def _joined(case: Case, suspect: Suspect) -> list[tuple[str, tuple[float, float]]]:
    """What is joined, with its range."""
    node = case.facts.nodes.get(suspect.join)
    if node is None:
        return []
    if node.op_type == "Concat":
        slices = slices_of(case.facts, suspect)
        return [] if slices is None else list(zip(node.input, slices[2], strict=True))
    found: list[tuple[str, tuple[float, float]]] = [
        (name, ends) for name in node.input if (ends := case.facts.tensor_range(name)) is not None
    ]
    # Large values that cancel each other leave a small sum.
    sums = (each.tensor for each in case.facts.suspects if each.kind == "activation" and node.name in each.nodes)
    left = [(name, case.facts.observed[name].range) for name in sums if name in case.facts.observed]
    return [*found, *[each for each in left if each[0] not in dict(found)][:1]]


def _change(case: Case, suspect: Suspect) -> RemedyChange:
    found = slices_of(case.facts, suspect)
    if found is None:
        return RemedyChange("per_slice", tensors=suspect.tensors, nodes=(suspect.join,))
    return RemedyChange("per_slice", tensors=suspect.tensors, nodes=(suspect.join,), axis=found[0], sizes=found[1])


# Outlier channel: one scale for channels of very different size, so that the small ones are lost.

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
