"""What the numbers of a quantized network tell without a run, and whether its file computes what they say."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from roundoff.core.quantizers import Quantizer
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.diagnosis.interventions import reach
from roundoff.diagnosis.loss import Loss, LossMeter, decibels_of
from roundoff.diagnosis.registry import ask, explain, find_cause
from roundoff.diagnosis.result import Finding
from roundoff.diagnosis.subject import Case
from roundoff.errors import RoundoffError
from roundoff.graph.insertion import Edges
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.weights import Weights, codes_of
from roundoff.messages.message import Argument, Message, joined, message

# The ratio of ranges from which on Sony's toolkit warns of what is joined.
_UNBALANCED = 16.0
# A channel whose scale is this part of the median one has next to no weights.
_TINY_SCALE = 1e-4
# Where nothing is known of the hardware, sums have as many bits as nearly all of it has.
_USUAL_ACCUMULATOR = 32
_WIDEST_KNOWN = 64
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_NAMED = 2
# Weights that are their own codes have no error but that of float32.
_EXACT = 1e-10
_USUAL_BITS = 8


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that may be wrong, seen in the numbers of the file alone.

    Attributes:
        kind: ``bias``, ``accumulator``, ``scale``, ``dead``, ``joined``, ``ignored``.
        node: Where.
        number: How bad, in the unit of its kind.
    """

    kind: str
    node: str
    number: float = 0.0


_KINDS = ("bias", "accumulator", "scale", "dead", "joined", "ignored")


def remarks_text(remarks: Sequence[Remark]) -> Message:
    """All remarks in a line."""
    if not remarks:
        return message("diagnosis.numbers_fine")
    parts = []
    for kind in _KINDS:
        nodes = [each.node for each in remarks if each.kind == kind]
        if nodes:
            names: Argument = tuple(f"'{node}'" for node in nodes[:_NAMED])
            if len(nodes) > _NAMED:
                names = message("terminal.and_more", names=names, count=len(nodes) - _NAMED)
            parts.append(message(f"diagnosis.lint_{kind}", names=names))
    return joined(parts)


def lint(quantized: QuantizedModel, arithmetic: Arithmetic) -> list[Remark]:
    """Look at the numbers of a quantized network.

    Args:
        quantized: The network.
        arithmetic: How its hardware computes.
    """
    edges, weights = Edges(quantized.float_model, quantized.quantizers), Weights(quantized.float_model)
    found = list(_constants(quantized.quantizers, weights))
    for node in quantized.float_model.proto.graph.node:
        found += _sums(node, edges, weights, arithmetic)
        found += _joined(node, edges)
    found += [
        Remark("ignored", each.node)
        for each in quantized.oddities
        if each.kind in ("disagreement", "not_represented", "dynamic")
    ]
    return found


def _constants(quantizers: Sequence[Quantizer], weights: Weights) -> Iterator[Remark]:
    for each in quantizers:
        if each.tensor not in weights.protos or not each.consumers:
            continue
        node = each.consumers[0].node
        if each.kind == "bias":
            values = np.abs(weights[each.tensor].astype(np.float64))
            with np.errstate(divide="ignore", invalid="ignore"):
                times = np.nan_to_num(values / each.params.scale / each.spec.code_max).max(initial=0.0)
            if times > 1:
                yield Remark("bias", node, float(times))
        elif each.kind == "weight" and each.params.scale.size > 1:
            yield from _channels(each, weights[each.tensor], node)


def _channels(quantizer: Quantizer, values: Array, node: str) -> Iterator[Remark]:
    axis = (quantizer.spec.axis or 0) % max(1, values.ndim)
    reaches = np.abs(values.astype(np.float32)).max(axis=tuple(at for at in range(values.ndim) if at != axis))
    dead = int(np.count_nonzero(reaches == 0))
    if dead:
        yield Remark("dead", node, float(dead))
    scale = quantizer.params.scale[reaches > 0]
    tiny = int(np.count_nonzero(scale < _TINY_SCALE * np.median(scale))) if scale.size else 0
    if tiny:
        yield Remark("scale", node, float(tiny))


