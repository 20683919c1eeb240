"""Operations on each element: sums, products, bounds, slopes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from roundoff.core.quantizers import QuantParams, QuantSpec, aligned, code_dtype, quantize, round_values
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.messages.message import english
from roundoff.run.integer.call import IntegerKernel, KernelCall, KernelResult, NotInteger, Operand
from roundoff.run.integer.linear import with_bias
from roundoff.run.integer.results import Coded, Move, Result, Wide, as_wide, fixed_point, multiply

# Results made of others, which become codes by rules of their own.


@dataclass(frozen=True, slots=True, eq=False)
class Clipped(Result):
    """Another result between two bounds; the bounds become codes too, as fused activations do it.

    Attributes:
        inner: What is bounded.
        low: Smallest value.
        high: Largest value; where it is below the smallest, everything is equal to it, as in ONNX.
    """

    inner: Result
    low: float
    high: float

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its values."""
        return self.inner.shape

    def real(self) -> Array:
        """The inner values within the bounds."""
        return np.clip(self.inner.real(), self.low, self.high)

    def codes_for(self, params: QuantParams, spec: QuantSpec, arithmetic: Arithmetic) -> Array:
        """Codes of the inner result between the codes of the bounds."""
        codes = self.inner.codes_for(params, spec, arithmetic)
        shape = aligned(params.scale, codes.ndim, spec.axis).shape
        rounded = replace(spec, rounding=arithmetic.rounding)
        low, high = (
            quantize(np.full(shape, bound, np.float32), params, rounded) for bound in (self.low, self.high)
        )
        return np.clip(codes, low, high)

    def rearranged(self, move: Move) -> "tuple[Result, ...]":
        """Moved, within the same bounds."""
        return tuple(replace(self, inner=inner) for inner in self.inner.rearranged(move))


@dataclass(frozen=True, slots=True, eq=False)
class ShiftedSum(Result):
    """The sum or difference of two quantized tensors in fixed-point arithmetic.

    Both are brought to a common scale of higher precision, added there, and brought to the scale of the result.
    Where the multiplier is narrow, each is brought to the scale of the result by itself instead.

    Attributes:
        left: First operand.
        right: Second operand.
        sign: 1 for the sum, -1 for the difference.
        narrowly: Whether the multiplier is narrow.
    """

    left: Coded
    right: Coded
    sign: int
    narrowly: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its values."""
        return np.broadcast_shapes(self.left.shape, self.right.shape)

    def real(self) -> Array:
        """The exact sum, before any fixed-point rounding."""
        return np.asarray(self.left.wide().real() + self.sign * self.right.wide().real())

    def codes_for(self, params: QuantParams, spec: QuantSpec, arithmetic: Arithmetic) -> Array:
        """Both operands scaled to a common precision, added, and scaled to the result; or each to the result."""
        if self.narrowly:
            scale = aligned(params.scale, len(self.shape), spec.axis).astype(np.float64)
            parts = (
                multiply(
                    each.centred().astype(np.int64),
                    fixed_point(each.scale / scale, arithmetic.narrow_bits),
                    arithmetic.rounding,
                    twice=False,
                )
                for each in (self.left, self.right)
            )
            total = next(parts) + self.sign * next(parts) + aligned(params.zero_point, len(self.shape), spec.axis)
            return np.asarray(np.clip(total, spec.code_min, spec.code_max).astype(code_dtype(spec)))
        common = 2 * np.maximum(self.left.scale, self.right.scale)
        # So that the sum of two shifted codes fits 32 bits.
        places = 20 if max(self.left.spec.bits, self.right.spec.bits) <= 8 else 15
        left, right = (
            self._scaled(operand, operand.scale / common, places, arithmetic)
            for operand in (self.left, self.right)
        )
        total = left + self.sign * right
        return Wide(total, common / (1 << places)).codes_for(params, spec, arithmetic)

    def _scaled(self, operand: Coded, factor: Array, places: int, arithmetic: Arithmetic) -> Array:
        shifted = operand.centred().astype(np.int64) << places
        multiplier = fixed_point(factor, arithmetic.multiplier_bits)
        return multiply(shifted, multiplier, arithmetic.rounding, twice=arithmetic.rounds_twice)

    def rearranged(self, move: Move) -> "tuple[Result, ...]":
        """Both operands moved alike."""
        lefts, rights = (
            [replace(operand, codes=codes) for codes in move(np.broadcast_to(operand.codes, self.shape))]
            for operand in (self.left, self.right)
        )
        return tuple(replace(self, left=left, right=right) for left, right in zip(lefts, rights, strict=True))

    def narrow(self) -> "ShiftedSum":
        """The same sum, with the narrow multiplier for each operand."""
        return replace(self, narrowly=True)


@dataclass(frozen=True, slots=True, eq=False)
class CodeMean(Result):
    """Means of codes of one tensor.

    Attributes:
        total: Sums of codes without zero points.
        counts: How many were added, broadcasting with the sums.
        source: The tensor's scale and zero point.
    """

    total: Array
    counts: Array
    source: Coded

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its values."""
        return self.total.shape

    def real(self) -> Array:
        """Exact means."""
        return self._wide().real()

    def codes_for(self, params: QuantParams, spec: QuantSpec, arithmetic: Arithmetic) -> Array:
        """The mean of the codes where fixed-point hardware keeps the scale, else requantized sums."""
        if arithmetic.requantization != "fixed_point" or not self.source.shares_scale(params, spec):
            return self._wide().codes_for(params, spec, arithmetic)
        # Where the scale stays, fixed-point kernels divide the sum of the codes themselves.
        mean = (self.total + self.counts * params.zero_point) / self.counts
        codes = np.clip(round_values(np.asarray(mean), arithmetic.rounding), spec.code_min, spec.code_max)
        return np.asarray(codes.astype(code_dtype(spec)))

    def rearranged(self, move: Move) -> "tuple[Result, ...]":
        """Moved sums, each with its count."""
        counts = move(np.broadcast_to(self.counts, self.total.shape))
        pairs = zip(move(self.total), counts, strict=True)
        return tuple(CodeMean(total, count, self.source) for total, count in pairs)

    def narrow(self) -> Wide:
        """The sums, requantized with the narrow multiplier; codes are then not divided."""
        return self._wide().narrow()

    def _wide(self) -> Wide:
        return Wide(self.total, self.source.scale.reshape(()) / self.counts)


