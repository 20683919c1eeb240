"""Causes in transformers: masks among scores, and outliers in the residual stream."""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from roundoff.core.plan import Step
from roundoff.diagnosis.ideal import called, range_or_bits_suffice, tried
from roundoff.diagnosis.interventions import WIDE_BITS, reach, with_bits, with_range
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Fixes, QuantizationFacts, Suspect
from roundoff.graph.transformers import MASK_LEVEL
from roundoff.messages.message import message
from roundoff.quantize.transforms.clamp_mask import (
    CLAMP_MASK,
    mask_ranges,
    masked_attentions,
    observe_rows,
    score_ranges,
)

# Attention masks that share a scale with the scores they are added to, so that all scores become one.


@dataclass(frozen=True, slots=True)
class MaskedScores:
    """Quantizers whose range reaches down to a mask, and what scores need instead.

    Attributes:
        suspect: They, as one.
        ranges: The range of each tensor that leaves the mask out.
        limit: To what a mask can be limited without changing a bit.
        lowest: How far down their codes reach.
        scores: Where scores lie that are not masked.
        step: The coarsest of their steps.
        attentions: How many attentions they belong to.
    """

    suspect: Suspect
    ranges: dict[str, tuple[float, float]]
    limit: float
    lowest: float
    scores: tuple[float, float]
    step: float
    attentions: int

    def fixes(self, case: Case) -> Fixes:
        """The same bits over the scores that matter; a mask saturates."""
        members = [case.facts.quantizers[name] for name in self.suspect.quantizers]
        return {each.name: with_range(each, *self.ranges[each.tensor]) for each in members}


_KNOWN: WeakKeyDictionary[QuantizationFacts, MaskedScores | None] = WeakKeyDictionary()


def masked_scores(case: Case) -> MaskedScores | None:
    """The quantizers of a network whose range a mask sets; None where there are none."""
    if case.facts not in _KNOWN:
        _KNOWN[case.facts] = _masked_scores(case)
    return _KNOWN[case.facts]


def _masked_scores(case: Case) -> MaskedScores | None:
    model = case.facts.quantized.float_model
    wide = {
        each.name: each
        for each in case.facts.quantizers.values()
        if each.kind == "activation" and each.params.scale.size == 1 and reach(each)[0] <= MASK_LEVEL
    }
    parts = masked_attentions(model) if wide else ()
    if not parts:
        return None
    limits = observe_rows(model, case.runner.chosen, parts)
    parts = tuple(part for part in parts if part.softmax in limits.rows and limits.rows[part.softmax].masked)
    added = {each.tensor for part in parts for each in part.operands if not each.selected}
    ranges = {**mask_ranges(added, limits), **score_ranges(model, parts, limits)}
    # A mask is moved on its way: what holds the same values has the same range.
    found = {name: each for name, each in wide.items() if each.tensor in ranges}
    if not found:
        return None
    tensors = tuple(dict.fromkeys(each.tensor for each in found.values()))
    nodes = tuple(dict.fromkeys(part.softmax for part in parts))
    suspect = Suspect("", "activation", tuple(found), "", tensors, "", nodes)
    rows = [limits.rows[part.softmax] for part in parts]
    return MaskedScores(
        suspect,
        ranges,
        limits.added,
        min(reach(each)[0] for each in found.values()),
        (min(each.low for each in rows), max(each.most for each in rows)),
        max(float(each.params.scale.max()) for each in found.values()),
        len(parts),
    )


@cause("attention-mask", of="quantization", order=5)
class AttentionMask:
    """A mask is added to attention scores and sets their scale, so that all scores become one level."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """How far down the codes of scores reach; asked once, for all of them."""
        found = None if suspect.name else masked_scores(case)
        if found is None:
            return None
        span = found.scores[1] - found.scores[0]
        return Signal(1.0, {"lowest": found.lowest, "step": found.step, "levels_left": span / found.step})

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """The same bits over the scores that matter."""
        found = masked_scores(case)
        if found is None:
            return None
        low, high = found.scores
        return tried(
            case,
            found.suspect,
            found.fixes(case),
            changed=message("diagnosis.attention_mask_changed", low=low, high=high, count=found.attentions),
            summary=message(
                "diagnosis.attention_mask_summary",
                count=found.attentions,
                lowest=found.lowest,
                low=low,
                high=high,
                step=found.step,
                levels=max(1, int((high - low) / found.step) + 1),
            ),
            changes=[
                RemedyChange("transform", found.suspect.tensors, found.suspect.nodes, step=Step(CLAMP_MASK)),
                *(
                    RemedyChange("range", (name,), low=ends[0], high=ends[1])
                    for name, ends in found.ranges.items()
                    if name in found.suspect.tensors
                ),
            ],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """Limit the mask, which costs nothing."""
        found = masked_scores(case)
        limit = MASK_LEVEL if found is None else found.limit
        return Remedy(message("diagnosis.attention_mask_remedy", limit=limit), "free", proof.changes)


# Outliers in a transformer's residual stream: a few values set the scale, and the rest is rounded away.

# A normal tensor reaches four or five times its rms; one that reaches so many times has a step of a tenth of it.
_RATIO = 20.0


@cause("residual-outliers", of="quantization", order=35)
class ResidualOutliers:
    """A few values of the residual stream set its scale, and the rest is rounded away."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """How far a tensor of the stream reaches beyond its rms."""
        seen = case.facts.observed.get(suspect.tensor)
        if suspect.kind != "activation" or seen is None or not seen.rms or not _in_stream(case, suspect):
            return None
        low, high = seen.range
        ratio = max(-low, high) / seen.rms
        return Signal(min(1.0, ratio / 100), {"reach_over_rms": ratio}) if ratio >= _RATIO else None

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """16 bits over the same range; a range that fits, where that would do, is another matter."""
        if range_or_bits_suffice(case, suspect):
            return None
        members = [case.facts.quantizers[name] for name in suspect.quantizers]
        seen, step = case.facts.observed[suspect.tensor], float(members[0].params.scale.max())
        largest = max(map(abs, seen.range))
        return tried(
            case,
            suspect,
            {each.name: with_bits(each, WIDE_BITS) for each in members},
            changed=message("diagnosis.residual_outliers_changed", what=called(suspect), bits=WIDE_BITS),
            summary=message(
                "diagnosis.residual_outliers_summary",
                what=called(suspect),
                reach=largest,
                ratio=largest / seen.rms,
                step=step,
                part=step / seen.rms,
            ),
            changes=[
                RemedyChange(
                    "bits",
                    tensors=suspect.tensors,
                    nodes=suspect.nodes,
                    value=f"{'s' if members[0].spec.signed else 'u'}{WIDE_BITS}",
                )
            ],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """More bits for the stream."""
        return Remedy(message("diagnosis.residual_outliers_remedy", what=called(suspect)), "16 bit", proof.changes)


def _in_stream(case: Case, suspect: Suspect) -> bool:
    """Whether a tensor is added to the residual stream, is it, or is read by one of its norms."""
    stream = set(case.facts.parts.stream)
    touched = {edge.node for name in suspect.quantizers for edge in case.facts.quantizers[name].consumers}
    return bool(stream & ({suspect.node, suspect.join} | touched))
