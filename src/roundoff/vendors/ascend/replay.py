"""Every operator of a device computed again from what the device itself fed it, so that errors are its own."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from roundoff.core.array_files import Unreadable
from roundoff.core.files import is_caffe, model_files
from roundoff.core.progress import Progress
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.expectation import Expected, Golden, NumberKind, expect_rounded
from roundoff.diagnosis.devices.proof import pattern
from roundoff.diagnosis.devices.replay import Pair
from roundoff.errors import BadInput, RoundoffError
from roundoff.graph.interface import inputs as model_inputs
from roundoff.graph.load import Model, load_model
from roundoff.graph.shapes import ranks, values
from roundoff.messages.message import english, shown
from roundoff.vendors.amct.deploy import PlainOperators, integer_model
from roundoff.vendors.amct.quantizers import records_of_qat
from roundoff.vendors.amct.workflow import convert, flavour_of
from roundoff.vendors.ascend.causes import FaultCause, Fused, Numbers, cause_of, moved
from roundoff.vendors.ascend.counterparts import CompareJob, deployed
from roundoff.vendors.ascend.culprits import OperatorError
from roundoff.vendors.ascend.errors import NotCompared
from roundoff.vendors.ascend.folders import Loaded, Tensor, escaped, load_operator, plain_values
from roundoff.vendors.ascend.rows import NEVER_DUMPED
from roundoff.vendors.ascend.rules import (
    DEQUANT_NAME,
    QUANTIZER_TYPES,
    Operator,
    OperatorOrigin,
    is_dequantizer,
    names_quantizer,
)
from roundoff.vendors.ascend.scales import quantized_layer

_QUANTIZES = ("AscendQuant", "QuantizeLinear", "Quant")
_PASSES_ON = ("TransData", "Cast")
_RESHAPES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Identity")
_CODES = ("INT8", "INT4", "UINT8")
_WRONG = 0.005
"""An error beyond rounding, relative to the tensor, that is one."""

_CHANNEL_SHARE = 0.3
"""The share of one channel that may not be beyond rounding, however small the channel is."""


class StageModel:
    """A model in which every step of the device is a tensor: codes less their offset, sums, and numbers.

    Args:
        model: Plain operators only.

    Attributes:
        coded: Whether it holds codes.
    """

    def __init__(self, model: Model) -> None:
        self.golden = Golden(model)
        self._nodes = {node.name: node for node in model.proto.graph.node}
        self._writers = {name: node for node in model.proto.graph.node for name in node.output}
        # Without a rule an input is known by its golden file, whose name is spelled otherwise.
        names = [each.name for each in model_inputs(model)]
        self._inputs = {spelled: name for name in names for spelled in (escaped(name), name)}
        self.coded = any(node.op_type in ("Round", "QuantizeLinear") for node in model.proto.graph.node)
        self._constants = {tensor.name for tensor in model.proto.graph.initializer}
        self._ranks = ranks(model)
        self._shapes = {each.name: each.shape for each in values(model) if each.shape is not None}

    def tensor(self, name: str, index: int | None = None) -> str | None:
        """The tensor that a step of the device writes, by the name of the step; None when there is none.

        Args:
            name: The step.
            index: Which of its outputs; the first where that is not known.
        """
        if name in self._inputs:
            return self._inputs[name]
        layer = quantized_layer(name, self._nodes)
        if layer and name not in self._nodes:
            return str(self._nodes[layer].input[0])
        for known in (name, f"{DEQUANT_NAME.sub('', name)}.fakedequant.mul"):
            if known in self._nodes and (known == name or name != DEQUANT_NAME.sub("", name)):
                written = self._nodes[known].output
                return str(written[index or 0]) if (index or 0) < len(written) else None
        return None

    def read(self, layer: str) -> str:
        """The tensor that a layer reads first, before it is reshaped; empty for a layer that there is not."""
        if layer not in self._nodes:
            return ""
        name = self._nodes[layer].input[0]
        while name in self._writers and self._writers[name].op_type in _RESHAPES:
            name = self._writers[name].input[0]
        return str(name)

    def fits(self, tensor: str, array: Array) -> bool:
        """Whether values are as many as a tensor is known to have."""
        return tensor in self._shapes and math.prod(self._shapes[tensor]) == array.size

    def fed(self, tensors: Sequence[str]) -> list[str]:
        """Those of some tensors that are no constants."""
        return [name for name in tensors if name and name not in self._constants]

    def shaped(self, tensor: str, array: Array) -> Array:
        """Values in the shape that they have in the model, which may be that of a flattened tensor."""
        if self.fits(tensor, array):
            return array.reshape(self._shapes[tensor])
        return array.reshape(len(array), -1) if self._ranks.get(tensor) == 2 and array.ndim > 2 else array


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
    files = model_files(path)
    return StageModel(integer_model(*convert(flavour_of(files), files, record), form=PlainOperators()))


class Replay:
    """A device played again operator by operator, as far as scales tell what operators should write.

    Args:
        job: The dump, its rule, and scales.

    Attributes:
        missing: Operators that could not be computed again, and why.
    """

    def __init__(self, job: CompareJob) -> None:
        self.job = job
        self.missing: dict[str, str] = {}

    def run(self, progress: Progress) -> list[OperatorError]:
        """What every operator adds, in the order of execution."""
        found = []
        operators = [operator for operator in self.job.rule.in_order if operator.type not in NEVER_DUMPED]
        progress.start("replaying", len(operators))
        for operator in operators:
            found += self._judged(operator)
            progress.advance()
        progress.finish()
        return found

    def _judged(self, operator: Operator) -> list[OperatorError]:
        errors: list[OperatorError] = []
        try:
            loaded = load_operator(self.job.mine.find(operator.name), strict=False)
        except NotCompared:
            return []
        for tensor in loaded.outputs:
            try:
                errors += self._error(operator, loaded, tensor)
            except (RoundoffError, Unreadable, OSError) as error:
                self.missing[operator.name] = str(error)
        # Of several outputs the worst tells.
        return [max(errors, key=lambda each: (each.wrong, each.size))] if errors else []

    def _error(self, operator: Operator, loaded: Loaded, tensor: Tensor) -> Iterator[OperatorError]:
        if operator.type in _PASSES_ON:
            if loaded.inputs:
                given = plain_values(loaded.inputs[0])
                yield _compared(operator.name, plain_values(tensor), given, tensor=tensor)
            return
        origin = deployed(self.job, operator, tensor.about.index, is_input=False)
        exact, between = self.exact(operator, loaded, origin)
        if exact is None:
            return
        found = self.numbers(tensor, origin.name)
        if found.size == exact.size:
            fused: Fused = "replayed" if len(operator.parts) > 1 else ""
            error = _compared(operator.name, found.reshape(exact.shape), exact, tensor=tensor, fused=fused)
            yield replace(error, between=between)
        else:
            what = english(
                "the model gives it the shape {exact}, the dump {found}", exact=exact.shape, found=found.shape
            )
            self.missing[operator.name] = what

    def exact(
        self, operator: Operator, loaded: Loaded, origin: OperatorOrigin
    ) -> tuple[Array | None, tuple[str, ...]]:
        """What an operator should write, and operators without a dump that its inputs come through.

        Here only what changes numbers into codes, or sums into numbers, is known.
        """
        if not loaded.inputs or len(operator.parts) > 1:
            return None, ()
        first = loaded.inputs[0]
        if operator.type in QUANTIZER_TYPES:
            scale = self.job.scales.of_codes(origin.name)
            if scale is None or scale.step is None or not first.about.element_type.startswith(("FLOAT", "BF16")):
                return None, ()
            low, high = (limit - scale.offset for limit in scale.limits)
            codes = np.rint(plain_values(first).astype(np.float32) / np.float32(scale.step))
            return np.asarray(np.clip(codes, low, high), np.float32), ()
        if is_dequantizer(operator) and first.about.element_type == "INT32":
            sums = self.job.scales.of_sums(deployed(self.job, operator, 0, is_input=True).name)
            values = plain_values(first).astype(np.float64)
            if sums is not None and values.ndim > 1 and len(sums.sums) in (1, values.shape[1]):
                steps = np.asarray(sums.sums).reshape(1, -1, *(1,) * (values.ndim - 2))
                return np.asarray(values * steps, np.float32), ()
        return None, ()

    def numbers(self, tensor: Tensor, name: str) -> Array:
        """A tensor as a model holds it: codes less their offset, sums, numbers."""
        values = plain_values(tensor)
        if tensor.about.element_type in _CODES and names_quantizer(name):
            scale = self.job.scales.of_codes(name)
            return values.astype(np.float32) - np.float32(scale.offset if scale is not None else 0)
        return values.astype(np.float32)


class ModelReplay(Replay):
    """A device played again operator by operator with a model that tells what each should write.

    Args:
        job: The dump, its rule, and scales.
        stages: The model.
    """

    def __init__(self, job: CompareJob, stages: StageModel) -> None:
        super().__init__(job)
        self.stages = stages

    def exact(
        self, operator: Operator, loaded: Loaded, origin: OperatorOrigin
    ) -> tuple[Array | None, tuple[str, ...]]:
        """What an operator should write, from its own inputs, or from outputs of others where it has none."""
        stage = self.stages.tensor(origin.name, origin.index)
        if stage is None:
            return super().exact(operator, loaded, origin)
        given, between = self._given(operator, loaded, stage)
        return self.stages.golden.compute(stage, given), between

    def _given(
        self, operator: Operator, loaded: Loaded, stage: str
    ) -> tuple[Mapping[str, Array], tuple[str, ...]]:
        own: dict[str, Array] = {}
        for tensor in loaded.inputs:
            known, name = self._stage(operator, tensor, is_input=True)
            if known and known != stage:
                numbers = self.numbers(tensor, name)
                own[known] = self.stages.shaped(known, numbers)
                if tensor.about.element_type in _CODES:
                    own = self._own_codes(operator, name, numbers) | own
        span = self.stages.golden.span(stage, own)
        if span.reads and all(read in own for read in self.stages.fed(span.reads)):
            return own, ()
        dumped = self._dumped.keys() - {stage}
        span = self.stages.golden.span(stage, dumped | own.keys())
        given = {read: own[read] if read in own else self._written(read) for read in self.stages.fed(span.reads)}
        steps = {self.stages.tensor(part) for part in operator.parts} | {stage}
        hidden = [tensor for tensor in span.hidden if tensor not in steps]
        unseen = [
            each.name
            for each in self.job.rule.in_order
            if each.name != operator.name
            and any(self.stages.tensor(part.name, part.index) in hidden for part in each.deploys if part.name)
        ]
        return given, tuple(unseen)

    def _own_codes(self, operator: Operator, quantizer: str, codes: Array) -> dict[str, Array]:
        """Codes that a layer reads, as its own quantizer's: compilers make one of several that are alike."""
        scales = self.job.scales
        written = scales.of_codes(quantizer)
        found: dict[str, Array] = {}
        for layer in operator.parts or (operator.name,):
            scale, read = scales.layers.get(layer), self.stages.read(layer)
            if scale is None or written is None or (scale.step, scale.offset) != (written.step, written.offset):
                continue
            if self.stages.fits(read, codes) or quantized_layer(read, (layer,)):
                found[read] = self.stages.shaped(read, codes)
        return found

    def _stage(self, operator: Operator, tensor: Tensor, *, is_input: bool) -> tuple[str, str]:
        """The tensor of the model that an input or output is, and its name on the device; empty for none."""
        origin = deployed(self.job, operator, tensor.about.index, is_input=is_input)
        return (self.stages.tensor(origin.name, origin.index) or "" if origin.name else ""), origin.name

    @cached_property
    def _dumped(self) -> dict[str, tuple[Tensor, str]]:
        """Where each tensor of the model was dumped: as an output, else as an input."""
        found: dict[str, tuple[Tensor, str]] = {}
        for is_input in (False, True):
            for operator in self.job.rule.in_order:
                try:
                    loaded = load_operator(self.job.mine.find(operator.name), strict=False)
                except NotCompared:
                    continue
                for tensor in loaded.inputs if is_input else loaded.outputs:
                    stage, name = self._stage(operator, tensor, is_input=is_input)
                    if stage:
                        found.setdefault(stage, (tensor, name))
        return found

    def _written(self, stage: str) -> Array:
        if stage not in self._dumped:
            what = english("{stage!r}, which it is computed from, was not dumped.", stage=stage)
            raise BadInput(what, fix=english("dump inputs, too"))
        return self.stages.shaped(stage, self.numbers(*self._dumped[stage]))


