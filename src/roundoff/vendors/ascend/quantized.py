"""Operators between a quantizer and its dequantizer: their values are codes, which no golden tensor has."""

import re
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from roundoff.core.tensors import Array
from roundoff.vendors.ascend.layouts import Fitted
from roundoff.vendors.ascend.rules import FusionRule, Operator, Warn

__all__ = [
    "DEQUANTIZERS",
    "decoded",
    "holds_codes",
    "is_dequantizer",
    "mark_pairs",
    "may_hold_codes",
    "names_quantization",
    "names_quantizer",
]


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


def mark_pairs(rule: FusionRule, *, warn: Warn) -> None:
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


# Codes of quantized tensors made comparable with the numbers they stand for.

_CODES = ("INT8", "UINT8", "INT4")
_BLOCK = 1 << 18
_SAME = 1e-3
"""A scale and offset this close to 1 and 0 leave codes as they are: the golden tensor holds codes, too."""


@dataclass(frozen=True, slots=True)
class _Line:
    """The straight line through codes and numbers."""

    scale: float
    offset: float


def may_hold_codes(element_type: str) -> bool:
    """Whether tensors of this type hold codes in quantized models."""
    return element_type in _CODES


def holds_codes(element_type: str, golden: Array) -> bool:
    """Whether a tensor of this type, whose golden counterpart has these values, holds codes of them."""
    return may_hold_codes(element_type) and golden.dtype.kind == "f"


def decoded(fitted: Fitted) -> tuple[Fitted, str]:
    """Codes as the numbers they stand for, and what was done to them.

    No file tells the scale, so that it is found from the values: the straight line that brings codes closest to
    the golden numbers. A wrong scale alone is therefore not seen; anything else is.
    """
    line = _through(fitted.mine, fitted.golden)
    if line is None or (abs(line.scale - 1) < _SAME and abs(line.offset) < _SAME):
        return fitted, ""
    numbers = fitted.mine.astype(np.float32) * np.float32(line.scale) + np.float32(line.offset)
    told = f"The codes were taken times {line.scale:.6g} plus {line.offset:.6g}, which fits them best."
    return Fitted(numbers, fitted.golden, fitted.shape, fitted.cut), told


def _through(codes: Array, numbers: Array) -> _Line | None:
    """Least squares in float64; None when there is no line: equal codes, or numbers that are none."""
    count = codes.size
    sums = np.zeros(4)
    for start in range(0, count, _BLOCK):
        left, right = (side[start : start + _BLOCK].astype(np.float64) for side in (codes, numbers))
        with np.errstate(all="ignore"):
            sums += (left.sum(), right.sum(), (left * left).sum(), (left * right).sum())
    if not count or not np.isfinite(sums).all():
        return None
    spread = sums[2] - sums[0] ** 2 / count
    if spread <= 0:
        return None
    scale = (sums[3] - sums[0] * sums[1] / count) / spread
    return _Line(float(scale), float((sums[1] - scale * sums[0]) / count))
