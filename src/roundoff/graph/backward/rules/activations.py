"""Functions of one number: the gradient is multiplied by the derivative at each element."""

import math
from collections.abc import Callable
from typing import TypeAlias

from roundoff.graph.backward.operations import equal, mask, reduce_to, sign, square, weighted
from roundoff.graph.backward.registry import rule
from roundoff.graph.backward.step import NoRule, Step

__all__ = ["derivative"]

# Defaults of the operators' definitions.
_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
# The cubic term of Gelu's approximation by tanh.
_GELU_CUBE = 0.044715

_Derivative: TypeAlias = Callable[[Step, str, str], str]


def derivative(*op_types: str) -> Callable[[_Derivative], _Derivative]:
    """Make a function of what operations read and compute their derivative."""

    def register(function: _Derivative) -> _Derivative:
        @rule(*op_types)
        def gradient(at: Step, index: int) -> str:
            if index:
                raise NoRule(f"its input {index} has no rule")
            return at.op("Mul", at.gradient, function(at, at.inputs[0], at.outputs[0]))

        return function

    return register


def _one_minus(at: Step, x: str) -> str:
    return at.op("Sub", at.number(1), x)


def _one_plus(at: Step, x: str) -> str:
    return at.op("Add", x, at.number(1))


def _inverse_root(at: Step, x: str) -> str:
    return at.op("Reciprocal", at.op("Sqrt", x))


def _positive(at: Step, x: str) -> str:
    return mask(at, at.op("Greater", x, at.number(0)))


def _negative(at: Step, x: str) -> str:
    return mask(at, at.op("Less", x, at.number(0)))


@derivative("Relu")
def _relu(at: Step, _x: str, y: str) -> str:
    return _positive(at, y)


@derivative("ThresholdedRelu")
def _thresholded_relu(at: Step, x: str, _y: str) -> str:
    return mask(at, at.op("Greater", x, at.number(at.attribute("alpha", 1.0))))


@derivative("LeakyRelu")
def _leaky_relu(at: Step, x: str, _y: str) -> str:
    slope = at.attribute("alpha", 0.01)
    return at.op("Add", weighted(at, _positive(at, x), 1 - slope), at.number(slope))


@derivative("Elu")
def _elu(at: Step, x: str, y: str) -> str:
    return _exponential_below(at, x, at.op("Add", y, at.number(at.attribute("alpha", 1.0))), slope=1)


@derivative("Celu")
def _celu(at: Step, x: str, y: str) -> str:
    return _exponential_below(at, x, _one_plus(at, weighted(at, y, 1 / at.attribute("alpha", 1.0))), slope=1)


@derivative("Selu")
def _selu(at: Step, x: str, y: str) -> str:
    gamma = at.attribute("gamma", _SELU_GAMMA)
    below = at.op("Add", y, at.number(gamma * at.attribute("alpha", _SELU_ALPHA)))
    return _exponential_below(at, x, below, slope=gamma)


def _exponential_below(at: Step, x: str, below: str, *, slope: float) -> str:
    """A constant slope above zero, something else below."""
    positive = _positive(at, x)
    bent = at.op("Mul", _one_minus(at, positive), below)
    return at.op("Add", weighted(at, positive, slope), bent)


@rule("PRelu")
def _prelu(at: Step, index: int) -> str:
    x, slope = at.inputs
    negative = _negative(at, x)
    if index:
        seen = at.op("Mul", at.gradient, at.op("Mul", x, negative))
        return reduce_to(at, seen, at.shape(0), at.shape(1))
    bent = at.op("Mul", negative, at.op("Sub", slope, at.number(1)))
    return at.op("Mul", at.gradient, _one_plus(at, bent))


@rule("Clip")
def _clip(at: Step, index: int) -> str:
    x, y = at.inputs[0], at.outputs[0]
    if index == 0:
        return at.op("Mul", at.gradient, mask(at, equal(at, x, y)))
    bound = at.inputs[index]
    beyond = at.op("Less" if index == 1 else "Greater", x, bound)
    return reduce_to(at, at.op("Mul", at.gradient, mask(at, beyond)), at.shape(0), at.shape(index))


@derivative("Sigmoid")
def _sigmoid(at: Step, _x: str, y: str) -> str:
    return at.op("Mul", y, _one_minus(at, y))


@derivative("HardSigmoid")
def _hard_sigmoid(at: Step, _x: str, y: str) -> str:
    return weighted(at, _between(at, y, 0, 1), at.attribute("alpha", 0.2))


def _between(at: Step, x: str, low: float, high: float) -> str:
    inside = at.op("And", at.op("Greater", x, at.number(low)), at.op("Less", x, at.number(high)))
    return mask(at, inside)


@derivative("HardSwish")
def _hard_swish(at: Step, x: str, _y: str) -> str:
    gate = at.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)
    return at.op("Add", gate, at.op("Mul", weighted(at, x, 1 / 6), _between(at, gate, 0, 1)))


@derivative("Tanh")
def _tanh(at: Step, _x: str, y: str) -> str:
    return _one_minus(at, square(at, y))