def _sums(node: Any, edges: Edges, weights: Weights, arithmetic: Arithmetic) -> Iterator[Remark]:
    """The largest sum of products that codes can make."""
    if node.op_type not in _PRODUCTS or len(node.input) < 2:
        return
    left, right = edges.read_by(node.name, 0), edges.read_by(node.name, 1)
    if left is None or right is None or right.tensor not in weights.protos:
        return
    bits = arithmetic.accumulator_bits if arithmetic.accumulator_bits < _WIDEST_KNOWN else _USUAL_ACCUMULATOR
    spec, zero = left.spec, left.params.zero_point
    largest = max(abs(spec.code_min - int(zero.max())), abs(spec.code_max - int(zero.min())))
    values = weights[right.tensor]
    codes = right.codes if right.codes is not None else codes_of(values, right.params, right.spec)
    zero_point = right.params.zero_point
    shape = [1] * codes.ndim
    if zero_point.size > 1 and right.spec.axis is not None:
        shape[right.spec.axis] = -1
    distance = np.abs(codes.astype(np.int64) - zero_point.reshape(shape if zero_point.size > 1 else ()))
    axis = _output_axis(node, codes.ndim)
    sums = distance.sum(axis=tuple(at for at in range(codes.ndim) if at != axis))
    bound = int(sums.max(initial=0)) * largest
    times = bound / float((1 << (bits - 1)) - 1)
    if times > 1:
        yield Remark("accumulator", node.name, times)


def _output_axis(node: Any, rank: int) -> int:
    from roundoff.graph.shapes import weight_axis

    return weight_axis(
        node.op_type, rank, transposed=any(each.name == "transB" and each.i for each in node.attribute)
    )


def _joined(node: Any, edges: Edges) -> Iterator[Remark]:
    """What a Concat or Add brings together, where the ranges differ much."""
    if node.op_type not in ("Concat", "Add") or len(node.input) < 2:
        return
    read = [edges.read_by(node.name, at) for at in range(len(node.input))]
    spans = [high - low for low, high in (reach(each) for each in read if each is not None)]
    if len(spans) == len(read) and min(spans) > 0 and max(spans) / min(spans) >= _UNBALANCED:
        yield Remark("joined", node.name, max(spans) / min(spans))


# A channel of a weight with at most so many codes has lost its shape; so many channels are no accident.
_FEWEST_LEVELS, _MANY_CHANNELS, _LEAST_CHANNELS = 3, 0.1, 2


@dataclass(frozen=True, slots=True)
class FewLevels:
    """A weight with one scale for all channels, some of which use next to no codes.

    Attributes:
        node: What has the weight.
        channels: How many do.
        total: Of how many.
        levels: So many codes they use at most.
    """

    node: str
    channels: int
    total: int
    levels: int = _FEWEST_LEVELS


def weights_unseen(case: Case) -> bool:
    """Whether the float model has the weights of the file: then no output shows what rounding them cost."""
    weights = [each for each in case.facts.quantizers.values() if each.kind == "weight"]
    known = [each for each in weights if each.tensor in case.facts.weights]
    return bool(known) and all(case.facts.constant_damage(each).ratio <= _EXACT for each in known)


def few_levels(case: Case) -> list[FewLevels]:
    """Weights whose channels are so different that one scale leaves many of them next to no codes; worst first."""
    facts, found = case.facts, list[FewLevels]()
    for each in facts.quantizers.values():
        axis = facts.channel_axis(each) if each.kind == "weight" and each.tensor in facts.weights else None
        if axis is None or each.params.scale.size > 1 or each.spec.bits < _USUAL_BITS:
            continue
        codes = facts.rounded_codes(each) if each.codes is None else each.codes
        axes = tuple(at for at in range(codes.ndim) if at != axis)
        if codes.size // max(1, codes.shape[axis]) <= _FEWEST_LEVELS:
            continue
        spans = codes.max(axis=axes).astype(np.int64) - codes.min(axis=axes).astype(np.int64) + 1
        few = int(np.count_nonzero(spans <= _FEWEST_LEVELS))
        if few >= max(_LEAST_CHANNELS, _MANY_CHANNELS * spans.size):
            found.append(FewLevels(each.consumers[0].node, few, int(spans.size)))
    return sorted(found, key=lambda each: -each.channels / each.total)


