"""Causes in the codes of weights and biases: not those of float, rounded to one side, beyond their integers."""

import numpy as np

from roundoff.core.tensors import Array
from roundoff.diagnosis.ideal import called, option_fixes, tried
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Suspect
from roundoff.messages.message import message

# Corrupted weights: the codes in the file are not those that the float weights give.

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


# Bias shift: what a node computes is off by a constant, by its bias or by codes that are all rounded down.

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


# Overflow: a bias, or a sum of products, does not fit the integers it is computed in.


@cause("overflow", of="quantization", order=10)
class BiasOverflow:
    """A bias, or a sum of products, does not fit the integers it is computed in."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """How much larger a bias is than what its codes can hold."""
        if suspect.kind != "bias":
            return None
        times = _times(case, suspect)
        return Signal(1.0, {"bias_over_limit": times}) if times > 1 else None

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """A bias that fits: in float."""
        bits = case.facts.quantizers[suspect.name].spec.bits
        what = called(suspect)
        return tried(
            case,
            suspect,
            case.in_float(suspect),
            changed=message("diagnosis.overflow_changed", what=what, bits=bits),
            summary=message("diagnosis.overflow_summary", what=what, times=_times(case, suspect), bits=bits),
            changes=[RemedyChange("accumulator", tensors=suspect.tensors, nodes=suspect.nodes, value="wide")],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """Wider scales, so that it fits."""
        change = RemedyChange("float", tensors=suspect.tensors, nodes=suspect.nodes)
        return Remedy(message("diagnosis.overflow_remedy", node=suspect.node), "free", (change,))


def _times(case: Case, suspect: Suspect) -> float:
    """The largest bias over what fits."""
    quantizer = case.facts.quantizers[suspect.name]
    values = case.facts.values(quantizer.tensor).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.abs(values / quantizer.params.scale.astype(np.float64))
    return float(np.nan_to_num(steps, posinf=np.inf).max(initial=0.0) / quantizer.spec.code_max)
