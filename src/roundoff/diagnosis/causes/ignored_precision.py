"""Ignored precision: more bits were asked for a tensor than it has."""

from roundoff.diagnosis.ideal import called, tried
from roundoff.diagnosis.interventions import with_bits
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Suspect
from roundoff.messages.message import message


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
