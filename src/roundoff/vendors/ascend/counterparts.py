"""Which golden tensor belongs to which tensor under test, and bringing the two together."""

from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from roundoff.core.tensors import Array
from roundoff.messages.message import english
from roundoff.tensors.ascend_dump.header import FORMAT_NUMBERS
from roundoff.tensors.ascend_dump.layouts import inverse_layout
from roundoff.vendors.ascend.algorithms import Algorithm
from roundoff.vendors.ascend.errors import Code, NotCompared
from roundoff.vendors.ascend.folders import Folder, Kind, Tensor, load_golden, load_operator
from roundoff.vendors.ascend.layouts import (
    ComparisonContext,
    Convert,
    Fitted,
    GoldenTensor,
    TestedTensor,
    fit,
    fit_equal,
)
from roundoff.vendors.ascend.rules import (
    DEQUANT_NAME,
    QUANT_NAME,
    FusionRule,
    Operator,
    OperatorOrigin,
    Warn,
    names_quantizer,
)


class _Output(Enum):
    """What an output carries."""

    NORMAL = 0
    MIDDLE = 1
    QUANTIZED = 2
    DEQUANTIZED = 3


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
        pattern.search(operator.name) or pattern.search(originals) for pattern in (QUANT_NAME, DEQUANT_NAME)
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


_PASSED_ON = ("Cast", "TransData")
"""Operators that only change type or layout: their golden tensor is that of what they read."""


@dataclass(frozen=True, slots=True)
class CompareJob:
    """What is compared, and how.

    Attributes:
        mine: The folder under test.
        golden: The golden folder.
        rule: Which operator stands for which.
        algorithms: By name, in the order of the columns.
        warn: Told of everything odd.
        strict: Do as the vendor does, also where that is wrong.
        overflow: Look for overflow of float16.
        most: Elements to compare of each tensor, from its beginning; 0 for all.
        conversions: The user's own conversions of formats.
        restore: Undo device formats before comparing two dumps, as the vendor's newer generation does.
        producers: Which output an input is, as ``op:output:0`` by ``op:input:0``; filled in on the way.
        sliced: Operators that ran in slices; filled in on the way.
    """

    mine: Folder
    golden: Folder
    rule: FusionRule
    algorithms: dict[str, Algorithm]
    warn: Warn
    strict: bool = False
    overflow: bool = False
    most: int = 0
    conversions: dict[str, Convert] = field(default_factory=dict)
    restore: bool = False
    producers: dict[str, str] = field(default_factory=dict)
    sliced: set[str] = field(default_factory=set)


def counterpart(job: CompareJob, operator: Operator, index: int, *, is_input: bool) -> OperatorOrigin:
    """The golden tensor that belongs to an input or output.

    Raises:
        NotCompared: There is none.
    """
    name = operator.name
    operator, place = _source(job, operator, index, is_input=is_input)
    origin = operator.origin(place, warn=job.warn)
    if is_input:
        job.producers[f"{name}:input:{index}"] = f"{operator.name}:output:{place}"
    return origin


def decoded_counterpart(job: CompareJob, operator: Operator, index: int, *, is_input: bool) -> OperatorOrigin:
    """The golden tensor that codes stand for, where the quantizer that made them has none of its own.

    Raises:
        NotCompared: There is none.
    """
    operator, place = _source(job, operator, index, is_input=is_input)
    layout = operator.outputs[place] if place < len(operator.outputs) else OperatorOrigin()
    # The codes of a quantizer on its own stand for what it reads.
    if operator.type != "AscendQuant":
        for name in operator.last_originals or reversed(operator.originals):
            if name and not names_quantizer(name) and job.golden.has(name):
                return OperatorOrigin(name, 0, layout.format, layout.shape, layout.dtype)
    return counterpart(job, operator, 0, is_input=True)


def _source(job: CompareJob, operator: Operator, index: int, *, is_input: bool) -> tuple[Operator, int]:
    """The operator that computes a tensor, and which of its outputs that is; changes of type or layout do not."""
    place = index
    if is_input:
        operator, place = _producer(job, operator, place)
    seen = set[str]()
    while operator.type in _PASSED_ON and operator.name not in seen:
        seen.add(operator.name)
        operator, place = _producer(job, operator, place)
    return operator, place


def _producer(job: CompareJob, operator: Operator, index: int) -> tuple[Operator, int]:
    """The operator, and which of its outputs, that an input comes from."""
    if index >= len(operator.inputs):
        what = english(
            "The input index ({index}) is out of range ({count}) for the operator list.",
            index=index,
            count=len(operator.inputs),
        )
        job.warn(what)
        raise NotCompared(
            "" if job.strict else english("[{name}] {what}", name=operator.name, what=what), code=Code.INDEX
        )
    edge = operator.inputs[index]
    name, colon, output = edge.rpartition(":")
    if not colon or not output.strip().isdigit() or not name.strip() or (job.strict and ":" in name):
        message = english("The input information ({edge}) is invalid. It only supports op_name:index.", edge=edge)
        job.warn(message)
        raise NotCompared(message, code=Code.JSON_CONTENT)
    return job.rule.find(name.strip(), warn=job.warn), int(output)


def find_golden(job: CompareJob, origin: OperatorOrigin, operator: Operator) -> tuple[Tensor, str]:
    """Read the header of a golden tensor; tell the file, too."""
    index = origin.index or 0
    if job.golden.kind is not Kind.NPU:
        found = job.golden.find(origin.name, index)
        golden = load_golden(found[-1])
        return golden, str(found[-1].path)
    loaded = load_operator(job.golden.find(origin.name), strict=job.strict)
    if index >= len(loaded.outputs):
        what = english(
            "The output index ({index}) is out of range [0, {count}). Please check the index.",
            index=index,
            count=len(loaded.outputs),
        )
        job.warn(f"[{operator.name}] {what}")
        raise NotCompared(
            "" if job.strict else english("[{name}] {what}", name=operator.name, what=what), code=Code.INDEX
        )
    return loaded.outputs[index], loaded.path


def golden_of(
    job: CompareJob,
    operator: Operator,
    tensor: Tensor,
    *,
    golden: Tensor,
    origin: OperatorOrigin,
    detail: bool = False,
) -> Fitted:
    """Bring a tensor and its golden counterpart together."""
    how = ComparisonContext(operator.name, job.warn, job.strict, job.conversions, detail)
    if job.mine.kind is Kind.FAKE_QUANT and job.golden.kind is Kind.FLOAT:
        return fit_equal(tensor.values, golden.values, how=how)
    about = tensor.about
    mine = TestedTensor(tensor.values, about.format, about.original_shape, about.groups)
    if job.golden.kind is Kind.NPU:
        target = GoldenTensor(golden.values, golden.about.format, golden.shape)
    else:
        layout = origin.format or ("" if job.strict else _likely_layout(tensor, golden))
        target = GoldenTensor(golden.values, layout, origin.shape)
    return fit(mine, target, how=how)


def _likely_layout(tensor: Tensor, golden: Tensor) -> str:
    """The layout of a golden tensor that no rule tells: that of the dump's original, or by the number of axes."""
    about = tensor.about
    axes = inverse_layout(about.format, tensor.shape, original=about.original_shape, groups=about.groups).axes
    if len(axes) == len(golden.shape) and axes in FORMAT_NUMBERS:
        return axes
    return {4: "NCHW", 5: "NCDHW"}.get(len(golden.shape), "ND")
