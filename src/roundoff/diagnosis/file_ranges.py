"""Ranges in the file of a quantized model that do more than quantize: codes that end at zero stand for a Relu.

Tools leave a Relu out where the smallest code stands for zero. With a wrong zero point negative values then go
through, which the float model and its quantizers do not show.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from roundoff.core.findings import Change, Finding, Remedy
from roundoff.core.quantization import parameters_from_range
from roundoff.core.quantizer import Quantizer, QuantParams
from roundoff.diagnosis.alternatives import reach
from roundoff.diagnosis.case import Case, loss_measures
from roundoff.diagnosis.loss import Loss
from roundoff.diagnosis.proving import spoken
from roundoff.graph.load import Model, model_from_proto
from roundoff.graph.weights import Weights, tensor_dtype

__all__ = ["wrong_range"]

# A repaired range must take away this much.
_BETTER_DB = 3.0
# Ranges that miss the data by less than this part of their width are left alone.
_SAME_PART = 0.1
# So many ranges are tried one by one.
_MOST_TRIED = 32


def wrong_range(
    case: Case, given: Model, ours: Loss, *, measured: Callable[[Model], Loss | None]
) -> Finding | None:
    """A range in the file that, put to what the tensor holds in float, takes the loss away.

    Args:
        case: The float model and the quantizers of the file.
        given: The file.
        ours: What it loses.
        measured: What a changed file loses.
    """
    best: tuple[float, Quantizer, Loss] | None = None
    for quantizer, model in list(_repaired(case, given))[:_MOST_TRIED]:
        loss = measured(model)
        if loss is not None and (best is None or loss.value < best[0]):
            best = loss.value, quantizer, loss
    if best is None or ours.excess_db(best[2]) < _BETTER_DB:
        return None
    quantizer, after = best[1], best[2]
    suspect = next(each for each in case.facts.suspects if quantizer.name in each.quantizers)
    low, high = case.facts.observed[quantizer.tensor].range
    ends = " .. ".join(map(spoken, reach(quantizer)))
    data = f"{spoken(low)} .. {spoken(high)}"
    return Finding(
        number=0,
        cause="clipping",
        nodes=suspect.nodes,
        tensors=suspect.tensors,
        summary=f"{quantizer.tensor!r} holds {data}, but its codes stand for {ends} (zero point "
        f"{int(quantizer.params.zero_point)}), and the file leaves it to them to cut off the rest",
        intervention=f"the codes of {quantizer.tensor!r} in the file stand for {data}",
        measures=loss_measures(ours, after),
        share=1.0,
        remedy=Remedy(
            f"set the range of {quantizer.tensor!r} to {data}",
            "free",
            (Change("range", suspect.tensors, suspect.nodes, low=low, high=high),),
        ),
        proven=True,
    )


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
