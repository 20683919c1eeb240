"""The float model that is left when the quantizers of a quantized one are taken out, and those quantizers."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from roundoff.core.quantizers import Kind, Quantizer, code_dtype, dequantize, quantize
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.draft import Assembly
from roundoff.graph.load import Model
from roundoff.graph.nodes import attribute, by_dtype, input_at, reads, rename_captured
from roundoff.graph.readers.extraction import Extraction, Stage
from roundoff.graph.readers.points import DEQUANTIZE, DialectDraft, Point, is_operator
from roundoff.graph.save import drop_unused
from roundoff.messages.message import english, message

_BIAS_INPUT = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2}
_WIDEST_EXACT = 16
"""Codes of up to so many bits come back when the float32 values they stand for are quantized again."""
_MOST_BYTES = 2**31 - 2**24
"""A model in memory must fit into one message of its file format, with room for the graph."""


def float_model_of(extraction: Extraction, *, empty: bool = False) -> Model:
    """The float model.

    Args:
        extraction: What was found in the quantized model.
        empty: Leave constants of which only codes are known without values: they have type and shape.

    Raises:
        BadInput: Its weights, as floats, would not fit into one model in memory.
    """
    draft = extraction.draft
    model = draft.model
    graph = Assembly(model)
    names = {tensor: output for output, tensor in extraction.leaving.items() if tensor != output}
    nodes = _live(extraction.nodes, {names.get(tensor, tensor): tensor for tensor in names}, draft.outputs)
    _retype(graph.proto.graph, extraction)
    for node in nodes:
        copy = graph.copy_node(node)
        for entries in (copy.input, copy.output):
            for at, name in enumerate(entries):
                entries[at] = names.get(name, name)
        rename_captured(copy, names)
    _add_constants(graph, extraction, nodes, empty=empty)
    _add_value_info(graph.proto.graph, model.proto.graph)
    drop_unused(graph.proto.graph)
    _drop_inputs(graph.proto.graph, extraction)
    return Model(graph.proto, model.path, model.file_bytes)


def _drop_inputs(graph: Any, extraction: Extraction) -> None:
    """Files of the oldest version list constants as inputs; those that are gone would have to be fed."""
    held = {tensor.name for tensor in graph.initializer}
    for at in reversed(range(len(graph.input))):
        name = graph.input[at].name
        if name not in held and extraction.draft.constants.stored(name) is not None:
            del graph.input[at]


def _live(nodes: Sequence[Any], renamed: dict[str, str], outputs: Iterable[str]) -> list[Any]:
    """The nodes that outputs depend on, in their order."""
    needed = {renamed.get(name, name) for name in outputs}
    kept = []
    for node in reversed(nodes):
        if any(name in needed for name in node.output):
            kept.append(node)
            needed.update(reads(node))
    return kept[::-1]


def _retype(graph: Any, extraction: Extraction) -> None:
    """Inputs and outputs that were codes are float values."""
    codes = {oddity.node for oddity in extraction.draft.oddities if oddity.kind == "interface"}
    for value in (*graph.input, *graph.output):
        if value.name in codes or value.name in extraction.inputs:
            value.type.tensor_type.elem_type = 1


def _add_constants(graph: Assembly, extraction: Extraction, nodes: Sequence[Any], *, empty: bool) -> None:
    constants = extraction.draft.constants
    read = dict.fromkeys(name for node in nodes for name in reads(node))
    read.update(dict.fromkeys(extraction.draft.outputs.values()))
    from_codes = {stage.tensor: stage for stage in extraction.stages if stage.codes}
    if not empty:
        _check_size(extraction, [from_codes[name] for name in read if name in from_codes])
    for name in read:
        stage, added, stored = from_codes.get(name), constants.added(name), constants.stored(name)
        if stage is not None and empty:
            graph.add_tensor(_tensor(name, stage.point.values, constants.shape(stage.codes)))
        elif stage is not None:
            _add(graph, name, _values(extraction, stage))
        elif added is not None:
            _add(graph, name, added)
        elif stored is not None and not hasattr(stored, "op_type"):
            graph.add_tensor(stored)


def _tensor(name: str, dtype: str, shape: tuple[int, ...]) -> Any:
    from onnx import TensorProto

    element = by_dtype(dtype)
    if element is None:
        raise BadInput(
            english("The constant {name!r} is of the unknown type {dtype}.", name=name, dtype=dtype),
            fix=english("export it as float32"),
        )
    return TensorProto(name=name, data_type=element.number, dims=shape)


def _add(graph: Assembly, name: str, values: Array) -> None:
    tensor = _tensor(name, str(values.dtype), values.shape)
    tensor.raw_data = np.ascontiguousarray(values).tobytes()
    graph.add_tensor(tensor)


def _check_size(extraction: Extraction, stages: Sequence[Stage]) -> None:
    constants, path = extraction.draft.constants, extraction.draft.model.path
    total = sum(constants.size(stage.codes) * 4 for stage in stages)
    if total > _MOST_BYTES:
        raise BadInput(
            english(
                "The weights of {path} take {total:.1f} GiB as floats, more than a model in memory can hold.",
                path=path,
                total=total / 2**30,
            ),
            fix=english("give the float model it was made from with --float"),
        )


def _codes(extraction: Extraction, stage: Stage) -> Array:
    """The codes that the model holds for a constant, in the smallest type that numpy has for them."""
    stored = extraction.draft.constants.value(stage.codes)
    return np.asarray(stored.astype(code_dtype(stage.point.spec)))


def _values(extraction: Extraction, stage: Stage) -> Array:
    import ml_dtypes

    point = stage.point
    values = dequantize(_codes(extraction, stage), point.params, point.spec.axis)
    own = getattr(ml_dtypes, point.values, None)
    return values.astype(np.dtype(point.values) if own is None else own, copy=False)


def values_of(extraction: Extraction, tensor: str) -> Array:
    """Values of a constant of the float model."""
    stage = next((stage for stage in extraction.stages if stage.codes and stage.tensor == tensor), None)
    return extraction.draft.constants.value(tensor) if stage is None else _values(extraction, stage)


def quantizers_of(extraction: Extraction, twin: Model, *, with_codes: bool = True) -> tuple[Quantizer, ...]:
    """The quantizers, in execution order of their tensors.

    Args:
        extraction: What was found in the quantized model.
        twin: The float model.
        with_codes: Give constants their codes where their values would not give them again.
    """
    tensors = {tensor: output for output, tensor in extraction.leaving.items()}
    names = _names(extraction)
    position = {node.name: at for at, node in enumerate(twin.proto.graph.node)}
    written = {name: at for at, node in enumerate(twin.proto.graph.node) for name in node.output}
    used = _used(extraction, position)

    def order(stage: Stage) -> tuple[float, int]:
        tensor = tensors.get(stage.tensor, stage.tensor)
        if tensor in written and not stage.codes:
            return written[tensor] + 0.5, 0
        if not _is_constant(extraction, stage):
            return -1, 0
        return min(((position[each.node], each.input) for each in stage.consumers), default=(-1, 0))

    ops = {node.name: node.op_type for node in twin.proto.graph.node}
    found = []
    for stage in sorted(used, key=order):
        kind = _kind(extraction, stage, ops)
        quantizer = _quantizer(stage, kind, names, tensor=tensors.get(stage.tensor, stage.tensor))
        found.append(replace(quantizer, codes=_learned_codes(extraction, stage)) if with_codes else quantizer)
    return tuple(found)


def _names(extraction: Extraction) -> dict[str, str]:
    """Quantizers are named after tensors; where those are outputs now, after the outputs."""
    taken = {stage.name for stage in extraction.stages}
    return {
        tensor: output for output, tensor in extraction.leaving.items() if tensor == output or output not in taken
    }


def _used(extraction: Extraction, position: dict[str, int]) -> list[Stage]:
    """The stages that something sees; consumers that turned out to be of no use are dropped."""
    for stage in extraction.stages:
        stage.consumers = [consumer for consumer in stage.consumers if consumer.node in position]
    used = {id(stage) for stage in extraction.stages if stage.consumers or stage.output}
    for stage in reversed(extraction.stages):
        if id(stage) in used and stage.before is not None:
            used.add(id(stage.before))
    return [stage for stage in extraction.stages if id(stage) in used]


def _is_constant(extraction: Extraction, stage: Stage) -> bool:
    return bool(stage.codes) or stage.tensor in extraction.draft.constants


def _quantizer(stage: Stage, kind: Kind, names: dict[str, str], *, tensor: str) -> Quantizer:
    return Quantizer(
        name=names.get(stage.name, stage.name),
        tensor=tensor,
        kind=kind,
        spec=stage.point.spec,
        params=stage.point.params,
        consumers=tuple(stage.consumers),
        output=stage.output,
        after="" if stage.before is None else names.get(stage.before.name, stage.before.name),
    )


def _kind(extraction: Extraction, stage: Stage, ops: dict[str, str]) -> Kind:
    if not _is_constant(extraction, stage):
        return "activation"
    slots = {_BIAS_INPUT.get(ops[consumer.node]) == consumer.input for consumer in stage.consumers}
    return "bias" if stage.point.spec.bits > _WIDEST_EXACT or slots == {True} else "weight"


def codes_of(extraction: Extraction, name: str) -> Array | None:
    """The codes of the constant that a quantizer is on; None when it is on none, or follows another quantizer."""
    names = _names(extraction)
    stage = next(stage for stage in extraction.stages if names.get(stage.name, stage.name) == name)
    if stage.codes:
        return _codes(extraction, stage)
    if stage.before is not None or not _is_constant(extraction, stage):
        return None
    return _quantized(extraction.draft.constants.value(stage.tensor), stage.point)


def _quantized(values: Array, point: Point) -> Array:
    # A broken scale may be zero: what comes out differs from the codes of the model, which is all that counts.
    with np.errstate(divide="ignore", invalid="ignore"):
        return quantize(values, point.params, point.spec)


def _learned_codes(extraction: Extraction, stage: Stage) -> Array | None:
    """The codes of a constant where its values would not give them again."""
    point = stage.point
    if not stage.codes:
        return None
    tiny = float(np.finfo(np.float32).tiny)
    safe = np.all((point.params.scale >= tiny) & np.isfinite(point.params.scale))
    if point.spec.bits <= _WIDEST_EXACT and point.values == "float32" and safe:
        return None
    codes = _codes(extraction, stage)
    again = _quantized(_values(extraction, stage), point)
    return None if np.array_equal(codes, again) else codes


def _add_value_info(graph: Any, source: Any) -> None:
    """Declared types of tensors that are computed as they were."""
    computed = {name for node in graph.node for name in node.output}
    for value in source.value_info:
        if value.name in computed and value.type.tensor_type.elem_type in _FLOATS:
            graph.value_info.append(value)


_FLOATS = (1, 10, 11, 16)


# Putting back activations that a tool removed because the limits of the codes compute them anyway.
#
# Codes whose smallest one stands for zero clip negative values, as Relu does; some tools drop the Relu then.
# Without quantization nothing clips any more, so the float model must have it. Where the tensor was never
# negative, a Relu changes nothing.

# What an activation commonly follows.
_SIGNED = frozenset({
    "Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "Mul", "BatchNormalization", "InstanceNormalization",
    "LayerNormalization",
})  # fmt: skip
_NEVER_NEGATIVE = frozenset({"Relu", "Sigmoid", "HardSigmoid", "Softmax", "Abs", "Exp", "Sqrt", "Softplus"})
_KEEPS_SIGN = frozenset({
    "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze",
    "Transpose", "Identity", "Concat", "Add", "Mul", "MatMul", "Slice", "Split", "Gather", "Expand", "Tile", "Pad",
    "DepthToSpace", "SpaceToDepth", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "Dropout", "Div", "Max",
    "Resize", "Upsample", "Cast", "Sum", "Mean",
})  # fmt: skip
_SMALL = 4096
"""Larger constants are not looked through for negative values; those that decide the sign of a sum are biases."""
_SIX = 6.0
_CLIP_TAKES_INPUTS = 11


def restore_activations(extraction: Extraction) -> None:
    """Add the Relu, or the Clip from 0 to 6, that quantizers stand for; in models that kept it nothing changes."""
    if _keeps_activations(extraction.draft):
        return
    stages: dict[str, list[Stage]] = defaultdict(list)
    for stage in extraction.stages:
        stages[stage.tensor].append(stage)
    edges = _edges(extraction)
    positive: set[str] = set()
    result = []
    for node in extraction.nodes:
        result.append(node)
        if _is_positive(extraction.draft, node, positive):
            positive.update(node.output)
            continue
        tensor = node.output[0] if node.output else ""
        own = stages.get(tensor, [])
        if not own or not all(_starts_at_zero(stage.point) for stage in own):
            continue
        positive.add(tensor)
        seen = {(each.node, each.input) for stage in own for each in stage.consumers}
        if node.op_type in _SIGNED and seen >= edges[tensor]:
            result.append(_activation(extraction, node, own[0]))
    extraction.nodes = result


def _keeps_activations(draft: DialectDraft) -> bool:
    """Whether the model was written by `roundoff.graph.qdq`, which removes nothing."""
    ending = f"_{DEQUANTIZE}"
    return any(
        node.name.endswith(ending) and node.output[0] == f"{node.name.removesuffix(ending)}_dequantized"
        for node in draft.model.proto.graph.node
        if is_operator(node, DEQUANTIZE)
    )


def _edges(extraction: Extraction) -> dict[str, set[tuple[str, int]]]:
    """Who reads each tensor of the float graph; what leaves the network in float is read by nobody of a name."""
    found: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for node in extraction.nodes:
        for at, name in enumerate(node.input):
            found[name].add((node.name, at))
        for name in reads(node):
            if name not in node.input:
                found[name].add((node.name, -1))
    leaving = {stage.tensor for stage in extraction.stages if stage.output}
    for output in extraction.draft.outputs:
        tensor = extraction.leaving.get(output, output)
        if tensor not in leaving:
            found[tensor].add(("", -1))
    return found


def _starts_at_zero(point: Point) -> bool:
    return bool(np.all(point.params.zero_point == point.spec.code_min))


def _is_positive(draft: DialectDraft, node: Any, positive: set[str]) -> bool:
    """Whether what a node computes can be seen never to be negative."""
    if node.op_type in _NEVER_NEGATIVE:
        return True
    if node.op_type == "Clip":
        low = input_at(node, 1)
        bound = draft.constants.value(low) if low in draft.constants else attribute(node, "min", -1.0)
        return bool(np.all(np.asarray(bound) >= 0))
    if node.op_type not in _KEEPS_SIGN:
        return False
    data = (
        node.input if node.op_type in ("Concat", "Add", "Mul", "MatMul", "Div", "Max", "Sum") else node.input[:1]
    )
    return all(name in positive or _positive_constant(draft, name) for name in data if name)


def _positive_constant(draft: DialectDraft, name: str) -> bool:
    if name not in draft.constants or draft.constants.size(name) > _SMALL:
        return False
    values = draft.constants.value(name)
    return values.dtype.kind in "fiub" and bool(np.all(values >= 0))


def _activation(extraction: Extraction, node: Any, stage: Stage) -> Any:
    """A node between another and the tensor it wrote so far."""
    from onnx.helper import make_node

    draft, tensor = extraction.draft, node.output[0]
    node.output[0] = draft.free_tensor(f"{tensor}_before_activation")
    spec, params = stage.point.spec, stage.point.params
    largest = (spec.code_max - int(params.zero_point.ravel()[0])) * float(params.scale.ravel()[0])
    six = params.scale.ndim == 0 and abs(largest - _SIX) < _SIX * 1e-5
    op_type = "Clip" if six else "Relu"
    name = draft.free_node(f"{node.name}_{op_type}")
    text = message("graph.activation_restored", op=op_type, node=node.name, tensor=tensor)
    draft.odd("restored", node.name, text)
    if not six:
        return make_node("Relu", [node.output[0]], [tensor], name=name)
    if draft.opset < _CLIP_TAKES_INPUTS:
        return make_node("Clip", [node.output[0]], [tensor], name=name, min=0.0, max=_SIX)
    bounds = [
        draft.add_constant(np.asarray(bound, dtype=stage.point.values), f"{name}_{key}")
        for key, bound in (("min", 0.0), ("max", _SIX))
    ]
    return make_node("Clip", [node.output[0], *bounds], [tensor], name=name)
