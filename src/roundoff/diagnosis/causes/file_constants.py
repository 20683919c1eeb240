"""Float constants in the file of a quantized model that are not those of the float model."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.diagnosis.checks import WORSE_DB, FileCase, FileSuspect
from roundoff.diagnosis.loss import Loss
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, loss_measures
from roundoff.graph.load import Model, model_from_proto
from roundoff.graph.weights import Weights
from roundoff.messages.message import message

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
