"""What the vendor calls operations and types."""

import re
from dataclasses import replace

from roundoff.core.plan import FLOAT
from roundoff.core.target import Target
from roundoff.quantize.planning.view import PRODUCTS, FusedUnit, GraphView
from roundoff.quantize.targets.loading import load_target
from roundoff.vendors.pulsar2.config.schema import BuildConfig, DataType, TargetHardware

__all__ = [
    "frontend_type",
    "in_vendor_words",
    "quantized_type",
    "target_of",
    "vendor_dtype",
]


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


def frontend_type(unit: FusedUnit, view: GraphView) -> str:
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


# The chip that a configuration names, as a target.

# The only chip whose numeric rules were measured in public; others are quantized by the same tool.
_MEASURED = "axera-ax650"
# Requests for float weights have no effect there, as users found.
_NO_FLOAT_WEIGHTS = frozenset({TargetHardware.AX620E})


def target_of(config: BuildConfig) -> Target:
    """The target of a configuration, with what the configuration changes of it."""
    target = load_target(_MEASURED)
    if config.target_hardware in _NO_FLOAT_WEIGHTS:
        target = replace(target, only={**target.only, f"weight.{FLOAT}": frozenset()})
    if config.quant.conv_bias_data_type is DataType.FP32:
        target = replace(target, bias="float")
    if config.quant.disable_quant_optimization:
        # Nothing is merged: every result is quantized, also those in front of an activation function.
        target = replace(target, fusions=())
    return target