@derivative("Softplus")
def _softplus(at: Step, x: str, _y: str) -> str:
    return at.op("Sigmoid", x)


@derivative("Softsign")
def _softsign(at: Step, x: str, _y: str) -> str:
    return at.op("Reciprocal", square(at, _one_plus(at, at.op("Abs", x))))


@derivative("Erf")
def _erf(at: Step, x: str, _y: str) -> str:
    return weighted(at, at.op("Exp", at.op("Neg", square(at, x))), 2 / math.sqrt(math.pi))


@derivative("Gelu")
def _gelu(at: Step, x: str, _y: str) -> str:
    if at.attribute("approximate", "none") == "tanh":
        return _gelu_by_tanh(at, x)
    below = weighted(at, _one_plus(at, at.op("Erf", weighted(at, x, 1 / math.sqrt(2)))), 0.5)
    density = at.op("Exp", weighted(at, square(at, x), -0.5))
    return at.op("Add", below, weighted(at, at.op("Mul", x, density), 1 / math.sqrt(2 * math.pi)))


def _gelu_by_tanh(at: Step, x: str) -> str:
    scale, squared = math.sqrt(2 / math.pi), square(at, x)
    inner = at.op("Mul", weighted(at, x, scale), _one_plus(at, weighted(at, squared, _GELU_CUBE)))
    bent = at.op("Tanh", inner)
    inner_slope = weighted(at, _one_plus(at, weighted(at, squared, 3 * _GELU_CUBE)), scale)
    slope = at.op("Mul", at.op("Mul", x, _one_minus(at, square(at, bent))), inner_slope)
    return weighted(at, at.op("Add", _one_plus(at, bent), slope), 0.5)


@derivative("Mish")
def _mish(at: Step, x: str, _y: str) -> str:
    gate = at.op("Tanh", at.op("Softplus", x))
    gate_slope = at.op("Mul", at.op("Sigmoid", x), _one_minus(at, square(at, gate)))
    return at.op("Add", gate, at.op("Mul", x, gate_slope))


@derivative("Exp")
def _exp(_at: Step, _x: str, y: str) -> str:
    return y


@derivative("Log")
def _log(at: Step, x: str, _y: str) -> str:
    return at.op("Reciprocal", x)


@derivative("Sqrt")
def _sqrt(at: Step, _x: str, y: str) -> str:
    return at.op("Div", at.number(0.5), y)


@derivative("Reciprocal")
def _reciprocal(at: Step, _x: str, y: str) -> str:
    return at.op("Neg", square(at, y))


@derivative("Abs")
def _abs(at: Step, x: str, _y: str) -> str:
    return sign(at, x)


@derivative("Sin")
def _sin(at: Step, x: str, _y: str) -> str:
    return at.op("Cos", x)


@derivative("Cos")
def _cos(at: Step, x: str, _y: str) -> str:
    return at.op("Neg", at.op("Sin", x))


@derivative("Tan")
def _tan(at: Step, _x: str, y: str) -> str:
    return _one_plus(at, square(at, y))


@derivative("Sinh")
def _sinh(at: Step, x: str, _y: str) -> str:
    return weighted(at, at.op("Add", at.op("Exp", x), at.op("Exp", at.op("Neg", x))), 0.5)


@derivative("Cosh")
def _cosh(at: Step, x: str, _y: str) -> str:
    return weighted(at, at.op("Sub", at.op("Exp", x), at.op("Exp", at.op("Neg", x))), 0.5)


@derivative("Asin")
def _asin(at: Step, x: str, _y: str) -> str:
    return _inverse_root(at, _one_minus(at, square(at, x)))


@derivative("Acos")
def _acos(at: Step, x: str, y: str) -> str:
    return at.op("Neg", _asin(at, x, y))


@derivative("Atan")
def _atan(at: Step, x: str, _y: str) -> str:
    return at.op("Reciprocal", _one_plus(at, square(at, x)))


@derivative("Asinh")
def _asinh(at: Step, x: str, _y: str) -> str:
    return _inverse_root(at, _one_plus(at, square(at, x)))


@derivative("Acosh")
def _acosh(at: Step, x: str, _y: str) -> str:
    return _inverse_root(at, at.op("Sub", square(at, x), at.number(1)))


@derivative("Atanh")
def _atanh(at: Step, x: str, _y: str) -> str:
    return at.op("Reciprocal", _one_minus(at, square(at, x)))


@rule("Neg")
def _neg(at: Step, _index: int) -> str:
    return at.op("Neg", at.gradient)


@rule("Identity")
def _identity(at: Step, _index: int) -> str:
    return at.gradient


@rule("Dropout")
def _dropout(at: Step, index: int) -> str | None:
    if at.has(2) and bool(at.value(2).any()):
        raise NoRule("it drops elements at random (training mode)")
    # The ratio has no effect outside of training.
    return None if index else at.gradient


@rule("Cast", "CastLike")
def _cast(at: Step, index: int) -> str | None:
    return None if index else at.op("Cast", at.gradient, to=at.element(0))
