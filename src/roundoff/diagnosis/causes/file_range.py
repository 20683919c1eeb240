"""Ranges in the file of a quantized model that do more than quantize: codes that end at zero stand for a Relu.

Tools leave a Relu out where the smallest code stands for zero. With a wrong zero point negative values then go
through, which the float model and its quantizers do not show.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from roundoff.core.quantizers import Quantizer, QuantParams, parameters_from_range
from roundoff.diagnosis.checks import FileCase, FileSuspect
from roundoff.diagnosis.interventions import reach
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, loss_measures
from roundoff.graph.load import Model, model_from_proto
from roundoff.graph.weights import Weights, tensor_dtype
from roundoff.messages.message import message

# A repaired range must take away this much.
_BETTER_DB = 3.0
# Ranges that miss the data by less than this part of their width are left alone.
_SAME_PART = 0.1
# So many ranges are tried one by one.
_MOST_TRIED = 32


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
        for quantizer, model in list(_repaired(case.case, case.given))[:_MOST_TRIED]:
            loss = case.measured(model)
            if loss is not None and (best is None or loss.value < best[0]):
                best = loss.value, quantizer, model
        after = None if best is None else case.measured(best[2], more=True)
        if best is None or after is None or case.loss.excess_db(after) < _BETTER_DB:
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
