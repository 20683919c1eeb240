"""Accumulated error: every place loses a little, and it adds up."""

from collections.abc import Sequence

import numpy as np

from roundoff.diagnosis.ranking import SuspectCosts, rank
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Change, Measure, Remedy
from roundoff.diagnosis.searching import takes_most
from roundoff.diagnosis.subject import Case, loss_measures
from roundoff.diagnosis.suspects import Suspect
from roundoff.messages.numbers import counted, decibels_text

__all__ = ["AccumulatedError"]

# So many places are few, and so many as one in this many are not.
_FEW, _PART = 3, 4
_SEED = 0


@cause("accumulated-error", order=90)
class AccumulatedError:
    """Every place loses a little; no few of them make the loss, it adds up over many."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """How small the share of the worst single place is."""
        if suspect.name:
            return None
        ranked = _ranked(case)
        if ranked is None:
            return None
        worst = ranked.costs[ranked.places[0].name] / ranked.total
        return Signal(1 - worst, {"places": float(len(ranked.places)), "worst_share": worst})

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """The worst places in float and others chosen by lot; and golden inputs: the first half in float."""
        ranked = _ranked(case)
        if ranked is None:
            return None
        places, before = ranked.places, case.loss(more=True)
        sizes = sorted({1, min(_FEW, len(places)), max(1, len(places) // _PART)})
        chance = [places[at] for at in np.random.default_rng(_SEED).permutation(len(places))]
        worst, others = ([_in_float(case, order, size) for size in sizes] for order in (places, chance))
        ordered = [each for each in case.facts.suspects if each.name in {every.name for every in places}]
        half = [name for each in ordered[: len(ordered) // 2] for name in each.quantizers]
        golden = case.loss(dict.fromkeys(half), more=True)
        few = case.loss(_off(places[: min(_FEW, len(places))]))
        name = before.parts[before.worst]
        words = (f"SQNR of {name!r} with the {{}} worst places in float", "SQNR with {} places at random in float")
        measures = (
            *loss_measures(before, golden)[:1],
            *(
                Measure(word.format(size), "dB", before.sqnr_db, after, samples=before.samples)
                for word, found in zip(words, (worst, others), strict=True)
                for size, after in zip(sizes, found, strict=True)
            ),
            *_kinds(case),
        )
        which = "the worst of them" if ranked.exact else "one of the worst"
        share = ranked.costs[places[0].name] / ranked.total
        return Intervention(
            f"with the {_listed(sizes)} worst of {len(places)} places in float {_decibels(worst)} dB, with as "
            f"many at random {_decibels(others)} dB; with the first half in float (golden inputs)",
            measures,
            0.0 if takes_most(case.loss(), few) else 1.0,
            f"the loss adds up over {counted(len(places), 'place')}: {which}, {places[0].tensor!r}, makes "
            f"only {share:.0%} of it",
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """A search, which tries what is free first."""
        return Remedy(
            "search for a better recipe, what is free first, then 16 bits: --fix does",
            "free",
            (Change("search", value="tune"),),
        )


def _ranked(case: Case) -> SuspectCosts | None:
    """Places by what they cost alone; what was measured before is known. None where nothing costs anything."""
    found = rank(case, case.facts.suspects, out_of_time=lambda: False)
    return found if found is not None and found.places else None


def _off(places: Sequence[Suspect]) -> dict[str, None]:
    return dict.fromkeys(name for each in places for name in each.quantizers)


def _in_float(case: Case, order: Sequence[Suspect], size: int) -> float:
    """Signal to noise with so many places in float."""
    return case.loss(_off(order[:size]), more=True).sqnr_db


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))


def _decibels(values: Sequence[float]) -> str:
    return ", ".join(decibels_text(each).removesuffix(" dB") for each in values)


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
