"""Every operator of a device computed again from what the device itself fed it, so that errors are its own."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from roundoff.core.array_files import Unreadable
from roundoff.core.files import is_caffe, model_files
from roundoff.core.progress import Progress
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.expectation import Expected, Golden
from roundoff.diagnosis.devices.proof import pattern
from roundoff.diagnosis.devices.replay import Pair
from roundoff.errors import BadInput, RoundoffError
from roundoff.graph.interface import inputs as model_inputs
from roundoff.graph.load import Model, load_model
from roundoff.messages.message import english, shown
from roundoff.tensors.ascend_dump.layouts import inverse_layout, restore
from roundoff.vendors.amct.deploy import PlainOperators, integer_model
from roundoff.vendors.amct.quantizers import records_of_qat
from roundoff.vendors.amct.workflow import convert, get_flavour
from roundoff.vendors.ascend.causes import FaultCause, Numbers, cause_of
from roundoff.vendors.ascend.counterparts import CompareJob, deploy_name
from roundoff.vendors.ascend.errors import NotCompared
from roundoff.vendors.ascend.folders import Loaded, Tensor, load_operator
from roundoff.vendors.ascend.rules import DEQUANT_NAME, Operator, names_quantizer
from roundoff.vendors.ascend.scales import quantized_layer

_QUANTIZES = ("AscendQuant", "QuantizeLinear", "Quant")
_PASSES_ON = ("TransData", "Cast")
_CODES = ("INT8", "INT4", "UINT8")
_HALF = 2.0**-8
"""Unit roundoff of float16, eight times: what is rounded inside of a fused operator adds up."""

_COARSE = {"BF16": 2.0**-5, "FLOAT": 2.0**-8}
_WRONG = 0.005
"""An error beyond rounding, relative to the tensor, that is one."""

_CHANNEL_SHARE = 0.3
"""The share of one channel that may not be beyond rounding, however small the channel is."""


@dataclass(frozen=True, slots=True)
class OwnError:
    """What one operator adds to the error.

    Attributes:
        op: The operator.
        size: The part beyond rounding, relative to what it should write.
        whole: All of the error, relative likewise.
        share: The share of values beyond rounding.
        cause: Why; None when it is right, or nothing explains it.
        between: Operators in between that were not dumped, so that any of them may be at fault.
    """

    op: str
    size: float
    whole: float
    share: float
    wrong: bool = False
    cause: FaultCause | None = None
    between: tuple[str, ...] = ()


class StageModel:
    """A model in which every step of the device is a tensor: codes less their offset, sums, and numbers.

    Args:
        model: Plain operators only.
    """

    def __init__(self, model: Model) -> None:
        self.golden = Golden(model)
        self._nodes = {node.name: node for node in model.proto.graph.node}
        self._inputs = [each.name for each in model_inputs(model)]

    def tensor(self, name: str) -> str | None:
        """The tensor that a step of the device writes, by the name of the step; None when there is none."""
        if name in self._inputs:
            return name
        layer = quantized_layer(name, self._nodes)
        if layer and name not in self._nodes:
            return str(self._nodes[layer].input[0])
        for known in (name, f"{DEQUANT_NAME.sub('', name)}.fakedequant.mul"):
            if known in self._nodes and (known == name or name != DEQUANT_NAME.sub("", name)):
                return str(self._nodes[known].output[0])
        return None

    @cached_property
    def quantized(self) -> bool:
        """Whether it holds codes."""
        return any(node.op_type in ("Round", "QuantizeLinear") for node in self._nodes.values())


def open_stages(path: Path, *, record: Path | None) -> StageModel:
    """Read a model to replay: float, with the record of its quantization, deploy or fake-quant.

    Raises:
        BadInput: It cannot be read, or the record is not of it.
    """
    model = load_model(path)
    if any(node.op_type in _QUANTIZES for node in model.proto.graph.node):
        if is_caffe(path):
            return StageModel(model)
        return StageModel(integer_model(*records_of_qat(model), form=PlainOperators()))
    if record is None:
        return StageModel(model)
    flavour = get_flavour("caffe" if is_caffe(path) else "onnx")
    return StageModel(integer_model(*convert(flavour, model_files(path), record), form=PlainOperators()))


@dataclass
class Replay:
    """A device played again operator by operator.

    Attributes:
        job: The dump, its rule, and scales.
        stages: What it should compute.
        missing: Operators whose part of the model was not found, or that failed, and why.
    """

    job: CompareJob
    stages: StageModel
    missing: dict[str, str] = field(default_factory=dict)

    def run(self, progress: Progress) -> list[OwnError]:
        """What every operator adds, in the order of execution."""
        found = []
        operators = [operator for operator in self.job.rule.in_order if operator.type not in ("Data", "NetOutput")]
        progress.start("replaying", len(operators))
        for operator in operators:
            found += self._judged(operator)
            progress.advance()
        progress.finish()
        return found

    def _judged(self, operator: Operator) -> list[OwnError]:
        try:
            loaded = load_operator(self.job.mine.find(operator.name), strict=False)
        except NotCompared:
            return []
        errors = []
        for tensor in loaded.outputs:
            try:
                errors += self._error(operator, loaded, tensor)
            except (RoundoffError, Unreadable, OSError, NotCompared) as error:
                self.missing[operator.name] = str(error)
        # Of several outputs the worst tells.
        return [max(errors, key=lambda each: (each.wrong, each.size))] if errors else []

    def _error(self, operator: Operator, loaded: Loaded, tensor: Tensor) -> Iterator[OwnError]:
        if operator.type in _PASSES_ON and loaded.inputs:
            given = plain_values(loaded.inputs[0])
            yield _compared(operator.name, plain_values(tensor), given, tensor=tensor)
            return
        name = deploy_name(self.job, operator, tensor.about.index, is_input=False)
        stage = self.stages.tensor(name)
        if stage is None:
            return
        given, between = self._given(operator, loaded, stage)
        exact = self.stages.golden.compute(stage, given)
        found = self._numbers(tensor, name)
        if found.size != exact.size:
            self.missing[operator.name] = english(
                "the model gives it the shape {exact}, the dump {found}", exact=exact.shape, found=found.shape
            )
            return
        error = _compared(operator.name, found.reshape(exact.shape), exact, tensor=tensor)
        yield replace(error, between=between)

    def _given(self, operator: Operator, loaded: Loaded, stage: str) -> tuple[Mapping[str, Array], tuple[str, ...]]:
        """What the operator was fed: its own inputs, else outputs of others; and operators between that are unseen."""
        own: dict[str, Array] = {}
        for tensor in loaded.inputs:
            name = deploy_name(self.job, operator, tensor.about.index, is_input=True)
            known = self.stages.tensor(name) if name else None
            if known is not None and known != stage:
                own[known] = self._numbers(tensor, name)
        span = self.stages.golden.span(stage, own)
        if span.reads and all(read in own for read in self._needed(span.reads)):
            return own, ()
        known = self._known - {stage}
        span = self.stages.golden.span(stage, known | own.keys())
        others = {read: own[read] if read in own else self._written(read) for read in self._needed(span.reads)}
        steps = {self.stages.tensor(part) for part in operator.parts} | {stage}
        hidden = [tensor for tensor in span.hidden if tensor not in steps]
        unseen = tuple(
            each.name for each in self.job.rule.in_order
            if each.name != operator.name and any(self.stages.tensor(part) in hidden for part in each.deploys if part)
        )  # fmt: skip
        return others, unseen

    def _needed(self, reads: tuple[str, ...]) -> list[str]:
        constant = {tensor.name for tensor in self.stages.golden.model.proto.graph.initializer}
        return [read for read in reads if read and read not in constant]

    @cached_property
    def _outputs(self) -> dict[str, tuple[Tensor, str]]:
        """Where each tensor of the model was dumped."""
        found: dict[str, tuple[Tensor, str]] = {}
        for operator in self.job.rule.in_order:
            try:
                loaded = load_operator(self.job.mine.find(operator.name), strict=False)
            except NotCompared:
                continue
            for tensor in loaded.outputs:
                name = deploy_name(self.job, operator, tensor.about.index, is_input=False)
                stage = self.stages.tensor(name) if name else None
                if stage is not None:
                    found.setdefault(stage, (tensor, name))
            for tensor in loaded.inputs:
                name = deploy_name(self.job, operator, tensor.about.index, is_input=True)
                stage = self.stages.tensor(name) if name else None
                if stage is not None and stage not in found:
                    found[stage] = (tensor, name)
        return found

    @property
    def _known(self) -> set[str]:
        return set(self._outputs)

    def _written(self, stage: str) -> Array:
        if stage not in self._outputs:
            what = english("{stage!r}, which it is computed from, was not dumped.", stage=stage)
            raise BadInput(what, fix=english("dump inputs, too"))
        return self._numbers(*self._outputs[stage])

    def _numbers(self, tensor: Tensor, name: str) -> Array:
        """A tensor as the model holds it."""
        values = plain_values(tensor)
        if tensor.about.element_type in _CODES and names_quantizer(name):
            scale = self.job.scales.of_codes(name)
            return values.astype(np.float32) - np.float32(scale.offset if scale is not None else 0)
        return values.astype(np.float32)


def plain_values(tensor: Tensor) -> Array:
    """A tensor with the device's format undone."""
    about = tensor.about
    way = inverse_layout(about.format, tensor.shape, original=about.original_shape, groups=about.groups)
    return restore(tensor.values, way).array


