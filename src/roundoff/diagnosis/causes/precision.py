"""Causes in the bits themselves: too few at one place, fewer than asked for, or a little everywhere."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from roundoff.diagnosis.culprits import rank, takes_most
from roundoff.diagnosis.ideal import called, option_fixes, tried
from roundoff.diagnosis.interventions import WIDE_BITS, reach, times_wider, with_bits
from roundoff.diagnosis.registry import ENOUGH, Intervention, Signal, cause
from roundoff.diagnosis.result import Measure, Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Suspect, loss_measures
from roundoff.messages.message import Argument, joined, message
from roundoff.messages.numbers import decibels_text

if TYPE_CHECKING:
    from roundoff.studies.sensitivity.ranking import PlaceCosts

# Resolution: the steps of a quantizer are too coarse for its tensor.


@cause("resolution", of="quantization", order=60)
class CoarseResolution:
    """Steps are too coarse: the range is far wider than the values, or there are too few bits."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """Its error is that of rounding; how wide its range is for its values."""
        damage = case.facts.damage(suspect)
        if damage is None or suspect.kind == "bias":
            return None
        quantizer = case.facts.quantizers[suspect.name]
        numbers = {
            "bits": float(quantizer.spec.bits),
            "range_over_data": times_wider(case.facts.quantizers[suspect.name], case.facts.value_range(suspect)),
            "noise_ratio": damage.ratio,
        }
        return Signal(1 - damage.clipped_share, numbers)

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """The same bits over a tighter range, the bits that others have, or 16 bits over the same range."""
        tight = self._tighter(case, suspect)
        if tight is not None and tight.recovered >= ENOUGH:
            return tight
        usual = self._usual_bits(case, suspect)
        if usual is not None and usual.recovered >= ENOUGH:
            return usual
        return self._wide(case, suspect)

    def _tighter(self, case: Case, suspect: Suspect) -> Intervention | None:
        fixes = option_fixes(case, suspect, "range")
        if fixes is None:
            return None
        low, high = reach(case.facts.quantizers[suspect.name])
        data_low, data_high = case.facts.value_range(suspect)
        ranges: dict[str, Argument] = {
            "what": called(suspect),
            "low": low,
            "high": high,
            "data_low": data_low,
            "data_high": data_high,
        }
        times = times_wider(case.facts.quantizers[suspect.name], case.facts.value_range(suspect))
        return tried(
            case,
            suspect,
            fixes,
            changed=message("diagnosis.resolution_tighter_changed", **ranges),
            summary=message("diagnosis.resolution_tighter_summary", **ranges, times=times),
            changes=[
                RemedyChange("range", tensors=suspect.tensors, nodes=suspect.nodes, low=data_low, high=data_high)
            ],
        )

    def _usual_bits(self, case: Case, suspect: Suspect) -> Intervention | None:
        fixes = option_fixes(case, suspect, "bits")
        if fixes is None:
            return None
        main = case.facts.quantizers[suspect.name]
        bits = case.facts.prevailing_bits(main)
        what = called(suspect)
        return tried(
            case,
            suspect,
            fixes,
            changed=message("diagnosis.resolution_bits_changed", what=what, bits=bits, had=main.spec.bits),
            summary=message("diagnosis.resolution_bits_summary", what=what, bits=bits, had=main.spec.bits),
            changes=[_bits_change(suspect, main.spec.signed, bits)],
        )

    def _wide(self, case: Case, suspect: Suspect) -> Intervention:
        members = [case.facts.quantizers[name] for name in suspect.quantizers]
        fixes = {each.name: with_bits(each, WIDE_BITS) for each in members}
        what, bits = called(suspect), members[0].spec.bits
        damage = case.facts.damage(suspect)
        summary = message("diagnosis.resolution_wide_summary", what=what, bits=bits)
        if damage is not None:
            summary = message("diagnosis.resolution_wide_summary_noise", what=what, bits=bits, share=damage.ratio)
        return tried(
            case,
            suspect,
            fixes,
            changed=message("diagnosis.resolution_wide_changed", what=what, bits=WIDE_BITS),
            summary=summary,
            changes=[_bits_change(suspect, members[0].spec.signed, WIDE_BITS)],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """The range it needs where that is it, else more bits."""
        change = proof.changes[0]
        if change.kind == "range":
            low, high = case.facts.value_range(suspect)
            title = message("diagnosis.set_range", tensor=suspect.tensor, low=low, high=high)
            return Remedy(title, "free", proof.changes)
        wide = change.value.endswith(str(WIDE_BITS))
        title = message("diagnosis.resolution_remedy", what=called(suspect), dtype=change.value)
        return Remedy(title, "16 bit" if wide else "free", proof.changes)


def _bits_change(suspect: Suspect, signed: bool, bits: int) -> RemedyChange:
    return RemedyChange(
        "bits", tensors=suspect.tensors, nodes=suspect.nodes, value=f"{'s' if signed else 'u'}{bits}"
    )


# Ignored precision: more bits were asked for a tensor than it has.


@cause("ignored-precision", of="quantization", order=8)
class IgnoredPrecision:
    """More bits were asked for a tensor than it has."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """What was asked for, and what it has."""
        asked = _asked(case, suspect)
        bits = case.facts.quantizers[suspect.name].spec.bits
        return Signal(1.0, {"asked_bits": float(asked), "bits": float(bits)}) if asked > bits else None

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """The bits that were asked for, over the same range."""
        asked, members = _asked(case, suspect), [case.facts.quantizers[name] for name in suspect.quantizers]
        what, bits = called(suspect), members[0].spec.bits
        dtype = f"{'s' if members[0].spec.signed else 'u'}{asked}"
        return tried(
            case,
            suspect,
            {each.name: with_bits(each, asked) for each in members},
            changed=message("diagnosis.ignored_precision_changed", what=what, bits=asked),
            summary=message("diagnosis.ignored_precision_summary", what=what, bits=asked, had=bits),
            changes=[RemedyChange("bits", tensors=suspect.tensors, nodes=suspect.nodes, value=dtype)],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """Ask in a way that the tool understands."""
        del case
        dtype = proof.changes[0].value
        title = message("diagnosis.ignored_precision_remedy", dtype=dtype, tensor=suspect.tensor)
        return Remedy(title, "16 bit", proof.changes)


def _asked(case: Case, suspect: Suspect) -> int:
    return max((case.facts.asked.get(name, 0) for name in suspect.quantizers), default=0)


# Accumulated error: every place loses a little, and it adds up.

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


def _ranked(case: Case) -> "PlaceCosts[Suspect] | None":
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


# Metric artefact: a tensor next to zero looks wrong in every score, and nothing comes of it.

# A tensor that loses this part of its energy looks wrong: its cosine is below 0.99.
_LOOKS_WRONG = 0.02
# Nothing comes of it when the loss at the outputs changes by less than this part, and their figure by less.
_NOTHING, _NOTHING_DB = 0.05, 1.0


@cause("metric-artefact", of="quantization", order=95)
class MetricArtefact:
    """A tensor next to zero has a bad score, and nothing of it is seen at the outputs."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """Its values are smaller than a step of its quantizer."""
        seen = case.facts.observed.get(suspect.tensor)
        damage = case.facts.damage(suspect)
        if seen is None or damage is None or damage.ratio < _LOOKS_WRONG:
            return None
        step = float(case.facts.quantizers[suspect.name].params.scale.max())
        if seen.rms >= step:
            return None
        return Signal(1 - seen.rms / step, {"rms_in_steps": seen.rms / step, "noise_ratio": damage.ratio})

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """In float, nothing changes."""
        fixes = case.in_float(suspect)
        before, after = case.loss(), case.loss(fixes)
        seen, damage = case.facts.observed[suspect.tensor], case.facts.damage(suspect)
        if damage is None:
            return None
        changed = abs(before.value - after.value) / before.value if before.value else 0.0
        what, measures = called(suspect), case.measures(fixes)
        if changed < _NOTHING and abs(measures[0].before - measures[0].after) >= _NOTHING_DB:
            return None
        return Intervention(
            message("diagnosis.metric_artefact_changed", what=what),
            measures,
            1.0 if changed < _NOTHING else 0.0,
            message("diagnosis.metric_artefact_summary", what=what, share=damage.ratio, rms=seen.rms),
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy | None:
        """Nothing is to be done."""
        del case, suspect, proof
        return None