WORSE_DB = 3.0
"""What a file loses beyond its quantizers, from which on something else is in it."""


@dataclass(frozen=True, slots=True, eq=False)
class FileCase:
    """A file under diagnosis, for the causes of files.

    Attributes:
        case: The float model and the quantizers that were read from the file.
        given: The file; None where only its quantizers are looked at.
        loss: What the file loses; None likewise.
        known: What causes have found out, by their own words, so that it is not found out again.
    """

    case: Case
    given: Model | None = None
    loss: Loss | None = None
    known: dict[str, Any] = field(default_factory=dict)

    def measured(self, model: Model, *, more: bool = False) -> Loss | None:
        """What a changed file loses, on few samples or on all; None where its outputs are of another kind."""
        return _loss(self.case, model, more=more)


@dataclass(frozen=True, slots=True)
class FileSuspect:
    """What is suspected in a file.

    Attributes:
        nodes: Nodes whose sums may not fit; none where the file as a whole is suspected.
    """

    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class FileChecked:
    """What came of running a file.

    Attributes:
        result: In a sentence without its full stop.
        loss: What the file loses as it runs, on all samples that are used; None where it could not be run.
        worse: Whether that is more than its quantizers do.
        findings: Why, or what else is wrong in it; their numbers are still open.
    """

    result: Message
    loss: Loss | None = None
    worse: bool = False
    findings: tuple[Finding, ...] = ()


def check_file(case: Case, given: Model) -> FileChecked:
    """Run the file, and compare its outputs with those of the float model and its quantizers.

    Args:
        case: The float model and the quantizers that were read from the file.
        given: The file.
    """
    try:
        ours = _loss(case, given, more=True)
    except RoundoffError as error:
        return FileChecked(message("diagnosis.file_not_run", reason=str(error.what)))
    if ours is None:
        return FileChecked(message("diagnosis.file_other_outputs"))
    theirs = case.loss(more=True)
    worse = ours.excess_db(theirs) >= WORSE_DB
    file, whole = FileCase(case, given, ours), FileSuspect()
    # Codes that are not dequantized as they were quantized are a fault whatever they cost here.
    odd = ask(find_cause("wrong-dequantization", "file"), file, whole, nodes=(), tensors=())
    found = None if odd is None else odd[0]
    if worse and (found is None or not found.proven):
        found = explain(file, whole, of="file", nodes=(), tensors=()) or found
    findings = () if found is None else (replace(found, share=1.0, places=max(1, len(found.nodes))),)
    if found is not None and (found.proven or not worse):
        return FileChecked(found.summary, ours, worse, findings)
    keeps, alone = decibels_of(ours.sqnr_db), decibels_of(theirs.sqnr_db)
    result = (
        message("diagnosis.file_more", db=keeps, other=alone)
        if worse
        else message("diagnosis.file_computes", db=keeps)
    )
    return FileChecked(result, ours, worse, findings)


def check_sums(case: Case, nodes: Sequence[str]) -> Finding | None:
    """Whether sums of products overflow in this hardware, proven by making the accumulator wide.

    Args:
        case: The network.
        nodes: Nodes whose sums may not fit.

    Returns:
        A finding, with its number still open; None where nothing overflows, or nothing comes of it.

    Raises:
        BadInput: A quantizer has no integer version.
    """
    suspect = FileSuspect(tuple(nodes))
    asked = ask(find_cause("overflow", "file"), FileCase(case), suspect, nodes=(), tensors=())
    return replace(asked[0], share=1.0) if asked is not None and asked[0].proven else None


def _loss(case: Case, model: Model, *, more: bool = False) -> Loss | None:
    """What a file loses, on few samples or on all; None where its outputs are of another kind."""
    runner = case.runner
    names = dict(zip(outputs(runner.model), outputs(model), strict=False))
    meter = LossMeter(runner.parts)
    for exact, arrays in runner.pairs(model, None if more else runner.few()):
        found = {name: arrays[names[name]] for name in exact if name in names}
        if any(name not in found or found[name].dtype != array.dtype for name, array in exact.items()):
            return None
        meter.add(exact, found)
    return meter.loss()
