"""Accumulated error: every place loses a little, and it adds up."""

from roundoff.core.findings import Change, Measure, Remedy
from roundoff.core.wording import counted
from roundoff.diagnosis.case import Case, loss_measures
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.searching import alone_loss, takes_most
from roundoff.diagnosis.suspects import Suspect

__all__ = ["AccumulatedError"]

# So many places are few.
_FEW = 4


@cause("accumulated-error", order=90)
class AccumulatedError:
    """Every place loses a little; no few of them make the loss, it adds up over many."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """How small the share of the worst single place is."""
        if suspect.name:
            return None
        losses = _alone(case)
        total = sum(losses.values())
        if not total:
            return None
        worst = max(losses.values()) / total
        return Signal(1 - worst, {"places": float(len(losses)), "worst_share": worst})

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """Golden inputs: the first half of the network in float, so that only what the second adds is left."""
        losses = _alone(case)
        if not losses:
            return None
        ordered = [each for each in case.facts.suspects if each.name in losses]
        half = [name for each in ordered[: len(ordered) // 2] for name in each.quantizers]
        ranked = sorted(ordered, key=lambda each: -losses[each.name])
        worst = [name for each in ranked[:_FEW] for name in each.quantizers]
        before, golden = case.loss(more=True), case.loss(dict.fromkeys(half), more=True)
        without = case.loss(dict.fromkeys(worst), more=True)
        share = losses[ranked[0].name] / sum(losses.values())
        name = before.parts[before.worst]
        few = f"SQNR of {name!r} with the {_FEW} worst places in float"
        measures = (
            *loss_measures(before, golden)[:1],
            Measure(few, "dB", before.sqnr_db, without.sqnr_db, samples=before.samples),
            *_kinds(case),
        )
        return Intervention(
            f"golden inputs from the middle on: {len(half)} of {len(case.facts.quantizers)} quantizers off",
            measures,
            0.0 if takes_most(before, without) else 1.0,
            f"the loss adds up over {counted(len(ordered), 'place')}: the worst, {ranked[0].tensor!r}, makes "
            f"{share:.0%} of it",
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """A search, which tries what is free first."""
        return Remedy(
            "search for a better recipe with roundoff tune: what is free first, then 16 bits",
            "free",
            (Change("search", value="tune"),),
        )


def _alone(case: Case) -> dict[str, float]:
    """What each place costs alone; those that cost nothing are left out."""
    found = {each.name: alone_loss(case, each).value for each in case.facts.suspects}
    return {name: loss for name, loss in found.items() if loss > 0}


def _kinds(case: Case) -> tuple[Measure, ...]:
    """What weights and activations do alone."""
    before = case.loss(more=True)
    found = []
    for word, kinds in (("weights and biases", ("weight", "bias")), ("activations", ("activation",))):
        off = {name: None for name, each in case.facts.quantizers.items() if each.kind in kinds}
        after = case.loss(off, more=True)
        found.append(
            Measure(f"SQNR with {word} in float", "dB", before.sqnr_db, after.sqnr_db, samples=before.samples)
        )
    return tuple(found)