@dataclass(frozen=True, slots=True, eq=False)
class LookupTable(Result):
    """A function of codes, tabulated over all of them.

    Attributes:
        index: For each element, which entry.
        entries: Values of the function, float32.
    """

    index: Array
    entries: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its values."""
        return self.index.shape

    def real(self) -> Array:
        """The entries looked up."""
        return np.asarray(self.entries[self.index])

    def codes_for(self, params: QuantParams, spec: QuantSpec, arithmetic: Arithmetic) -> Array:
        """The codes of the entries, looked up."""
        rounded = replace(spec, rounding=arithmetic.rounding)
        if spec.axis is not None:
            return quantize(self.real(), params, rounded)
        return np.asarray(quantize(self.entries, params, rounded)[self.index])

    def rearranged(self, move: Move) -> "tuple[Result, ...]":
        """Moved places in the table."""
        return tuple(replace(self, index=index) for index in move(self.index))


# Wider codes, shifted to the precision of the sum, would not fit 32 bits.
_WIDEST_SHIFTED_BITS = 16


def _wide(operand: Operand) -> Wide:
    """An operand as numbers with a scale; constants that are not quantized are parameters of the hardware."""
    plain = operand.plain
    if plain is not None:
        return Wide(plain.astype(np.float64), np.ones(()), integral=False)
    return as_wide(operand.result)


def _real(operand: Operand) -> Array:
    return np.asarray(_wide(operand).real(), dtype=np.float64)


def _real_result(values: Array) -> Wide:
    return Wide(values, np.ones(()), integral=False)


def _operands(call: KernelCall) -> list[Operand]:
    return [operand for operand in call.operands if operand is not None]


def _add(call: KernelCall) -> KernelResult:
    return [_sum(call, 1)]


def _sub(call: KernelCall) -> KernelResult:
    return [_sum(call, -1)]


def _sum(call: KernelCall, sign: int) -> Result:
    first, second = call.operand(0), call.operand(1)
    left, right = first.value, second.value
    if isinstance(left, Coded) and isinstance(right, Coded) and _shifts(call, left, right):
        return ShiftedSum(left, right, sign)
    if sign > 0:
        # A bias that was exported as a node of its own belongs to the sums of products.
        for sums, bias in ((first, second), (second, first)):
            if isinstance(sums.value, Wide) and sums.value.integral and bias.constant and _fits(sums, bias):
                return with_bias(call, sums.value, bias)
    return _real_result(_real(first) + sign * _real(second))


def _fits(sums: Operand, bias: Operand) -> bool:
    """Whether adding a bias leaves the shape as it is."""
    shape: tuple[int, ...] = sums.value.shape
    return np.broadcast_shapes(shape, bias.value.shape) == shape


def _shifts(call: KernelCall, left: Coded, right: Coded) -> bool:
    narrow = max(left.spec.bits, right.spec.bits) <= _WIDEST_SHIFTED_BITS
    return call.context.arithmetic.requantization == "fixed_point" and narrow and left.whole and right.whole


def _variadic_sum(call: KernelCall) -> KernelResult:
    if len(_operands(call)) == 2:
        return _add(call)
    return [_real_result(np.asarray(reduce(np.add, map(_real, _operands(call)))))]


def _mul(call: KernelCall) -> KernelResult:
    first, second = call.operand(0), call.operand(1)
    for scaled, factor in ((first, second), (second, first)):
        if factor.plain is not None:
            return [_scaled(scaled.result, factor.plain.astype(np.float64))]
    left, right = as_wide(first.result), as_wide(second.result)
    integral = left.integral and right.integral
    total = left.total.astype(np.float64) * right.total
    return [Wide(call.accumulated(total) if integral else total, left.scale * right.scale, integral)]


def _div(call: KernelCall) -> KernelResult:
    divisor = call.operand(1)
    if not divisor.constant:
        raise NotInteger(english("it divides by a tensor that is not constant"))
    by = _real(divisor)
    if not by.all():
        raise NotInteger(english("it divides by zero"))
    return [_scaled(call.operand(0).result, 1 / by)]


def _scaled(result: Result, factor: Array) -> Wide:
    wide = as_wide(result)
    total = np.broadcast_to(wide.total, np.broadcast_shapes(wide.total.shape, factor.shape))
    return Wide(total, np.asarray(wide.scale * factor), wide.integral)


def _neg(call: KernelCall) -> KernelResult:
    wide = as_wide(call.operand(0).result)
    return [Wide(-wide.total, wide.scale, wide.integral)]


def _abs(call: KernelCall) -> KernelResult:
    wide = as_wide(call.operand(0).result)
    return [Wide(np.abs(wide.total), np.abs(wide.scale), wide.integral)]


def _relu(call: KernelCall) -> KernelResult:
    return [Clipped(call.operand(0).result, 0.0, np.inf)]


def _clip(call: KernelCall) -> KernelResult:
    low, high = _bound(call, 1, "min", -np.inf), _bound(call, 2, "max", np.inf)
    return [Clipped(call.operand(0).result, low, high)]


def _bound(call: KernelCall, index: int, name: str, default: float) -> float:
    operand = call.optional(index)
    if operand is None:
        return float(call.attributes.get(name, default))
    if not operand.constant:
        raise NotInteger(english("its bound {name!r} is not constant", name=operand.name))
    return float(_real(operand).reshape(()))


def _leaky_relu(call: KernelCall) -> KernelResult:
    return [_sloped(call.operand(0).result, np.array(float(call.attributes.get("alpha", 0.01))))]


def _prelu(call: KernelCall) -> KernelResult:
    slope = call.operand(1)
    if not slope.constant:
        raise NotInteger(english("its slope {name!r} is not constant", name=slope.name))
    return [_sloped(call.operand(0).result, _real(slope))]


def _sloped(result: Result, slope: Array) -> Wide:
    wide = as_wide(result)
    # What is below zero has a scale of its own.
    return Wide(wide.total, np.where(wide.total < 0, wide.scale * slope, wide.scale), wide.integral)


def _batch_normalization(call: KernelCall) -> KernelResult:
    """A factor and an offset for each channel, in real numbers."""
    if call.outputs > 1 or call.attributes.get("training_mode", 0):
        raise NotInteger(english("it is in training mode"))
    wide = as_wide(call.operand(0).result)
    parameters = [call.operand(index) for index in range(1, 5)]
    if not all(operand.constant for operand in parameters):
        raise NotInteger(english("its parameters are not constant"))
    gain, offset, mean, variance = (aligned(_real(operand), len(wide.shape), 1) for operand in parameters)
    factor = gain / np.sqrt(variance + float(call.attributes.get("epsilon", 1e-5)))
    total = wide.total * (wide.scale * factor)
    total += offset - mean * factor
    return [_real_result(total)]


def _max(call: KernelCall) -> KernelResult:
    return [_chosen(_operands(call), np.maximum)]


def _min(call: KernelCall) -> KernelResult:
    return [_chosen(_operands(call), np.minimum)]


def _chosen(operands: Sequence[Operand], choose: np.ufunc) -> Result:
    first = operands[0].value
    if isinstance(first, Coded) and first.whole and all(_same(first, operand) for operand in operands[1:]):
        return Coded(reduce(choose, (operand.value.codes for operand in operands)), first.params, first.spec)
    return _real_result(np.asarray(reduce(choose, map(_real, operands))))


def _same(first: Coded, operand: Operand) -> bool:
    other = operand.value
    return isinstance(other, Coded) and first.shares_scale(other.params, other.spec) and first.spec == other.spec


def _where(call: KernelCall) -> KernelResult:
    condition, first, second = call.operand(0).value, call.operand(1), call.operand(2)
    if not isinstance(condition, np.ndarray):
        raise NotInteger(english("its condition is quantized"))
    left, right = _wide(first), _wide(second)
    total = np.where(condition, left.total, right.total)
    scale = np.where(condition, np.broadcast_to(left.scale, left.shape), np.broadcast_to(right.scale, right.shape))
    return [Wide(total, scale, left.integral and right.integral)]


ELEMENTWISE_KERNELS: dict[str, IntegerKernel] = {
    "Abs": _abs,
    "Add": _add,
    "BatchNormalization": _batch_normalization,
    "Clip": _clip,
    "Div": _div,
    "LeakyRelu": _leaky_relu,
    "Max": _max,
    "Min": _min,
    "Mul": _mul,
    "Neg": _neg,
    "PRelu": _prelu,
    "Relu": _relu,
    "Sub": _sub,
    "Sum": _variadic_sum,
    "Where": _where,
}
