"""Integers are rounded in another way than the reference does."""

from collections.abc import Iterator
from dataclasses import replace

from roundoff.core.target import Arithmetic
from roundoff.diagnosis.devices.proof import called, tried
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import DeviceSuspect
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Change, Remedy

__all__ = ["SHIFTED", "IntegerImplementation", "arithmetics"]

SHIFTED = 0.2
"""A mean difference of this many steps is no chance: rounding is unbiased, cutting off loses half a step."""

_WORDS = {"floor": "rounds down", "half_up": "rounds halves up", "half_away": "rounds halves away from zero"}


def arithmetics(usual: Arithmetic) -> Iterator[tuple[str, Arithmetic]]:
    """Other ways to round, with what to say of them."""
    for rounding, words in _WORDS.items():
        if rounding != usual.rounding:
            yield words, replace(usual, rounding=rounding)  # type: ignore[arg-type]
    for bits in (15, 8, 7):
        short = replace(usual, requantization="fixed_point", multiplier_bits=bits)
        yield f"multiplies by a factor of {bits} bits", short
        yield f"multiplies by a factor of {bits} bits and rounds down", replace(short, rounding="floor")


@cause("integer-implementation", side="device", order=60)
class IntegerImplementation:
    """Results are brought to their codes in another way: cut off instead of rounded, or with a short factor."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """The mean difference in steps."""
        if not case.quantizers or suspect.tensor not in case.golden.coded or suspect.flow == "dump only":
            return None
        return Signal(1.0, {"mean_steps": suspect.error.mean_shift, "largest_steps": suspect.error.largest})

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """The reference with other rounding."""
        best: Intervention | None = None
        what = called(suspect)
        same = suspect.error.same / max(1, suspect.error.count)
        for words, arithmetic in arithmetics(case.arithmetic):
            other = case.golden.with_arithmetic(arithmetic)
            made = [other.compute(suspect.tensor, case.view(sample)) for sample in suspect.places]
            proof = tried(
                suspect,
                made,
                changed=f"the reference {words} at {what}",
                summary=f"{what} is off by {suspect.error.mean_shift:+.2f} steps in the mean ({same:.0%} of its "
                f"codes are the reference's): the device {words}",
                changes=(Change("report", nodes=suspect.nodes, tensors=(suspect.tensor,), value=words),),
            )
            if best is None or proof.recovered > best.recovered:
                best = proof
        return best

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Ask for rounding, or take the shift into the bias."""
        title = "ask the vendor for rounding, or add half a step to the bias; calibrate with the device's rounding"
        return Remedy(title, "outside", proof.changes)
