"""Functions of one tensor by looking up its codes in a table."""

import numpy as np

from roundoff.core.quantization import dequantize
from roundoff.core.tensors import Array
from roundoff.runtime.integer.call import Call, IntegerKernel, NotInteger, Outcome
from roundoff.runtime.integer.composed import Table
from roundoff.runtime.integer.moves import carried
from roundoff.runtime.integer.results import Coded, Wide

__all__ = ["table_kernel"]

# Functions of each element alone.
_ELEMENTWISE = frozenset(
    {
        "Abs",
        "Atan",
        "Ceil",
        "Celu",
        "Cos",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Log",
        "Mish",
        "Neg",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Sigmoid",
        "Sign",
        "Silu",
        "Sin",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Swish",
        "Tanh",
        "ThresholdedRelu",
    }
)
# Functions that begin with a table of exponentials and go on in a wide register.
_ALONG_AN_AXIS = frozenset({"Softmax", "LogSoftmax"})
_LARGEST_TABLE_BITS = 16


def table_kernel(op_type: str) -> IntegerKernel | None:
    """How a table computes an operation; None when a table cannot."""
    if op_type in _ELEMENTWISE:
        return _looked_up
    return _along_an_axis if op_type in _ALONG_AN_AXIS else None


def _looked_up(call: Call) -> Outcome:
    values = call.operand(0).whole
    spec = values.spec
    if spec.bits > _LARGEST_TABLE_BITS:
        raise NotInteger(f"a table of {spec.bits}-bit codes would be too large")
    entries = call.keep("table", lambda: _entries(call, values), constant=True)
    return [Table(values.codes.astype(np.int64) - spec.code_min, entries)]


def _entries(call: Call, values: Coded) -> Array:
    codes = np.arange(values.spec.code_min, values.spec.code_max + 1)
    return carried(call, dequantize(codes, values.params))[0]


def _along_an_axis(call: Call) -> Outcome:
    values = call.operand(0).whole
    return [Wide(carried(call, values.real())[0].astype(np.float64), np.ones(()), integral=False)]
