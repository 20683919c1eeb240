"""What nodes that treat every element alike compute, on a few numbers: enough to know a function by its values."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["POINTWISE", "attributes", "evaluate"]

_Function = Callable[[Sequence[Array], Mapping[str, Any]], Array]


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _softplus(x: Array) -> Array:
    return np.asarray(np.log1p(np.exp(x)))


def _erf(x: Array) -> Array:
    return np.array([math.erf(value) for value in np.ravel(x)]).reshape(np.shape(x))


def _hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    return np.asarray(np.clip(alpha * x + beta, 0, 1))


def _clip(inputs: Sequence[Array], attribute: Mapping[str, Any]) -> Array:
    low = inputs[1] if len(inputs) > 1 and inputs[1].size else attribute.get("min", -math.inf)
    high = inputs[2] if len(inputs) > 2 and inputs[2].size else attribute.get("max", math.inf)
    return np.asarray(np.minimum(np.maximum(inputs[0], low), high))


def _gelu(x: Array, approximate: bytes) -> Array:
    if approximate == b"tanh":
        return np.asarray(x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
    return np.asarray(x / 2 * (1 + _erf(x / math.sqrt(2))))


def _one(function: Callable[[Array], Array]) -> _Function:
    return lambda inputs, _: np.asarray(function(inputs[0]))


def _two(function: Callable[[Array, Array], Array]) -> _Function:
    return lambda inputs, _: np.asarray(function(inputs[0], inputs[1]))


_FUNCTIONS: dict[str, _Function] = {
    "Abs": _one(np.abs),
    "Add": _two(np.add),
    "Cast": _one(np.asarray),
    "Clip": _clip,
    "Div": _two(np.divide),
    "Erf": _one(_erf),
    "Exp": _one(np.exp),
    "Gelu": lambda inputs, attribute: _gelu(inputs[0], attribute.get("approximate", b"none")),
    "HardSigmoid": lambda inputs, attribute: _hard_sigmoid(
        inputs[0], attribute.get("alpha", 0.2), attribute.get("beta", 0.5)
    ),
    "HardSwish": _one(lambda x: x * _hard_sigmoid(x, 1 / 6, 0.5)),
    "Identity": _one(np.asarray),
    "Log": _one(np.log),
    "Max": _two(np.maximum),
    "Min": _two(np.minimum),
    "Mish": _one(lambda x: x * np.tanh(_softplus(x))),
    "Mul": _two(np.multiply),
    "Neg": _one(np.negative),
    "Pow": _two(np.power),
    "Reciprocal": _one(np.reciprocal),
    "Relu": _one(lambda x: np.maximum(x, 0)),
    "Sigmoid": _one(_sigmoid),
    "Softplus": _one(_softplus),
    "Sqrt": _one(np.sqrt),
    "Sub": _two(np.subtract),
    "Swish": lambda inputs, attribute: inputs[0] * _sigmoid(attribute.get("alpha", 1.0) * inputs[0]),
    "Tanh": _one(np.tanh),
}

POINTWISE = frozenset(_FUNCTIONS)
"""Op types that can be evaluated here."""


def attributes(node: Any) -> dict[str, Any]:
    """The attributes of a node by name."""
    from onnx.helper import get_attribute_value

    return {attribute.name: get_attribute_value(attribute) for attribute in node.attribute}


def evaluate(node: Any, inputs: Sequence[Array]) -> Array:
    """What a node computes, float64; without a result where its function has none (NaN).

    Args:
        node: A node whose op type is in `POINTWISE`.
        inputs: Its inputs, each a single number or as many numbers as the others; empty where it has none.
    """
    with np.errstate(all="ignore"):
        return _FUNCTIONS[node.op_type](inputs, attributes(node))
