"""Whether the file of a quantized model computes what its quantizers say, and what in it is otherwise."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from roundoff.core.quantizers import Quantizer, QuantParams, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.diagnosis.interventions import reach
from roundoff.diagnosis.loss import Loss, LossMeter
from roundoff.diagnosis.result import Change, Finding, Remedy
from roundoff.diagnosis.subject import Case, loss_measures
from roundoff.errors import RoundoffError
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model, model_from_proto
from roundoff.graph.weights import Weights, tensor_dtype
from roundoff.messages.message import Message, message
from roundoff.messages.numbers import decibels_text
from roundoff.messages.sentences import recognised
from roundoff.run.session import open_session

__all__ = [
    "check_file",
    "wrong_range",
]


# Ranges in the file of a quantized model that do more than quantize: codes that end at zero stand for a Relu.
#
# Tools leave a Relu out where the smallest code stands for zero. With a wrong zero point negative values then go
# through, which the float model and its quantizers do not show.

# A repaired range must take away this much.
_BETTER_DB = 3.0
# Ranges that miss the data by less than this part of their width are left alone.
_SAME_PART = 0.1
# So many ranges are tried one by one.
_MOST_TRIED_FILE_RANGES = 32


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
    for quantizer, model in list(_repaired(case, given))[:_MOST_TRIED_FILE_RANGES]:
        loss = measured(model)
        if loss is not None and (best is None or loss.value < best[0]):
            best = loss.value, quantizer, loss
    if best is None or ours.excess_db(best[2]) < _BETTER_DB:
        return None
    quantizer, after = best[1], best[2]
    suspect = next(each for each in case.facts.suspects if quantizer.name in each.quantizers)
    low, high = case.facts.observed[quantizer.tensor].range
    code_low, code_high = reach(quantizer)
    tensor = quantizer.tensor
    return Finding(
        number=0,
        cause="clipping",
        nodes=suspect.nodes,
        tensors=suspect.tensors,
        summary=message(
            "diagnosis.file_range_summary",
            tensor=tensor,
            low=low,
            high=high,
            code_low=code_low,
            code_high=code_high,
            zero=int(quantizer.params.zero_point),
        ),
        intervention=message("diagnosis.file_range_changed", tensor=tensor, low=low, high=high),
        measures=loss_measures(ours, after),
        share=1.0,
        remedy=Remedy(
            message("diagnosis.set_range", tensor=tensor, low=low, high=high),
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


# What the file loses beyond its quantizers, from which on something else is in it.
_WORSE_DB = 3.0
# Constants that differ by less than this part of their size are the same.
_SAME = 1e-3
_BIAS_INPUT = 2
# So many constants are tried one by one.
_MOST_TRIED = 16


def check_file(case: Case, given: Model) -> tuple[Message, Finding | None, Loss | None]:
    """Run the file, and compare its outputs with those of the float model and its quantizers.

    Args:
        case: The float model and the quantizers that were read from the file.
        given: The file.

    Returns:
        What came of it; where the file is worse than its quantizers a finding, and what it loses.
    """
    try:
        ours = _loss(case, given)
    except RoundoffError as error:
        return message("diagnosis.file_not_run", reason=str(error.what)), None, None
    if ours is None:
        return message("diagnosis.file_other_outputs"), None, None
    theirs = case.loss()
    if ours.excess_db(theirs) < _WORSE_DB:
        return message("diagnosis.file_computes", db=decibels_text(ours.sqnr_db)), None, None
    found = (
        _wrong_constant(case, given, ours)
        or _disagreement(case, ours, theirs)
        or wrong_range(case, given, ours, measured=lambda model: _loss(case, model))
    )
    if found is None:
        keeps, alone = decibels_text(ours.sqnr_db), decibels_text(theirs.sqnr_db)
        return message("diagnosis.file_more", db=keeps, other=alone), None, ours
    return found.summary, found, ours


def _loss(case: Case, model: Model) -> Loss | None:
    """What a file loses; None where its outputs are of another kind."""
    lab = case.lab
    names = dict(zip(outputs(lab.model), outputs(model), strict=False))
    session = open_session(model, threads=None)
    meter = LossMeter(lab.parts)
    for place in lab.few():
        sample, feed = lab.feeds()[place]
        arrays = dict(zip(outputs(model), session.run(feed, sample=sample), strict=True))
        exact = lab.float_outputs()[place]
        found = {name: arrays[names[name]] for name in exact if name in names}
        if any(name not in found or found[name].dtype != array.dtype for name, array in exact.items()):
            return None
        meter.add(exact, found)
    return meter.loss()


def _disagreement(case: Case, ours: Loss, theirs: Loss) -> Finding | None:
    """Codes that are dequantized in another way than they were quantized."""
    odd = [each for each in case.facts.quantized.oddities if each.kind == "disagreement"]
    if not odd:
        return None
    names = tuple(dict.fromkeys(each.node for each in odd))
    producers = {name: node.name for node in case.facts.nodes.values() for name in node.output}
    nodes = tuple(dict.fromkeys(producers.get(name, name) for name in names))
    return Finding(
        number=0,
        cause="wrong-dequantization",
        nodes=nodes,
        tensors=tuple(name for name in names if name in producers),
        summary=recognised(odd[0].text),
        intervention=message("diagnosis.file_pairs_changed"),
        measures=loss_measures(ours, theirs),
        share=1.0,
        remedy=Remedy(message("diagnosis.file_pairs_remedy"), "free", ()),
        proven=theirs.value < ours.value,
    )


def _wrong_constant(case: Case, given: Model, ours: Loss) -> Finding | None:
    """A float constant of the file that is not that of the float model."""
    best: tuple[float, str, str, int, Loss] | None = None
    for name, node, position, values in list(_other_constants(case, given))[:_MOST_TRIED]:
        loss = _loss(case, _with_constant(given, name, values))
        if loss is not None and (best is None or loss.value < best[0]):
            best = loss.value, name, node, position, loss
    if best is None or ours.excess_db(best[4]) < _WORSE_DB:
        return None
    _, name, node, position, after = best
    bias = position == _BIAS_INPUT or case.facts.nodes[node].op_type == "Add"
    summary = "diagnosis.file_bias_summary" if bias else "diagnosis.file_constant_summary"
    title = message("diagnosis.file_constant_remedy", name=name)
    return Finding(
        number=0,
        cause="bias-shift" if bias else "corrupted-weights",
        nodes=(node,),
        tensors=(case.facts.nodes[node].input[position],),
        summary=message(summary, name=name, node=node),
        intervention=message("diagnosis.file_constant_changed", name=name),
        measures=loss_measures(ours, after),
        share=1.0,
        remedy=Remedy(title, "free", (Change("codes", nodes=(node,)),)),
        proven=True,
    )


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
