"""Causes in the codes of weights and biases: not those of float, of another scale, one-sided, too large."""

from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.quantizers import Quantizer, QuantParams, quantize
from roundoff.core.tensors import Array
from roundoff.diagnosis.ideal import called, option_fixes, tried
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Suspect
from roundoff.messages.message import Argument, message

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


# Rounding down or up moves codes by one step, never more.
_ONE_STEP = 1

# Wrong dequantization: the codes are those of the float weights, and scale or zero point are of other codes.

# A scale that is off by less than this part costs less than rounding does.
_OFF = 0.02
# Codes belong to a scale when so many of them are what it gives, within a step: learned rounding goes as far.
_MOST_CODES = 0.99


@dataclass(frozen=True, slots=True, eq=False)
class _FittedScale:
    """What codes were quantized with, by the float weights.

    Attributes:
        quantizer: The same codes with it.
        factors: Scale of the file over that of its codes, for each slice whose scale or zero point is wrong.
        slices: How many slices there are.
    """

    quantizer: Quantizer
    factors: Array
    slices: int


def _fitted_scale(case: Case, suspect: Suspect) -> _FittedScale | None:
    """The line that codes and float weights lie on; None where the file has it, or they lie on none."""
    quantizer = case.facts.quantizers[suspect.name]
    if suspect.kind != "weight" or code_differences(case, suspect) is None or quantizer.codes is None:
        return None
    axis, params = quantizer.spec.axis, quantizer.params
    values = case.facts.values(quantizer.tensor).astype(np.float64)
    if params.scale.ndim > 1 or values.shape != quantizer.codes.shape or not np.isfinite(values).all():
        return None
    codes, sliced = quantizer.codes.astype(np.float64), params.scale.size > 1 and axis is not None
    axes = tuple(at for at in range(values.ndim) if not sliced or at != (axis or 0) % values.ndim)
    zero = params.zero_point.astype(np.float64)
    if zero.any():
        means = codes.mean(axis=axes, keepdims=True), values.mean(axis=axes, keepdims=True)
        scale = _slope(codes - means[0], values - means[1], axes)
        zero = np.round(means[0].reshape(scale.shape) - means[1].reshape(scale.shape) / scale)
    else:
        scale = _slope(codes, values, axes)
    scale, zero = (np.broadcast_to(each.reshape(-1), params.scale.size) for each in (scale, zero))
    given = params.scale.astype(np.float64).reshape(-1), params.zero_point.reshape(-1)
    wrong = (np.abs(scale / given[0] - 1) > _OFF) | (zero != given[1])
    # What holds nothing has any scale.
    wrong &= np.isfinite(scale) & (scale > 0)
    if not wrong.any():
        return None
    found = QuantParams(
        np.where(wrong, scale, given[0]).reshape(params.scale.shape).astype(params.scale.dtype),
        np.where(wrong, zero, given[1]).reshape(params.zero_point.shape).astype(params.zero_point.dtype),
    )
    apart = np.abs(quantize(values, found, quantizer.spec).astype(np.int64) - quantizer.codes.astype(np.int64))
    if np.count_nonzero(apart <= _ONE_STEP) < _MOST_CODES * apart.size:
        return None
    return _FittedScale(replace(quantizer, params=found), (given[0] / scale)[wrong], scale.size)


def _slope(codes: Array, values: Array, axes: tuple[int, ...]) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((codes * values).sum(axis=axes) / np.square(codes).sum(axis=axes))


@cause("wrong-dequantization", of="quantization", order=15)
class WrongScale:
    """The codes of a weight are those of the float weights, but its scale or zero point is of other codes."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """By what factor the scale is wrong."""
        found = _fitted_scale(case, suspect)
        return None if found is None else Signal(1.0, {"scale_ratio": _usual(found)})

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """The same codes with the scale and zero point that they were quantized with."""
        found = _fitted_scale(case, suspect)
        if found is None:
            return None
        factor, each = _usual(found), "" if found.slices == 1 else "_slices"
        told: dict[str, Argument] = {"what": called(suspect), "factor": factor}
        told |= {"count": found.factors.size, "all": found.slices}
        moved = abs(factor - 1) <= _OFF
        return tried(
            case,
            suspect,
            {suspect.name: found.quantizer},
            changed=message(f"diagnosis.wrong_scale_changed{each}", **told),
            summary=message(
                "diagnosis.wrong_zero_summary" if moved else f"diagnosis.wrong_scale_summary{each}", **told
            ),
            changes=[RemedyChange("range", tensors=suspect.tensors, nodes=suspect.nodes)],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """The scale of the codes, or codes and scale anew."""
        title = message("diagnosis.wrong_scale_remedy", node=suspect.node)
        return Remedy(title, "free", proof.changes)


def _usual(found: _FittedScale) -> float:
    return float(np.median(found.factors))


# Bias shift: what a node computes is off by a constant, by its bias or by codes that are all rounded down.

# Errors of one sign: their sum over the sum of their sizes. Learned rounding goes both ways.
_ONE_SIDED = 0.9


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
