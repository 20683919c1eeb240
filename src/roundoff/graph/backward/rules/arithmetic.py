"""Arithmetic on tensors of different shapes: the gradient of what was repeated is the sum over its copies."""

from collections.abc import Callable
from typing import TypeAlias

from roundoff.graph.backward.operations import equal, mask, reduce_to, weighted
from roundoff.graph.backward.registry import rule
from roundoff.graph.backward.step import NoRule, Step

__all__ = ()

_Broadcast: TypeAlias = Callable[[Step, int], str]


def _broadcasting(*op_types: str) -> Callable[[_Broadcast], _Broadcast]:
    """Make a function the rule of operations with broadcasting; what it gives has the shape of the output."""

    def register(function: _Broadcast) -> _Broadcast:
        @rule(*op_types)
        def gradient(at: Step, index: int) -> str:
            return reduce_to(at, function(at, index), at.output_shape(), at.shape(index))

        return function

    return register


@_broadcasting("Add", "Sum")
def _add(at: Step, _index: int) -> str:
    return at.gradient


@_broadcasting("Sub")
def _sub(at: Step, index: int) -> str:
    return at.op("Neg", at.gradient) if index else at.gradient


@_broadcasting("Mean")
def _mean(at: Step, _index: int) -> str:
    return weighted(at, at.gradient, 1 / len(at.inputs))


@_broadcasting("Mul")
def _mul(at: Step, index: int) -> str:
    return at.op("Mul", at.gradient, at.inputs[1 - index])


@_broadcasting("Div")
def _div(at: Step, index: int) -> str:
    share = at.op("Div", at.gradient, at.inputs[1])
    return at.op("Neg", at.op("Mul", share, at.outputs[0])) if index else share


@_broadcasting("Mod")
def _mod(at: Step, index: int) -> str:
    if index:
        raise NoRule("the gradient of its divisor has no rule")
    return at.gradient


@_broadcasting("Pow")
def _pow(at: Step, index: int) -> str:
    base, exponent = at.inputs
    if index and at.dtype(0) != at.dtype(1):
        raise NoRule("its inputs are floats of different types")
    if index:
        # Where the base is not positive, powers of nearby exponents are not numbers: there the slope is log(1).
        positive = mask(at, at.op("Greater", base, at.number(0)))
        safe = at.op("Add", at.op("Mul", base, positive), at.op("Sub", at.number(1), positive))
        return at.op("Mul", at.gradient, at.op("Mul", at.outputs[0], at.op("Log", safe)))
    power = at.value(1) if at.is_constant(1) else None
    if power is not None and power.size == 1:
        return at.op("Mul", at.gradient, _constant_power(at, float(power.reshape(()))))
    if not at.is_float(1) or at.dtype(1) != at.dtype(0):
        exponent = at.op("Cast", exponent, to=at.element(0))
    lower = at.op("Pow", base, at.op("Sub", exponent, at.number(1)))
    return at.op("Mul", at.gradient, at.op("Mul", exponent, lower))


def _constant_power(at: Step, power: float) -> str:
    """The derivative of a power with a known exponent."""
    base = at.inputs[0]
    if power == 2:
        return weighted(at, base, 2)
    if power in (0, 1):
        # Not by Pow: that gives infinity times zero where the base is zero.
        return at.number(power)
    return weighted(at, at.op("Pow", base, at.number(power - 1)), power)


@_broadcasting("Max", "Min")
def _extreme(at: Step, index: int) -> str:
    """Inputs that are equally large share the gradient."""
    hits = [mask(at, equal(at, name, at.outputs[0])) for name in at.inputs]
    if len(hits) == 1:
        return at.gradient
    count = hits[0]
    for hit in hits[1:]:
        count = at.op("Add", count, hit)
    return at.op("Mul", at.op("Div", at.gradient, count), hits[index])


@_broadcasting("Where")
def _where(at: Step, index: int) -> str:
    chosen = mask(at, at.inputs[0])
    return at.op("Mul", at.gradient, chosen if index == 1 else at.op("Sub", at.number(1), chosen))
