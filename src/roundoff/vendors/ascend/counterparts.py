"""Which golden tensor belongs to which tensor under test, and bringing the two together."""

from dataclasses import dataclass, field, replace
from enum import Enum

from roundoff.messages.message import english
from roundoff.tensors.ascend_dump.header import FORMAT_NUMBERS
from roundoff.tensors.ascend_dump.layouts import inverse_layout
from roundoff.vendors.ascend.algorithms import Algorithm
from roundoff.vendors.ascend.causes import Numbers
from roundoff.vendors.ascend.errors import Code, NotCompared
from roundoff.vendors.ascend.folders import Folder, Kind, Tensor, load_golden, load_operator
from roundoff.vendors.ascend.layouts import (
    ComparisonContext,
    Convert,
    DeviceTensor,
    Fitted,
    GoldenTensor,
    fit,
    fit_equal,
)
from roundoff.vendors.ascend.rules import (
    DEQUANT_NAME,
    QUANT_NAME,
    QUANTIZER_TYPES,
    FusionRule,
    Operator,
    OperatorOrigin,
    Warn,
    is_dequantizer,
    names_quantizer,
)
from roundoff.vendors.ascend.scales import LayerScale, Scales, decode_codes, decode_sums


class _Output(Enum):
    """What an output carries."""

    NORMAL = 0
    MIDDLE = 1
    QUANTIZED = 2
    DEQUANTIZED = 3


