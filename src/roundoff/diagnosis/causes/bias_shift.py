"""Bias shift: what a node computes is off by a constant, by its bias or by codes that are all rounded down."""

import numpy as np

from roundoff.diagnosis.causes.corrupted_weights import ENOUGH_ROUNDED, code_differences
from roundoff.diagnosis.ideal import called, option_fixes, tried
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Suspect
from roundoff.messages.message import message

# Errors of one sign: their sum over the sum of their sizes. Learned rounding goes both ways.
_ONE_SIDED = 0.9
# Rounding down or up moves codes by one step, never more.
_ONE_STEP = 1


@cause("bias-shift", of="quantization", order=20, enough=ENOUGH_ROUNDED)
class BiasShift:
    """What a node computes is off by a constant: its bias is wrong, or all codes are rounded to one side."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """Codes of a bias that are not its values, or errors that all have one sign."""
        quantizer = case.facts.quantizers[suspect.name]
        differences = code_differences(case, suspect)
        if differences is not None:
            sided = float(abs(differences.sum()) / np.abs(differences).sum())
            small = suspect.kind == "bias" or np.abs(differences).max() <= _ONE_STEP
            if suspect.kind == "bias" or (small and sided >= _ONE_SIDED):
                return Signal(sided if suspect.kind == "weight" else 1.0, {"one_sided": sided})
            return None
        damage = case.facts.damage(suspect)
        if damage is None or quantizer.spec.rounding == "half_even" or not damage.noise.any():
            return None
        mean = float(damage.shift.sum()) / max(1, damage.count)
        return Signal(0.5, {"mean_error": mean})

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """Codes rounded to the nearest, so that errors have no mean."""
        fixes = option_fixes(case, suspect, "codes")
        if fixes is None:
            return None
        what, damage = called(suspect), case.facts.damage(suspect)
        mean = 0.0 if damage is None else float(damage.shift.sum()) / max(1, damage.count)
        return tried(
            case,
            suspect,
            fixes,
            changed=message("diagnosis.bias_shift_changed", what=what),
            summary=message("diagnosis.bias_shift_one_side", what=what, mean=mean)
            if suspect.kind == "weight"
            else message("diagnosis.bias_shift_not_of_float", what=what, mean=mean),
            changes=[RemedyChange("codes", tensors=suspect.tensors, nodes=suspect.nodes)],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """Round again."""
        return Remedy(message("diagnosis.bias_shift_remedy", what=called(suspect)), "free", proof.changes)
