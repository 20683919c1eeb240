"""Corrupted weights: the codes in the file are not those that the float weights give."""

import numpy as np

from roundoff.core.tensors import Array
from roundoff.diagnosis.ideal import called, option_fixes, tried
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Suspect
from roundoff.messages.message import message

ENOUGH_ROUNDED = 0.6
"""Codes that are cut off have an error of a third of a squared step, rounded ones still have one of a twelfth:
where steps are coarse, rounding right takes away three quarters at most."""


def code_differences(case: Case, suspect: Suspect) -> Array | None:
    """Stored codes less those that rounding gives; None where they are what rounding gives."""
    quantizer = case.facts.quantizers[suspect.name]
    if quantizer.codes is None or quantizer.tensor not in case.facts.weights:
        return None
    differences = quantizer.codes.astype(np.int64) - case.facts.rounded_codes(quantizer).astype(np.int64)
    return differences if differences.any() else None


@cause("corrupted-weights", of="quantization", order=25, enough=ENOUGH_ROUNDED)
class CorruptedWeights:
    """The codes in the file are not those that the float weights give."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """How many codes are more than a step away from where they belong."""
        differences = code_differences(case, suspect)
        if differences is None or suspect.kind == "bias":
            return None
        apart = np.abs(differences)
        share = float(np.count_nonzero(apart) / apart.size)
        return Signal(min(1.0, 0.1 + share), {"differing_share": share, "largest_steps": float(apart.max())})

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """The codes that rounding the float weights gives."""
        differences, fixes = code_differences(case, suspect), option_fixes(case, suspect, "codes")
        if fixes is None or differences is None:
            return None
        wrong = int(np.count_nonzero(differences))
        what = called(suspect)
        return tried(
            case,
            suspect,
            fixes,
            changed=message("diagnosis.corrupted_weights_changed", what=what),
            summary=message(
                "diagnosis.corrupted_weights_summary",
                count=wrong,
                all=differences.size,
                what=what,
                most=int(np.abs(differences).max()),
            ),
            changes=[RemedyChange("codes", tensors=suspect.tensors, nodes=suspect.nodes)],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """Quantize them again."""
        title = message("diagnosis.corrupted_weights_remedy", node=suspect.node)
        return Remedy(title, "free", proof.changes)
