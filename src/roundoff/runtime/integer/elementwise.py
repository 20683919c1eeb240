"""Operations on each element: sums, products, bounds, slopes."""

from collections.abc import Sequence
from functools import reduce

import numpy as np

from roundoff.core.tensors import Array
from roundoff.runtime.integer.call import Call, IntegerKernel, NotInteger, Operand, Outcome
from roundoff.runtime.integer.composed import Clipped, ShiftedSum
from roundoff.runtime.integer.linear import with_bias
from roundoff.runtime.integer.results import Coded, Result, Wide, aligned, as_wide

__all__ = ["ELEMENTWISE_KERNELS"]

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


def _operands(call: Call) -> list[Operand]:
    return [operand for operand in call.operands if operand is not None]


def _add(call: Call) -> Outcome:
    return [_sum(call, 1)]


def _sub(call: Call) -> Outcome:
    return [_sum(call, -1)]


def _sum(call: Call, sign: int) -> Result:
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


def _shifts(call: Call, left: Coded, right: Coded) -> bool:
    narrow = max(left.spec.bits, right.spec.bits) <= _WIDEST_SHIFTED_BITS
    return call.shop.arithmetic.requantization == "fixed_point" and narrow and left.whole and right.whole


def _variadic_sum(call: Call) -> Outcome:
    if len(_operands(call)) == 2:
        return _add(call)
    return [_real_result(np.asarray(reduce(np.add, map(_real, _operands(call)))))]


def _mul(call: Call) -> Outcome:
    first, second = call.operand(0), call.operand(1)
    for scaled, factor in ((first, second), (second, first)):
        if factor.plain is not None:
            return [_scaled(scaled.result, factor.plain.astype(np.float64))]
    left, right = as_wide(first.result), as_wide(second.result)
    integral = left.integral and right.integral
    total = left.total.astype(np.float64) * right.total
    return [Wide(call.accumulated(total) if integral else total, left.scale * right.scale, integral)]


def _div(call: Call) -> Outcome:
    divisor = call.operand(1)
    if not divisor.constant:
        raise NotInteger("it divides by a tensor that is not constant")
    by = _real(divisor)
    if not by.all():
        raise NotInteger("it divides by zero")
    return [_scaled(call.operand(0).result, 1 / by)]


def _scaled(result: Result, factor: Array) -> Wide:
    wide = as_wide(result)
    total = np.broadcast_to(wide.total, np.broadcast_shapes(wide.total.shape, factor.shape))
    return Wide(total, np.asarray(wide.scale * factor), wide.integral)


def _neg(call: Call) -> Outcome:
    wide = as_wide(call.operand(0).result)
    return [Wide(-wide.total, wide.scale, wide.integral)]


def _abs(call: Call) -> Outcome:
    wide = as_wide(call.operand(0).result)
    return [Wide(np.abs(wide.total), np.abs(wide.scale), wide.integral)]


def _relu(call: Call) -> Outcome:
    return [Clipped(call.operand(0).result, 0.0, np.inf)]


def _clip(call: Call) -> Outcome:
    low, high = _bound(call, 1, "min", -np.inf), _bound(call, 2, "max", np.inf)
    return [Clipped(call.operand(0).result, low, high)]


def _bound(call: Call, index: int, name: str, default: float) -> float:
    operand = call.optional(index)
    if operand is None:
        return float(call.attributes.get(name, default))
    if not operand.constant:
        raise NotInteger(f"its bound {operand.name!r} is not constant")
    return float(_real(operand).reshape(()))


def _leaky_relu(call: Call) -> Outcome:
    return [_sloped(call.operand(0).result, np.array(float(call.attributes.get("alpha", 0.01))))]


def _prelu(call: Call) -> Outcome:
    slope = call.operand(1)
    if not slope.constant:
        raise NotInteger(f"its slope {slope.name!r} is not constant")
    return [_sloped(call.operand(0).result, _real(slope))]


def _sloped(result: Result, slope: Array) -> Wide:
    wide = as_wide(result)
    # What is below zero has a scale of its own.
    return Wide(wide.total, np.where(wide.total < 0, wide.scale * slope, wide.scale), wide.integral)


def _batch_normalization(call: Call) -> Outcome:
    """A factor and an offset for each channel, in real numbers."""
    if call.outputs > 1 or call.attributes.get("training_mode", 0):
        raise NotInteger("it is in training mode")
    wide = as_wide(call.operand(0).result)
    parameters = [call.operand(index) for index in range(1, 5)]
    if not all(operand.constant for operand in parameters):
        raise NotInteger("its parameters are not constant")
    gain, offset, mean, variance = (aligned(_real(operand), len(wide.shape), 1) for operand in parameters)
    factor = gain / np.sqrt(variance + float(call.attributes.get("epsilon", 1e-5)))
    total = wide.total * (wide.scale * factor)
    total += offset - mean * factor
    return [_real_result(total)]


def _max(call: Call) -> Outcome:
    return [_chosen(_operands(call), np.maximum)]


def _min(call: Call) -> Outcome:
    return [_chosen(_operands(call), np.minimum)]


def _chosen(operands: Sequence[Operand], choose: np.ufunc) -> Result:
    first = operands[0].value
    if isinstance(first, Coded) and first.whole and all(_same(first, operand) for operand in operands[1:]):
        return Coded(reduce(choose, (operand.value.codes for operand in operands)), first.params, first.spec)
    return _real_result(np.asarray(reduce(choose, map(_real, operands))))


def _same(first: Coded, operand: Operand) -> bool:
    other = operand.value
    return isinstance(other, Coded) and first.shares_scale(other.params, other.spec) and first.spec == other.spec


def _where(call: Call) -> Outcome:
    condition, first, second = call.operand(0).value, call.operand(1), call.operand(2)
    if not isinstance(condition, np.ndarray):
        raise NotInteger("its condition is quantized")
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
