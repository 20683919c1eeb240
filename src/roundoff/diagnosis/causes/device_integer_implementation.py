"""Integers are rounded in another way than the reference does."""

from collections.abc import Iterator
from dataclasses import replace

from roundoff.core.target import Arithmetic
from roundoff.diagnosis.devices.proof import called, tried
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import DeviceSuspect
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.messages.message import Message, message

__all__ = ["SHIFTED", "IntegerImplementation", "arithmetics"]

SHIFTED = 0.2
"""A mean difference of this many steps is no chance: rounding is unbiased, cutting off loses half a step."""

_ROUNDINGS = ("floor", "half_up", "half_away")


def arithmetics(usual: Arithmetic) -> Iterator[tuple[Message, Arithmetic]]:
    """Other ways to round, with what to say of them."""
    for rounding in _ROUNDINGS:
        if rounding != usual.rounding:
            yield message(f"diagnosis.rounds_{rounding}"), replace(usual, rounding=rounding)  # type: ignore[arg-type]
    for bits in (15, 8, 7):
        short = replace(usual, requantization="fixed_point", multiplier_bits=bits)
        yield message("diagnosis.rounds_factor", bits=bits), short
        yield message("diagnosis.rounds_factor_floor", bits=bits), replace(short, rounding="floor")


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