def mark_pairs(rule: FusionRule, *, warn: Warn, strict: bool = False) -> None:
    """Mark the operators of a rule that run between a quantizer and its dequantizer.

    Args:
        rule: The rule; it is changed.
        warn: Told of quantizers that write another type than codes.
        strict: Warn of files, too, that tell no types, as the vendor does.
    """
    carried: dict[str, list[_Output]] = {}
    marked: dict[str, Operator] = {}
    for operator in rule.in_order:
        inside = _inside(operator, carried, warn=warn)
        carried[operator.name] = [
            _carries(operator, origin.dtype, inside=inside, strict=strict, warn=warn)
            for origin in operator.outputs
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


def _carries(operator: Operator, dtype: str, *, inside: bool, strict: bool, warn: Warn) -> _Output:
    originals = "".join(operator.originals)
    quantizes, dequantizes = (
        pattern.search(operator.name) or pattern.search(originals) for pattern in (QUANT_NAME, DEQUANT_NAME)
    )
    if quantizes and (dtype == "DT_INT8" or (dtype == "DT_INT4" and not strict)):
        return _Output.QUANTIZED
    if dequantizes and dtype == "DT_FLOAT16":
        return _Output.DEQUANTIZED
    if (quantizes or dequantizes) and (dtype or strict):
        warn(f"[{operator.name}] this op looks like a quantization op, but it does not have proper output type")
    return _Output.MIDDLE if inside else _Output.NORMAL


CONSTANT_TYPES = ("Const", "Constant", "ConstPlaceHolder", "Variable")
"""Operators that hold constants of the model, which are never dumped and have no golden data."""

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
        scales: What codes and sums of codes stand for, as far as files tell.
        producers: Which output an input is, as ``op:output:0`` by ``op:input:0``; filled in on the way.
        sliced: Operators that ran in slices; filled in on the way.
        constants: Inputs that are constants of the model; filled in on the way.
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
    scales: Scales = field(default_factory=Scales)
    producers: dict[str, str] = field(default_factory=dict)
    sliced: set[str] = field(default_factory=set)
    constants: set[str] = field(default_factory=set)


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


def deployed(job: CompareJob, operator: Operator, index: int, *, is_input: bool) -> OperatorOrigin:
    """What an input or output is in the model that was compiled; without a name when that is not known."""
    quiet = replace(job, warn=lambda text: None)
    try:
        source, place = _source(quiet, operator, index, is_input=is_input)
    except NotCompared:
        return OperatorOrigin()
    return source.deploys[place] if place < len(source.deploys) else OperatorOrigin()


def writer_of(job: CompareJob, operator: Operator, index: int) -> Operator | None:
    """The operator that computes an input; None when that is not known."""
    try:
        return _source(replace(job, warn=lambda text: None), operator, index, is_input=True)[0]
    except NotCompared:
        return None


def decoded_counterpart(
    job: CompareJob, operator: Operator, index: int, *, is_input: bool, sums: bool = False
) -> OperatorOrigin:
    """The golden tensor that codes, or sums of them, stand for, where what made them has none of its own.

    Raises:
        NotCompared: There is none.
    """
    operator, place = _source(job, operator, index, is_input=is_input)
    layout = operator.outputs[place] if place < len(operator.outputs) else OperatorOrigin()
    # The codes of a quantizer on its own stand for what it reads.
    if operator.type not in QUANTIZER_TYPES:
        # What a layer sums up is complete with what was folded into it.
        for name in (() if sums else operator.last_originals) or reversed(operator.originals):
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
    mine = DeviceTensor(tensor.values, about.format, about.original_shape, about.groups)
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


# A tensor beside its golden one, codes as the numbers they stand for.

_CODES = ("INT8", "UINT8", "INT4")
CODED_TYPES = (*_CODES, "INT32")
"""Element types of codes, and of their sums."""

_NO_SCALE = english(
    "stands between a quantizer and what its dequantizer writes, where sums of codes are; give --record or "
    "--deploy, which tell their scale"
)


@dataclass(frozen=True, slots=True)
class PairedTensor:
    """A tensor and its golden counterpart, ready to be compared.

    Attributes:
        fitted: Both, in one layout; codes are numbers.
        where: The golden file.
        origin: What the rule says of the golden tensor.
        type: Element type of the tensor as it was dumped.
        remark: What was done to codes; empty for nothing.
        numbers: What the tensor holds.
        step: What one code stands for; 1 for what is no code.
        unscaled: Whether codes were decoded by a fitted line, so that their scale and offset are not judged.
    """

    fitted: Fitted
    where: str
    origin: OperatorOrigin
    type: str
    remark: str = ""
    numbers: Numbers = "values"
    step: float = 1.0
    unscaled: bool = False

    @property
    def channel_axis(self) -> int:
        """The axis of channels in the layout of the golden tensor."""
        return self.origin.format.index("C") if self.origin.format in ("NHWC", "HWCN", "NDHWC") else 1


def paired(job: CompareJob, operator: Operator, tensor: Tensor, *, detail: bool = False) -> PairedTensor:
    """Find the golden counterpart of a tensor and bring both together.

    Raises:
        NotCompared: There is none, or they do not fit.
    """
    about = tensor.about
    is_input = about.role == "input"
    coded = not job.strict and job.mine.kind is Kind.NPU and job.golden.kind is not Kind.NPU
    name = deployed(job, operator, about.index, is_input=is_input).name if coded else ""
    sums = job.scales.of_sums(name) if coded and about.element_type == "INT32" else None
    origin, golden, where = _golden_tensor(job, operator, tensor, coded=coded, sums=sums)
    fitted = golden_of(job, operator, tensor, golden=golden, origin=origin, detail=detail)
    kind, remark = fitted.mine.dtype.name, ""
    if not coded or fitted.golden.dtype.kind != "f":
        return PairedTensor(fitted, where, origin, kind)
    if about.element_type in _CODES:
        scale = job.scales.of_codes(name)
        fitted, remark = decode_codes(fitted, scale)
        step = (scale.step if scale is not None else None) or 1.0
        if scale is None:
            return PairedTensor(fitted, where, origin, kind, remark, unscaled=bool(remark))
        return PairedTensor(fitted, where, origin, kind, remark, "codes", step)
    if sums is not None:
        fitted, remark = decode_sums(fitted, sums, layout=origin.format)
        return PairedTensor(fitted, where, origin, kind, remark, "sums")
    return PairedTensor(fitted, where, origin, kind, remark)


def _golden_tensor(
    job: CompareJob, operator: Operator, tensor: Tensor, *, coded: bool, sums: LayerScale | None
) -> tuple[OperatorOrigin, Tensor, str]:
    """The golden tensor, what the rule says of it, and its file."""
    about = tensor.about
    is_input = about.role == "input"
    decodable = coded and (about.element_type in _CODES or sums is not None)
    asking = replace(job, warn=lambda text: None) if decodable else job
    try:
        origin = counterpart(asking, operator, about.index, is_input=is_input)
        golden, where = find_golden(asking, origin, operator)
    except NotCompared as error:
        if not decodable or error.code is not Code.NO_DUMP:
            raise
        origin = decoded_counterpart(job, operator, about.index, is_input=is_input, sums=sums is not None)
        golden, where = find_golden(job, origin, operator)
    if (
        (operator.in_quant_pair or (coded and is_input and is_dequantizer(operator)))
        and sums is None
        and about.element_type == "INT32"
        and golden.dtype.startswith("float")
    ):
        what = english("[{name}] This op {in_pair}.", name=operator.name, in_pair=_NO_SCALE)
        raise NotCompared(what, code=Code.UNSUPPORTED)
    return origin, golden, where
