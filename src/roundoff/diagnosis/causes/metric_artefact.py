"""Metric artefact: a tensor next to zero looks wrong in every score, and nothing comes of it."""

from roundoff.diagnosis.ideal import called
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy
from roundoff.diagnosis.subject import Case, Suspect
from roundoff.messages.message import message

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
