"""Outliers in a transformer's residual stream: a few values set the scale, and the rest is rounded away."""

from roundoff.diagnosis.ideal import called, range_or_bits_suffice, tried
from roundoff.diagnosis.interventions import WIDE_BITS, with_bits
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Suspect
from roundoff.messages.message import message

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
