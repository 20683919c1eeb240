"""Accumulated error: every place loses a little, and it adds up."""

from collections.abc import Iterator, Sequence

import numpy as np

from roundoff.diagnosis.culprits import rank, takes_most
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Measure, Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Suspect, loss_measures
from roundoff.messages.message import joined, message
from roundoff.messages.numbers import decibels_text
from roundoff.studies.sensitivity.ranking import PlaceCosts

# So many places are few, and so many as one in this many are not.
_FEW, _PART = 3, 4
_SEED = 0


@cause("accumulated-error", of="quantization", order=90)
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

        def places_in_float(key: str, found: Sequence[float], **gaps: str) -> Iterator[Measure]:
            for size, after in zip(sizes, found, strict=True):
                what = message(key, count=size, **gaps)
                yield Measure(what, "dB", before.sqnr_db, after, samples=before.samples)

        measures = (
            *loss_measures(before, golden)[:1],
            *places_in_float("diagnosis.measure_worst_float", worst, name=name),
            *places_in_float("diagnosis.measure_random_float", others),
            *_kinds(case),
        )
        summary = f"diagnosis.accumulated_error_summary{'' if ranked.exact else '_about'}"
        share = ranked.costs[places[0].name] / ranked.total
        proof = message(
            "diagnosis.accumulated_error_random",
            sizes=tuple(sizes),
            count=len(places),
            worst=_decibels(worst),
            others=_decibels(others),
        )
        return Intervention(
            joined([proof, message("diagnosis.accumulated_error_half")]),
            measures,
            0.0 if takes_most(case.loss(), few) else 1.0,
            message(summary, count=len(places), tensor=places[0].tensor, share=share),
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """A search, which tries what is free first."""
        return Remedy(
            message("diagnosis.accumulated_error_remedy"),
            "free",
            (RemedyChange("search", value="tune"),),
        )


def _ranked(case: Case) -> PlaceCosts[Suspect] | None:
    """Places by what they cost alone; what was measured before is known. None where nothing costs anything."""
    found = rank(case, case.facts.suspects, out_of_time=lambda: False)
    return found if found is not None and found.places else None


def _off(places: Sequence[Suspect]) -> dict[str, None]:
    return dict.fromkeys(name for each in places for name in each.quantizers)


def _in_float(case: Case, order: Sequence[Suspect], size: int) -> float:
    """Signal to noise with so many places in float."""
    return case.loss(_off(order[:size]), more=True).sqnr_db


def _decibels(values: Sequence[float]) -> tuple[str, ...]:
    return tuple(decibels_text(each).removesuffix(" dB") for each in values)


def _kinds(case: Case) -> tuple[Measure, ...]:
    """What weights and activations do alone."""
    before = case.loss(more=True)
    found = []
    for word, kinds in (("weights", ("weight", "bias")), ("activations", ("activation",))):
        off = {name: None for name, each in case.facts.quantizers.items() if each.kind in kinds}
        after = case.loss(off, more=True)
        found.append(
            Measure(
                message(f"diagnosis.measure_{word}_float"),
                "dB",
                before.sqnr_db,
                after.sqnr_db,
                samples=before.samples,
            )
        )
    return tuple(found)
