"""Causes in the numbers of a quantized model's file: constants, pairs of scales, ranges."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roundoff.core.quantizers import Quantizer, QuantParams, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.diagnosis.checks import WORSE_DB, FileCase, FileSuspect
from roundoff.diagnosis.interventions import reach
from roundoff.diagnosis.loss import Loss
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, loss_measures
from roundoff.graph.load import Model, model_from_proto
from roundoff.graph.nodes import producer_names
from roundoff.graph.quantized_model import Oddity
from roundoff.graph.weights import Weights, tensor_dtype
from roundoff.messages.message import as_message, message

# Float constants in the file of a quantized model that are not those of the float model.

# Constants that differ by less than this part of their size are the same.
_SAME = 1e-3
_BIAS_INPUT = 2
# So many constants are tried one by one.
_MOST_TRIED = 16


@dataclass(frozen=True, slots=True, eq=False)
class _StoredConstant:
    """The constant that takes away most of the loss when it is that of the float model.

    Attributes:
        name: In the file.
        node: What reads it.
        tensor: Its name in the float model.
        bias: Whether it is added, and nothing else.
        after: What the file loses then.
    """

    name: str
    node: str
    tensor: str
    bias: bool
    after: Loss


class _Replaced:
    """What a wrong bias and any other wrong constant have in common: the same search, told by another name."""

    bias = False

    def signal(self, case: FileCase, suspect: FileSuspect) -> Signal | None:
        """Whether a constant of this kind takes more of the loss away than any other."""
        del suspect
        found = _found(case)
        return Signal(1.0) if found is not None and found.bias == self.bias else None

    def intervene(self, case: FileCase, suspect: FileSuspect) -> Intervention | None:
        """The constant of the float model in its place."""
        del suspect
        found = _found(case)
        if found is None or case.loss is None:
            return None
        summary = "diagnosis.file_bias_summary" if found.bias else "diagnosis.file_constant_summary"
        return Intervention(
            message("diagnosis.file_constant_changed", name=found.name),
            loss_measures(case.loss, found.after),
            1.0,
            message(summary, name=found.name, node=found.node),
            (RemedyChange("codes", nodes=(found.node,)),),
            nodes=(found.node,),
            tensors=(found.tensor,),
            detail=found.name,
        )

    def remedy(self, case: FileCase, suspect: FileSuspect, proof: Intervention) -> Remedy:
        """The values of the float model."""
        del case, suspect
        return Remedy(message("diagnosis.file_constant_remedy", name=proof.detail), "free", proof.changes)


@cause("bias-shift", of="file", order=10)
class FileBias(_Replaced):
    """A bias in the file is not that of the float model."""

    bias = True


@cause("corrupted-weights", of="file", order=15)
class FileConstants(_Replaced):
    """A float constant in the file is not that of the float model."""


def _found(case: FileCase) -> _StoredConstant | None:
    """The constant to blame; looked for once, as it takes a run of the network for each."""
    if "constant" not in case.known:
        case.known["constant"] = _best(case)
    found: _StoredConstant | None = case.known["constant"]
    return found


def _best(case: FileCase) -> _StoredConstant | None:
    given, nodes = case.given, case.case.facts.nodes
    if given is None or case.loss is None:
        return None
    best: tuple[float, _StoredConstant, Model] | None = None
    for name, node, position, values in list(_other_constants(case.case, given))[:_MOST_TRIED]:
        model = _with_constant(given, name, values)
        loss = case.measured(model)
        if loss is not None and (best is None or loss.value < best[0]):
            bias = position == _BIAS_INPUT or nodes[node].op_type == "Add"
            best = loss.value, _StoredConstant(name, node, nodes[node].input[position], bias, loss), model
    after = None if best is None else case.measured(best[2], more=True)
    if best is None or after is None or case.loss.excess_db(after) < WORSE_DB:
        return None
    return replace(best[1], after=after)


def _other_constants(case: Case, given: Model) -> Iterator[tuple[str, str, int, Array]]:
    """Float constants that nodes of both models read at the same place, where they differ."""
    theirs = Weights(given)
    for node in given.proto.graph.node:
        twin: Any = case.facts.nodes.get(node.name)
        if twin is None or twin.op_type != node.op_type:
            continue
        for position, (left, right) in enumerate(zip(twin.input, node.input, strict=False)):
            if left in case.facts.weights.protos and right in theirs.protos:
                ours, other = case.facts.weights[left], theirs[right]
                if ours.dtype == other.dtype == np.float32 and ours.shape == other.shape and ours.size:
                    size = float(np.abs(ours).max())
                    if float(np.abs(ours - other).max()) > _SAME * max(size, 1e-30):
                        yield right, node.name, position, ours


def _with_constant(model: Model, name: str, values: Array) -> Model:
    from onnx.numpy_helper import from_array

    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    for tensor in proto.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(from_array(np.ascontiguousarray(values), name))
    return model_from_proto(proto, path=model.path)


# Codes in the file of a quantized model that are dequantized in another way than they were quantized.

# Scales that differ by less than this part are the same number, written otherwise.
_SAME_SCALE = 1e-4
# What only moves codes leaves their scale as it is.
_MOVES = frozenset({"Flatten", "Identity", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
# A file that is better by this much is so by more than the last bits.
_BETTER_DB = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class _OddPair:
    """A quantize node and a dequantize node of its codes that disagree, with scale and zero point of each.

    Attributes:
        tensor: What is quantized, by its name in the file.
        quantize: Index of the first in the graph.
        dequantize: Index of the second.
        ours: Scale and zero point of the first.
        theirs: Those of the second.
    """

    tensor: str
    quantize: int
    dequantize: int
    ours: tuple[Array, Array]
    theirs: tuple[Array, Array]


@cause("wrong-dequantization", of="file", order=20)
class FileDequantization:
    """Codes in the file are dequantized with another scale or zero point than they were quantized with."""

    def signal(self, case: FileCase, suspect: FileSuspect) -> Signal | None:
        """Whether a quantize node and its dequantize node disagree."""
        del suspect
        if case.given is None or case.loss is None:
            return None
        pairs = _pairs(case)
        if pairs:
            first = pairs[0]
            with np.errstate(divide="ignore", invalid="ignore"):
                times = float(np.max(first.theirs[0] / first.ours[0]))
            return Signal(1.0, {"pairs": float(len(pairs)), "scale_ratio": times})
        worse = case.loss.excess_db(case.case.loss(more=True)) >= WORSE_DB
        return Signal(1.0) if worse and _disagreements(case) else None

    def intervene(self, case: FileCase, suspect: FileSuspect) -> Intervention | None:
        """The file with the same numbers in both nodes of each such pair; or its quantizers alone."""
        del suspect
        if case.loss is None:
            return None
        pairs, odd = _pairs(case), _disagreements(case)
        right = _put_right(case, pairs) if pairs else case.case.loss(more=True)
        if right is None:
            return None
        producers = producer_names(case.case.facts.nodes.values())
        known = [each.tensor for each in pairs if each.tensor in producers]
        names = tuple(dict.fromkeys(known or [each.node for each in odd]))
        summary = next((as_message(each.text) for each in odd if each.node in names or not pairs), None)
        if summary is None:
            first = pairs[0]
            numbers = {"scale": float(first.ours[0].flat[0]), "other": float(first.theirs[0].flat[0])}
            summary = message("diagnosis.file_pairs_summary", tensor=first.tensor, **numbers)
        return Intervention(
            message("diagnosis.file_pairs_changed"),
            loss_measures(case.loss, right),
            1.0 if right.value < case.loss.value and case.loss.excess_db(right) >= _BETTER_DB else 0.0,
            summary,
            nodes=tuple(dict.fromkeys(producers.get(name, name) for name in names)),
            tensors=tuple(name for name in names if name in producers),
        )

    def remedy(self, case: FileCase, suspect: FileSuspect, proof: Intervention) -> Remedy:
        """The same scale on both sides."""
        del case, suspect, proof
        return Remedy(message("diagnosis.file_pairs_remedy"), "free")


def _disagreements(case: FileCase) -> list[Oddity]:
    return [each for each in case.case.facts.quantized.oddities if each.kind == "disagreement"]


def _pairs(case: FileCase) -> list[_OddPair]:
    """All pairs that disagree, looked for once."""
    if "pairs" not in case.known:
        case.known["pairs"] = [] if case.given is None else list(_odd_pairs(case.given))
    found: list[_OddPair] = case.known["pairs"]
    return found


def _odd_pairs(given: Model) -> Iterator[_OddPair]:
    nodes, weights = given.proto.graph.node, Weights(given)
    at = {name: place for place, node in enumerate(nodes) for name in node.output}
    for place, node in enumerate(nodes):
        source = at.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
        while source is not None and nodes[source].op_type in _MOVES:
            source = at.get(nodes[source].input[0])
        if source is None or nodes[source].op_type != "QuantizeLinear":
            continue
        first = nodes[source]
        if {first.input[1], node.input[1]} <= set(weights.protos):
            ours, theirs = _numbers(first, weights), _numbers(node, weights)
            if ours[0].shape == theirs[0].shape and not _agree(ours, theirs):
                yield _OddPair(first.input[0], source, place, ours, theirs)


def _numbers(node: Any, weights: Weights) -> tuple[Array, Array]:
    """Scale and zero point of a node."""
    scale = weights[node.input[1]].astype(np.float64)
    stored = len(node.input) > 2 and node.input[2] in weights.protos
    zero = weights[node.input[2]].astype(np.int64) if stored else np.zeros(scale.shape, np.int64)
    return scale, zero


def _agree(ours: tuple[Array, Array], theirs: tuple[Array, Array]) -> bool:
    same = np.allclose(ours[0], theirs[0], rtol=_SAME_SCALE, atol=0.0)
    return bool(same and np.array_equal(ours[1], theirs[1]))


def _put_right(case: FileCase, pairs: list[_OddPair]) -> Loss | None:
    """What the file loses when both nodes of each pair have the numbers of one; of the two ways the better."""

    def after(copied: Callable[[_OddPair], tuple[int, int]]) -> Loss | None:
        given = case.given
        if given is None:
            return None
        proto = type(given.proto)()
        proto.CopyFrom(given.proto)
        for pair in pairs:
            source, target = copied(pair)
            numbers = list(proto.graph.node[source].input[1:])
            del proto.graph.node[target].input[1:]
            proto.graph.node[target].input.extend(numbers)
        return case.measured(model_from_proto(proto, path=given.path), more=True)

    ways = (
        after(lambda pair: (pair.quantize, pair.dequantize)),
        after(lambda pair: (pair.dequantize, pair.quantize)),
    )
    return min((each for each in ways if each is not None), key=lambda each: each.value, default=None)


# Ranges in the file of a quantized model that do more than quantize: codes that end at zero stand for a Relu.
#
# Tools leave a Relu out where the smallest code stands for zero. With a wrong zero point negative values then go
# through, which the float model and its quantizers do not show.

# A repaired range must take away this much.
_REPAIRED_DB = 3.0
# Ranges that miss the data by less than this part of their width are left alone.
_SAME_PART = 0.1
# So many ranges are tried one by one.
_MOST_RANGES = 32


@cause("clipping", of="file", order=30)
class FileRange:
    """A range in the file is not that of its tensor, and the file relies on its codes to cut off the rest."""

    def signal(self, case: FileCase, suspect: FileSuspect) -> Signal | None:
        """Whether ranges of the file miss what their tensors hold in float."""
        del suspect
        return None if case.given is None or next(_repaired(case.case, case.given), None) is None else Signal(1.0)

    def intervene(self, case: FileCase, suspect: FileSuspect) -> Intervention | None:
        """One range after the other put to what its tensor holds; the one that takes away most of the loss."""
        del suspect
        if case.given is None or case.loss is None:
            return None
        best: tuple[float, Quantizer, Model] | None = None
        for quantizer, model in list(_repaired(case.case, case.given))[:_MOST_RANGES]:
            loss = case.measured(model)
            if loss is not None and (best is None or loss.value < best[0]):
                best = loss.value, quantizer, model
        after = None if best is None else case.measured(best[2], more=True)
        if best is None or after is None or case.loss.excess_db(after) < _REPAIRED_DB:
            return None
        facts, quantizer = case.case.facts, best[1]
        blamed = next(each for each in facts.suspects if quantizer.name in each.quantizers)
        low, high = facts.observed[quantizer.tensor].range
        code_low, code_high = reach(quantizer)
        return Intervention(
            message("diagnosis.file_range_changed", tensor=quantizer.tensor, low=low, high=high),
            loss_measures(case.loss, after),
            1.0,
            message(
                "diagnosis.file_range_summary",
                tensor=quantizer.tensor,
                low=low,
                high=high,
                code_low=code_low,
                code_high=code_high,
                zero=int(quantizer.params.zero_point),
            ),
            (RemedyChange("range", blamed.tensors, blamed.nodes, low=low, high=high),),
            nodes=blamed.nodes,
            tensors=blamed.tensors,
            detail=quantizer.tensor,
        )

    def remedy(self, case: FileCase, suspect: FileSuspect, proof: Intervention) -> Remedy:
        """The range of the values."""
        del case, suspect
        change = proof.changes[0]
        title = message("diagnosis.set_range", tensor=proof.detail, low=change.low, high=change.high)
        return Remedy(title, "free", proof.changes)


def _repaired(case: Case, given: Model) -> Iterator[tuple[Quantizer, Model]]:
    """The file with one range after the other put to what its tensor holds."""
    by_tensor = {
        each.tensor: each for each in case.facts.quantizers.values() if each.tensor in case.facts.observed
    }
    weights = Weights(given)
    for node in given.proto.graph.node:
        quantizer = by_tensor.get(node.input[0] if node.op_type == "QuantizeLinear" else "")
        if quantizer is None or quantizer.params.scale.size > 1 or not {*node.input[1:3]} <= set(weights.protos):
            continue
        low, high = case.facts.observed[quantizer.tensor].range
        ends, room = reach(quantizer), _SAME_PART * (high - low)
        if abs(ends[0] - low) > room or abs(ends[1] - high) > room:
            yield quantizer, _with_params(given, node, parameters_from_range(low, high, quantizer.spec))


def _with_params(given: Model, node: Any, params: QuantParams) -> Model:
    """The file with another scale and zero point for one tensor, in all pairs that handle its codes."""
    from onnx.numpy_helper import from_array

    proto = type(given.proto)()
    proto.CopyFrom(given.proto)
    protos = {tensor.name: tensor for tensor in given.proto.graph.initializer}
    kind = tensor_dtype(protos[node.input[2]]) if len(node.input) > 2 and node.input[2] in protos else np.uint8
    names = f"{node.name}_repaired_scale", f"{node.name}_repaired_zero_point"
    arrays = params.scale.astype(np.float32), np.asarray(params.zero_point.astype(kind))
    proto.graph.initializer.extend(from_array(array, name) for array, name in zip(arrays, names, strict=True))
    for each in proto.graph.node:
        mine = each.op_type == "QuantizeLinear" and each.input[0] == node.input[0]
        if mine or (each.op_type == "DequantizeLinear" and each.input[0] == node.output[0]):
            del each.input[1:]
            each.input.extend(names)
    return model_from_proto(proto, path=given.path)
