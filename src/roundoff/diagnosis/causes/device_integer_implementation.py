"""Integers are rounded in another way than the reference does."""

from roundoff.diagnosis.devices.proof import arithmetics, called, tried
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import DeviceSuspect
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.messages.message import message


@cause("integer-implementation", of="device", order=60)
class IntegerImplementation:
    """Results are brought to their codes in another way: cut off instead of rounded, or with a short factor."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """The mean difference in steps."""
        if (
            not case.quantizers
            or suspect.tensor not in case.golden.coded
            or suspect.flow == "dump only"
            or suspect.whole
        ):
            return None
        return Signal(1.0, {"mean_steps": suspect.error.mean_shift, "largest_steps": suspect.error.largest})

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """The reference with other rounding."""
        best: Intervention | None = None
        what = called(suspect)
        same = suspect.error.same / max(1, suspect.error.count)
        for how, arithmetic in arithmetics(case.arithmetic):
            other = case.golden.with_arithmetic(arithmetic)
            made = [other.compute(suspect.tensor, case.view(sample)) for sample in suspect.places]
            proof = tried(
                suspect,
                made,
                changed=message("diagnosis.integer_implementation_changed", how=how, tensor=what),
                summary=message(
                    "diagnosis.integer_implementation_summary",
                    tensor=what,
                    mean=suspect.error.mean_shift,
                    share=same,
                    how=how,
                ),
                changes=(RemedyChange("report", nodes=suspect.nodes, tensors=(suspect.tensor,), value=str(how)),),
            )
            if best is None or proof.recovered > best.recovered:
                best = proof
        return best

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Ask for rounding, or take the shift into the bias."""
        return Remedy(message("diagnosis.integer_implementation_remedy"), "outside", proof.changes)
