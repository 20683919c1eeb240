"""What the vendor calls operations and types."""

import re

from roundoff.core.quant_plan import FLOAT
from roundoff.quantize.planning.fusing import Unit
from roundoff.quantize.planning.sockets import PRODUCTS
from roundoff.quantize.planning.view import GraphView

__all__ = ["frontend_type", "in_vendor_words", "quantized_type", "vendor_dtype"]

# Patterns of several nodes that its frontend makes one operation of.
_PATTERN_TYPES = {
    "layernorm": "LayerNormalization",
    "rmsnorm": "RMSNormalization",
    "gelu": "Gelu",
    "quick_gelu": "Gelu",
    "swish": "Swish",
    "hardswish": "HardSwish",
    "hardsigmoid": "HardSigmoid",
    "mish": "Mish",
    "relu6": "Clip",
}
_FULLY_CONNECTED = "FullyConnected"
# Names in the published precision tables.
_SHORT_TYPES = {"GlobalAveragePool": "GlobAvgPool", "AveragePool": "AvgPool"}
_MOVED_TO_RESHAPE = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
_TYPES = {
    "float16": "FP16", "float32": "FP32", "float64": "FP64", "bfloat16": "BF16", "bool": "BOOL", FLOAT: "FP32",
}  # fmt: skip
_NUMPY_INTEGER = re.compile(r"(u?)int(\d+)")
_CODE_WORD = re.compile(r"\b[us](?:4|8|16|32)\b")


def frontend_type(unit: Unit, view: GraphView) -> str:
    """The type that nodes computed as one have behind the vendor's frontend."""
    if unit.is_pattern:
        return _PATTERN_TYPES.get(unit.steps[0], unit.steps[0])
    node = unit.first
    constant = any(view.is_constant(name) for name in node.inputs[:2])
    if node.operation == "Gemm" or (node.operation == "MatMul" and node.operation in PRODUCTS and constant):
        return _FULLY_CONNECTED
    return node.operation


def quantized_type(frontend: str, *, moves: bool, in_float: bool) -> str:
    """The type of an operation in the quantized graph.

    Args:
        frontend: Its type behind the frontend.
        moves: Whether it only passes values on.
        in_float: Whether it is computed in float.
    """
    if moves and frontend in _MOVED_TO_RESHAPE:
        return "AxReshape"
    return f"Ax{'' if moves or in_float else 'Quantized'}{_SHORT_TYPES.get(frontend, frontend)}"


def vendor_dtype(dtype: str) -> str:
    """The vendor's name of a type: ``U8`` for ``u8`` and ``uint8``, ``FP32`` for float; several with / between."""
    if "/" in dtype:
        return "/".join(vendor_dtype(each) for each in dtype.split("/"))
    match = _NUMPY_INTEGER.fullmatch(dtype)
    if match is not None:
        return f"{'U' if match[1] else 'S'}{match[2]}"
    return _TYPES.get(dtype, dtype.upper())


def in_vendor_words(text: str) -> str:
    """A sentence with the vendor's names of types."""
    return _CODE_WORD.sub(lambda match: match[0].upper(), text)