def _compared(op: str, found: Array, exact: Array, *, tensor: Tensor) -> OwnError:
    kind = tensor.about.element_type
    numbers: Numbers = "codes" if kind in _CODES else "sums" if kind == "INT32" else "values"
    tolerance = _tolerance(exact, kind)
    with np.errstate(all="ignore"):
        difference = np.abs(found.astype(np.float64) - exact)
        difference = np.where(np.isfinite(found) | ~np.isfinite(exact), difference, np.inf)
        beyond = np.maximum(difference - tolerance, 0)
        size = float(np.sqrt(np.square(exact, dtype=np.float64).mean())) or 1.0
        excess, whole = (float(np.sqrt(np.square(each).mean())) / size for each in (beyond, difference))
    wrong = beyond > 0
    share = float(wrong.mean()) if wrong.size else 0.0
    bad = not excess <= _WRONG or _one_channel(wrong)
    cause = None
    if bad:
        coded = numbers != "values" or DEQUANT_NAME.search(op) is not None
        cause = cause_of(found, exact, numbers=numbers, coded=coded) or _pattern(found, exact, tolerance)
    return OwnError(op, excess, whole, share, bad, cause)


def _tolerance(exact: Array, kind: str) -> Array:
    """How far single values may be off by rounding alone."""
    if kind in _CODES:
        return np.asarray(1.01)
    size = np.abs(exact.astype(np.float64))
    if kind == "INT32":
        # float32 holds sums exactly up to 2^24.
        return np.asarray(0.5 + 2.0**-20 * size.max(initial=0.0))
    roundoff = _COARSE.get(kind, _HALF)
    spread = float(np.sqrt(np.square(size).mean())) if size.size else 0.0
    return np.asarray(roundoff * (size + spread))


def _one_channel(wrong: Array) -> bool:
    if wrong.ndim < 3:
        return False
    others = tuple(axis for axis in range(wrong.ndim) if axis != 1)
    return bool((wrong.mean(axis=others) > _CHANNEL_SHARE).any())


def _pattern(found: Array, exact: Array, tolerance: Array) -> FaultCause:
    """Where the error is, in words that are known of other devices."""
    expected = Expected(np.broadcast_to(tolerance, exact.shape), 0.0)
    with np.errstate(all="ignore"):
        text = shown(pattern((Pair(found.astype(np.float32), exact.astype(np.float32), expected),)))
    return FaultCause("other", text)
