"""Quantizers as data: how one tensor is turned into integer codes at one place of a network."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from roundoff.core.tensors import Array

Rounding = Literal["half_even", "half_up", "half_away", "floor"]
SymmetricScale = Literal["max_code", "half_span", "larger_side", "one_sided"]
Kind = Literal["activation", "weight", "bias"]
SubjectKind = Literal["node", "weight", "activation", "bias", "group"]

OUTPUT_LIMITS = {
    **dict.fromkeys(("Sigmoid", "HardSigmoid", "Softmax"), (0.0, 1.0)),
    **dict.fromkeys(("Tanh", "Erf", "Sin", "Cos", "Softsign"), (-1.0, 1.0)),
    "LogSoftmax": (-float("inf"), 0.0),
}
"""What no value of these operations goes beyond, whatever they are fed."""


@dataclass(frozen=True, slots=True)
class QuantSpec:
    """How values become codes; the scale and zero point that go with it are `QuantParams`.

    Attributes:
        bits: Width of a code.
        signed: Whether codes can be negative.
        symmetric: The zero point is fixed: 0 for signed codes, the middle of the range for unsigned ones.
        axis: Axis along which each slice has a scale of its own; None when one scale serves the whole tensor.
        symmetric_scale: The scale of a symmetric quantizer is the largest magnitude over ... the largest code
            (``max_code``, 127 for 8 bits), half the span of codes (``half_span``, 127.5), or the limit on the side
            of the larger magnitude (``larger_side``, 128 when that is the negative one); ``one_sided`` is the
            first, and all codes are for what is not negative where nothing is: the smallest code is zero then.
        power_of_two: Scales are rounded up to a power of two.
        narrow: The lowest signed code is not used (-127..127).
        rounding: How a value between two codes is rounded.
        smallest_scale: A scale below this is replaced by 1, as some vendors do.
    """

    bits: int
    signed: bool
    symmetric: bool
    axis: int | None = None
    symmetric_scale: SymmetricScale = "max_code"
    power_of_two: bool = False
    narrow: bool = False
    rounding: Rounding = "half_even"
    smallest_scale: float = 0.0

    @property
    def dtype(self) -> str:
        """The short name of its codes: ``u8``, ``s8``, ``u16``, ``s16``, ``s4``, ``s32`` ..."""
        return f"{'s' if self.signed else 'u'}{self.bits}"

    @property
    def code_min(self) -> int:
        """Smallest code."""
        return -(1 << (self.bits - 1)) + self.narrow if self.signed else 0

    @property
    def code_max(self) -> int:
        """Largest code."""
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    def along(self, axis: int | None) -> "QuantSpec":
        """The same with another granularity."""
        return replace(self, axis=axis)


@dataclass(frozen=True, slots=True, eq=False)
class QuantParams:
    """Scale and zero point: ``value = (code - zero_point) * scale``.

    Attributes:
        scale: float32, positive and finite; of shape [] for a whole tensor, [C] for one per slice.
        zero_point: int64 of the same shape; a code that stands for zero.
    """

    scale: Array
    zero_point: Array

    def equals(self, other: "QuantParams") -> bool:
        """Whether codes stand for the same values."""
        return np.array_equal(self.scale, other.scale) and np.array_equal(self.zero_point, other.zero_point)


@dataclass(frozen=True, slots=True, order=True)
class Consumer:
    """One input of one node."""

    node: str
    input: int


@dataclass(frozen=True, slots=True, eq=False)
class Quantizer:
    """One switchable quantization of one tensor at one place.

    A quantized model is a float model and its quantizers: with all of them on it is the quantized model, with
    all of them off the float one, with some of them on something between.

    Attributes:
        name: Unique in its model.
        tensor: The tensor of the float model that it quantizes.
        kind: What that tensor is.
        spec: How.
        params: With which scale and zero point.
        consumers: The node inputs that see the quantized values; others see the float ones.
        output: Whether the tensor is an output of the network, and leaves it quantized.
        after: Name of the quantizer of the same tensor whose result this one quantizes again; empty when it
            quantizes the float values.
        codes: The codes of a constant tensor where they are not what rounding its values would give (the rounding
            was learned, or the float values are not known exactly); None otherwise.
    """

    name: str
    tensor: str
    kind: Kind
    spec: QuantSpec
    params: QuantParams
    consumers: tuple[Consumer, ...]
    output: bool = False
    after: str = ""
    codes: Array | None = None


# The arithmetic of quantization: ranges to scales, values to codes and back. Bit-equal to ONNX's operators.
#
# ONNX divides in float32, rounds half to even, adds the zero point and saturates; the way back is
# ``float32(code - zero_point) * scale``.

# Below this a float32 scale is subnormal, and dividing by it overflows for ordinary values.
_SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class SwitchedSubject:
    """Quantizers that are switched together.

    Attributes:
        name: The node; for a single quantizer its name; for a group what the user calls it.
        kind: What it is.
        quantizers: Names of the quantizers; those of a node are the ones on its inputs.
        node: For a node itself, for a quantizer the first node that reads it; empty for groups.
        op_type: That node's operation.
        tensor: What a single quantizer quantizes; empty otherwise.
    """

    name: str
    kind: SubjectKind
    quantizers: tuple[str, ...]
    node: str = ""
    op_type: str = ""
    tensor: str = ""


def round_values(values: Array, rounding: Rounding) -> Array:
    """Round to whole numbers, staying in the same float type."""
    if rounding == "half_even":
        return np.asarray(np.rint(values))
    if rounding == "floor":
        return np.asarray(np.floor(values))
    if rounding == "half_up":
        return _half_up(values)
    # By magnitude: seen from the floor of a negative value, what lies just above one half rounds to it.
    return np.asarray(np.copysign(_half_up(np.abs(values)), values))


def _half_up(values: Array) -> Array:
    low = np.floor(values)
    # Adding one half before the floor would round that sum first, and take what is just below one half up.
    return np.asarray(low + (values - low >= 0.5).astype(values.dtype))


def parameters_from_range(low: Array | float, high: Array | float, spec: QuantSpec) -> QuantParams:
    """Scale and zero point with which codes cover a range of values.

    The range is widened to contain zero, which must have a code of its own. A range of no width gets the scale 1.

    Args:
        low: Smallest value, of shape [] or [C]; finite.
        high: Largest value, of the same shape; finite.
        spec: How values become codes.
    """
    bottom = np.minimum(np.asarray(low, dtype=np.float64), 0.0)
    top = np.maximum(np.asarray(high, dtype=np.float64), 0.0)
    ideal = _symmetric_scale(bottom, top, spec) if spec.symmetric else _asymmetric_scale(bottom, top, spec)
    empty = (bottom == top) | (ideal < spec.smallest_scale)
    scale = np.where(empty, 1.0, np.clip(ideal, _SMALLEST_NORMAL, _LARGEST)).astype(np.float32)
    if spec.power_of_two:
        scale = _next_power_of_two(scale)
    if spec.symmetric:
        zero_point = np.full(scale.shape, 0 if spec.signed else 1 << (spec.bits - 1), dtype=np.int64)
        if spec.symmetric_scale == "one_sided":
            zero_point = np.where((bottom == 0) & ~empty, spec.code_min, zero_point)
    else:
        start = np.where(empty, 0.0, bottom)
        exact = spec.code_min - start / scale.astype(np.float64)
        zero_point = np.clip(np.rint(exact), spec.code_min, spec.code_max).astype(np.int64)
    return QuantParams(scale, zero_point)


def _symmetric_scale(bottom: Array, top: Array, spec: QuantSpec) -> Array:
    magnitude = np.maximum(-bottom, top)
    steps = float((1 << (spec.bits - 1)) - 1)
    if spec.symmetric_scale == "half_span":
        return magnitude / (steps + 0.5)
    if spec.symmetric_scale == "larger_side":
        return magnitude / np.where(-bottom > top, steps + 1, steps)
    if spec.symmetric_scale == "one_sided":
        return np.where(bottom == 0, magnitude / (spec.code_max - spec.code_min), magnitude / steps)
    return magnitude / steps


def _asymmetric_scale(bottom: Array, top: Array, spec: QuantSpec) -> Array:
    span = float(spec.code_max - spec.code_min)
    # Divided one by one: the difference of two large values may be infinite.
    return top / span - bottom / span


def _next_power_of_two(scale: Array) -> Array:
    mantissa, exponent = np.frexp(scale)
    exponent = np.where(mantissa == 0.5, exponent - 1, exponent)
    return np.ldexp(np.float32(1), np.minimum(exponent, 127)).astype(np.float32)


def representable_range(params: QuantParams, spec: QuantSpec) -> tuple[Array, Array]:
    """The values of the smallest and the largest code, float64 of the shape of the scale."""
    scale = params.scale.astype(np.float64)
    return (spec.code_min - params.zero_point) * scale, (spec.code_max - params.zero_point) * scale


def code_dtype(spec: QuantSpec) -> np.dtype:
    """The smallest numpy type that holds the codes."""
    width = next(width for width in (8, 16, 32, 64) if width >= spec.bits)
    return np.dtype(f"{'int' if spec.signed else 'uint'}{width}")


def quantize(values: Array, params: QuantParams, spec: QuantSpec) -> Array:
    """Codes of values; NaN becomes the zero point.

    Args:
        values: Float array; narrower types are computed with as float32, float64 as it is.
        params: Of shape [], or [C] with C the size of ``spec.axis``.
        spec: How values become codes.
    """
    exact = values if values.dtype == np.float64 else values.astype(np.float32, copy=False)
    scale = aligned(params.scale, values.ndim, spec.axis).astype(exact.dtype)
    zero_point = aligned(params.zero_point, values.ndim, spec.axis).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        steps = round_values(exact / scale, spec.rounding).astype(np.float64)
        codes = np.clip(
            np.nan_to_num(steps, posinf=np.inf, neginf=-np.inf) + zero_point, spec.code_min, spec.code_max
        )
    return np.asarray(codes.astype(code_dtype(spec)))


def dequantize(codes: Array, params: QuantParams, axis: int | None = None) -> Array:
    """Values of codes, float32."""
    scale = aligned(params.scale, codes.ndim, axis)
    zero_point = aligned(params.zero_point, codes.ndim, axis)
    return np.asarray((codes.astype(np.int64) - zero_point).astype(np.float32) * scale)


# Differences of two codes of so many bits are whole numbers that float32 holds.
_EXACT_BITS = 16


def fake_quantize(values: Array, params: QuantParams, spec: QuantSpec) -> Array:
    """Values as they are after quantizing and dequantizing, float32."""
    if values.dtype == np.float64 or spec.bits > _EXACT_BITS:
        return dequantize(quantize(values, params, spec), params, spec.axis)
    # The same without codes: in steps from the zero point, a quarter of the time.
    scale = aligned(params.scale, values.ndim, spec.axis).astype(np.float32)
    zero_point = aligned(params.zero_point, values.ndim, spec.axis)
    ends = ((end - zero_point).astype(np.float32) for end in (spec.code_min, spec.code_max))
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.asarray(round_values(values.astype(np.float32, copy=False) / scale, spec.rounding))
        if np.isnan(steps.sum()):
            steps = np.nan_to_num(steps, posinf=np.inf, neginf=-np.inf)
        # Adding zero makes one of the two zeros, as codes do.
        return np.asarray((np.clip(steps, *ends) + np.float32(0)) * scale)


def aligned(parameter: Array, rank: int, axis: int | None) -> Array:
    """A scale or zero point shaped so that it broadcasts along its axis."""
    if parameter.ndim == 0 or axis is None:
        return parameter.reshape(()) if parameter.size == 1 else parameter
    shape = [1] * rank
    shape[axis] = -1
    return parameter.reshape(shape)
