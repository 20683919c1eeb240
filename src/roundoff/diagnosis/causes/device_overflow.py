"""Sums do not fit the register of a device."""

from dataclasses import replace

from roundoff.diagnosis.devices.kernels.fit import is_known_kernel
from roundoff.diagnosis.devices.proof import called, tried
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import DeviceSuspect
from roundoff.diagnosis.registry import ENOUGH, Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.messages.message import message

_WIDTHS = (32, 24, 20, 18, 17, 16, 15, 12)
# Rounding explains smaller differences.
_LEAST_STEPS = 3.0


@cause("overflow", of="device", order=70)
class DeviceOverflow:
    """Sums of products do not fit the device's accumulator: they wrap around or saturate."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """Differences of many steps, where sums are made of codes."""
        if not case.quantizers or suspect.error.largest < _LEAST_STEPS or suspect.tensor not in case.tensors:
            return None
        if suspect.flow == "dump only" or suspect.whole or is_known_kernel(case, suspect):
            return None
        return Signal(1.0, {"largest_steps": suspect.error.largest})

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """The reference with a shorter accumulator."""
        best: Intervention | None = None
        what = called(suspect)
        for bits in _WIDTHS:
            for overflow in ("wrap", "saturate"):
                arithmetic = replace(case.arithmetic, accumulator_bits=bits, overflow=overflow)
                other = case.golden.with_arithmetic(arithmetic)
                made = [other.compute(suspect.tensor, case.view(sample)) for sample in suspect.places]
                proof = tried(
                    suspect,
                    made,
                    changed=message(f"diagnosis.device_overflow_{overflow}_changed", bits=bits),
                    summary=message(f"diagnosis.device_overflow_{overflow}", tensor=what, bits=bits),
                    changes=(
                        RemedyChange(
                            "accumulator", nodes=suspect.nodes, tensors=(suspect.tensor,), value=str(bits)
                        ),
                    ),
                )
                if best is None or proof.recovered > best.recovered:
                    best = proof
                if proof.recovered >= ENOUGH:
                    return proof
        return best

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Smaller weights or fewer of them."""
        return Remedy(message("diagnosis.device_overflow_remedy"), "outside", proof.changes)