def _compared(op: str, found: Array, exact: Array, *, tensor: Tensor, fused: Fused = "") -> OperatorError:
    kind = tensor.about.element_type
    numbers: Numbers = "codes" if kind in _CODES else "sums" if kind == "INT32" else "values"
    # What is neither codes nor bfloat16 the device computes in half precision, whatever it writes.
    floats: NumberKind = "bfloat16" if kind == "BF16" else "float16"
    known = np.isfinite(exact)
    if not known.all():
        # Of what comes of inputs that are not finite nothing can be told: whoever wrote those is at fault.
        found, exact = (np.where(known, side, 0) for side in (found, exact))
    expected = expect_rounded(exact, floats if numbers == "values" else numbers)
    with np.errstate(all="ignore"):
        difference = np.where(np.isfinite(found), np.abs(found.astype(np.float64) - exact), np.inf)
        beyond = np.maximum(difference - expected.tolerance, 0)
        size = float(np.sqrt(np.square(exact, dtype=np.float64).mean())) or 1.0
        excess, whole = (float(np.sqrt(np.square(each).mean())) / size for each in (beyond, difference))
    wrong = beyond > 0
    share = float(wrong.mean()) if wrong.size else 0.0
    bad = not excess <= _WRONG or _one_channel(wrong) or (numbers == "codes" and moved(found, exact) != 0)
    cause = None
    if bad:
        coded = numbers != "values" or DEQUANT_NAME.search(op) is not None
        known_cause = cause_of(found, exact, numbers=numbers, coded=coded, fused=fused)
        cause = known_cause or _pattern(found, exact, expected)
    return OperatorError(op, excess, whole, share, bad, cause)


def _one_channel(wrong: Array) -> bool:
    if wrong.ndim < 3:
        return False
    others = tuple(axis for axis in range(wrong.ndim) if axis != 1)
    return bool((wrong.mean(axis=others) > _CHANNEL_SHARE).any())


def _pattern(found: Array, exact: Array, expected: Expected) -> FaultCause:
    """Where the error is, in words that are known of other devices."""
    expected = replace(expected, tolerance=np.broadcast_to(expected.tolerance, exact.shape))
    with np.errstate(all="ignore"):
        where = shown(pattern((Pair(found.astype(np.float32), exact.astype(np.float32), expected),)))
    return FaultCause("other", english("beyond rounding: {where}", where=where))
