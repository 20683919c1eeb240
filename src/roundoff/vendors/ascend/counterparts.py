"""Which golden tensor belongs to which tensor under test, and bringing the two together."""

from dataclasses import dataclass, field

from roundoff.tensors.ascend_dump.header import FORMAT_NUMBERS
from roundoff.tensors.ascend_dump.layouts import way_back
from roundoff.vendors.ascend.algorithms import Algorithm
from roundoff.vendors.ascend.errors import Code, NotCompared
from roundoff.vendors.ascend.folders import Folder, Kind, Tensor, load_golden, load_operator
from roundoff.vendors.ascend.layouts import Convert, Fitted, GoldenTensor, How, Mine, fit, fit_equal
from roundoff.vendors.ascend.quantized import names_quantizer
from roundoff.vendors.ascend.rules import FusionRule, Operator, OperatorOrigin, Warn

__all__ = ["CompareJob", "counterpart", "decoded_counterpart", "find_golden", "golden_of"]

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
        what = f"The input index ({index}) is out of range ({len(operator.inputs)}) for the operator list."
        job.warn(what)
        raise NotCompared("" if job.strict else f"[{operator.name}] {what}", code=Code.INDEX)
    edge = operator.inputs[index]
    name, colon, output = edge.rpartition(":")
    if not colon or not output.strip().isdigit() or not name.strip() or (job.strict and ":" in name):
        message = f"The input information ({edge}) is invalid. It only supports op_name:index."
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
        what = f"The output index ({index}) is out of range [0, {len(loaded.outputs)}). Please check the index."
        job.warn(f"[{operator.name}] {what}")
        raise NotCompared("" if job.strict else f"[{operator.name}] {what}", code=Code.INDEX)
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
    how = How(operator.name, job.warn, job.strict, job.conversions, detail)
    if job.mine.kind is Kind.FAKE_QUANT and job.golden.kind is Kind.FLOAT:
        return fit_equal(tensor.values, golden.values, how=how)
    about = tensor.about
    mine = Mine(tensor.values, about.format, about.original_shape, about.groups)
    if job.golden.kind is Kind.NPU:
        target = GoldenTensor(golden.values, golden.about.format, golden.shape)
    else:
        layout = origin.format or ("" if job.strict else _likely_layout(tensor, golden))
        target = GoldenTensor(golden.values, layout, origin.shape)
    return fit(mine, target, how=how)


def _likely_layout(tensor: Tensor, golden: Tensor) -> str:
    """The layout of a golden tensor that no rule tells: that of the dump's original, or by the number of axes."""
    about = tensor.about
    axes = way_back(about.format, tensor.shape, original=about.original_shape, groups=about.groups).axes
    if len(axes) == len(golden.shape) and axes in FORMAT_NUMBERS:
        return axes
    return {4: "NCHW", 5: "NCDHW"}.get(len(golden.shape), "ND")
