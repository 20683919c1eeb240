"""Operators between a quantizer and its dequantizer: their values are codes, which no golden tensor has."""

import re
from dataclasses import replace
from enum import Enum

from roundoff.vendors.ascend.rules import Operator, Rule, Warn

__all__ = ["DEQUANTIZERS", "is_dequantizer", "mark_pairs", "names_quantization", "names_quantizer"]

_QUANT = re.compile(r"_quant_layer|/AscendQuant|/AscendWeightQuant|\.quant|\.weight_quant")
_DEQUANT = re.compile(r"_dequant_layer|_anti_quant_layer|/AscendDequant|/AntiQuant|\.dequant|\.anti_quant")
DEQUANTIZERS = ("_dequant_layer", "AscendDequant", "_dequant")
"""Endings of the names of dequantizers, in Caffe, TensorFlow and ONNX."""

_QUANTIZERS = (
    "_quant_layer", "_anti_quant_layer", "AscendQuant", "AscendWeightQuant", "AntiQuant", "_quant",
    "_weight_quant", "_anti_quant",
)  # fmt: skip


class _Output(Enum):
    """What an output carries."""

    NORMAL = 0
    MIDDLE = 1
    QUANTIZED = 2
    DEQUANTIZED = 3


def names_quantization(op: str) -> bool:
    """Whether an operator's name tells of a quantized model."""
    return any(part in op for part in (*_QUANTIZERS, *DEQUANTIZERS))


def names_quantizer(op: str) -> bool:
    """Whether an operator's name is that of a quantizer, which makes codes of numbers."""
    return _QUANT.search(op) is not None and _DEQUANT.search(op) is None


def is_dequantizer(operator: Operator) -> bool:
    """Whether an operator turns codes into numbers, so that its inputs are codes."""
    return operator.type == "AscendDequant" or operator.name.endswith(DEQUANTIZERS)


def mark_pairs(rule: Rule, *, warn: Warn) -> None:
    """Mark the operators of a rule that run between a quantizer and its dequantizer."""
    carried: dict[str, list[_Output]] = {}
    marked: dict[str, Operator] = {}
    for operator in rule.in_order:
        inside = _inside(operator, carried, warn=warn)
        carried[operator.name] = [
            _carries(operator, origin.dtype, inside=inside, warn=warn) for origin in operator.outputs
        ]
        numbers = all(output is _Output.DEQUANTIZED for output in carried[operator.name])
        marked[operator.name] = replace(operator, in_quant_pair=inside and not numbers)
    rule.in_order = [marked[operator.name] for operator in rule.in_order]
    for key, group in rule.groups.items():
        rule.groups[key] = [marked.get(operator.name, operator) for operator in group]


def _inside(operator: Operator, carried: dict[str, list[_Output]], *, warn: Warn) -> bool:
    """Whether some input carries codes."""
    for edge in operator.inputs:
        name, colon, output = edge.rpartition(":")
        if not colon:
            continue
        if not output.isdigit():
            warn(f"[{operator.name}] the input operator of op with index {edge} is invalid.")
            continue
        outputs = carried.get(name)
        if outputs is None or len(outputs) <= int(output):
            warn(f"[{operator.name}] the input operator of op {name} does not exist in previous graph.")
            continue
        if outputs[int(output)] in (_Output.QUANTIZED, _Output.MIDDLE):
            return True
    return False


def _carries(operator: Operator, dtype: str, *, inside: bool, warn: Warn) -> _Output:
    originals = "".join(operator.originals)
    quantizes, dequantizes = (
        pattern.search(operator.name) or pattern.search(originals) for pattern in (_QUANT, _DEQUANT)
    )
    if quantizes and dtype == "DT_INT8":
        return _Output.QUANTIZED
    if dequantizes and dtype == "DT_FLOAT16":
        return _Output.DEQUANTIZED
    if quantizes or dequantizes:
        warn(f"[{operator.name}] this op looks like a quantization op, but it does not have proper output type")
    return _Output.MIDDLE if inside else _Output.NORMAL
