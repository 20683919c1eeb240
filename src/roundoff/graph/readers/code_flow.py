"""Which integer tensors of a model are codes with a known meaning, and where they are needed as integers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from roundoff.core.quantizers import QuantSpec
from roundoff.graph.nodes import STANDARD_DOMAINS, OnnxType, attribute, by_dtype, by_number, input_at, reads
from roundoff.graph.readers.points import (
    DEQUANTIZE,
    MICROSOFT,
    QUANTIZE,
    CannotRepresent,
    DialectDraft,
    Point,
    code_type,
    is_operator,
    read_point,
)
from roundoff.messages.message import english, message

# Operators that work on codes as they would on the values: they move or choose elements, and compute nothing.

_FIRST = frozenset({
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "MaxPool", "Slice", "Split", "Gather",
    "GatherElements", "GatherND", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "ReduceMax", "ReduceMin",
    "GlobalMaxPool", "TopK", "Pad", "Cast", "Resize", "Upsample", "Relu", "Clip", "Dropout", "ReverseSequence",
})  # fmt: skip
_ALL = frozenset({"Concat", "Max", "Min"})
_FROM_SECOND = frozenset({"Where"})
# They ask for the order or the number of elements; both are the same for codes and values.
_LOOK = frozenset({"ArgMax", "ArgMin", "Shape", "Size"})
# With one scale per slice only these leave every element in its slice.
_KEEP_SLICES = frozenset({"Identity", "Cast", "Dropout"})


def data_inputs(node: Any) -> tuple[int, ...]:
    """Which inputs of a node carry the elements that it moves; none when it computes."""
    if node.domain not in STANDARD_DOMAINS and not (node.domain == MICROSOFT and node.op_type == "Pad"):
        return ()
    if node.op_type in _FIRST:
        return (0,)
    if node.op_type in _ALL:
        return tuple(range(len(node.input)))
    return (1, 2) if node.op_type in _FROM_SECOND else ()


def reads_shape_only(node: Any) -> bool:
    """Whether a node only asks for the order or the number of elements."""
    return node.op_type in _LOOK and node.domain in STANDARD_DOMAINS


def written_codes(draft: DialectDraft, node: Any, points: Sequence[Point | None]) -> Point | None:
    """The meaning of the codes that a node writes when its data inputs have these meanings.

    Returns:
        None when the node computes with codes in a way that has no counterpart for values.
    """
    first = points[0] if points else None
    if first is None or not all(point is not None and first.same(point) for point in points):
        return None
    if first.params.scale.ndim and node.op_type not in _KEEP_SLICES:
        return None
    return first if _is_faithful(draft, node, first) else None


def _is_faithful(draft: DialectDraft, node: Any, point: Point) -> bool:
    """Whether a node that may move codes does no more than that."""
    if node.op_type == "Cast":
        element = by_number(attribute(node, "to", 0))
        form = (point.spec.bits, point.spec.signed)
        return element is not None and (element.bits, element.dtype.startswith("int")) == form
    if node.op_type in ("Resize", "Upsample"):
        return str(attribute(node, "mode", "nearest")) == "nearest"
    if node.op_type == "Relu":
        return bool(np.all(point.params.zero_point == 0))
    limits = {"Pad": slice(2, 3), "Clip": slice(1, 3)}.get(node.op_type, slice(0, 0))
    return all(name in draft.constants for name in node.input[limits] if name)


def is_code_clip(draft: DialectDraft, node: Any, spec: QuantSpec) -> tuple[int, int] | None:
    """The smallest and largest code that a Clip of codes lets through; None for any other node."""
    if node.op_type != "Clip" or node.domain not in STANDARD_DOMAINS:
        return None
    names = [*node.input[1:3], "", ""][:2]
    if any(name and name not in draft.constants for name in names):
        return None
    limits = []
    for name, key, default in zip(names, ("min", "max"), (spec.code_min, spec.code_max), strict=True):
        held = draft.constants.value(name).ravel() if name else np.asarray([attribute(node, key, default)])
        if held.size != 1:
            return None
        limits.append(int(held[0]))
    return max(limits[0], spec.code_min), min(limits[1], spec.code_max)


def moved_constants(draft: DialectDraft, node: Any, point: Point) -> dict[int, float]:
    """Constant inputs of a node that are codes, and what they are as values, by their positions."""
    scale, zero_point = float(point.params.scale.ravel()[0]), int(point.params.zero_point.ravel()[0])
    if node.op_type == "Pad":
        if str(attribute(node, "mode", "constant")) != "constant":
            return {}
        name = input_at(node, 2)
        # Without a value codes are padded with the code 0, whatever that means.
        code = int(draft.constants.value(name).ravel()[0]) if name else 0
        return {2: (code - zero_point) * scale}
    if node.op_type == "Clip":
        limits = is_code_clip(draft, node, point.spec)
        return {} if limits is None else {at + 1: (code - zero_point) * scale for at, code in enumerate(limits)}
    return {}


# Wider integers are indices and shapes, or sums that have a scale of their own.
_WIDEST_CODES = 16


@dataclass(slots=True)
class CodeFlow:
    """What is known of the integers in a model.

    Attributes:
        points: What each QuantizeLinear and DequantizeLinear says, by node name; those that are missing cannot be
            represented and stay nodes.
        codes: The meaning of integer tensors that are computed, or inputs of the network, by tensor.
        movers: Names of the nodes that pass codes on.
        needed: Codes that some node needs as integers, for another purpose than to dequantize them.
        inputs: Inputs of the network that are codes.
    """

    points: dict[str, Point] = field(default_factory=dict)
    codes: dict[str, Point] = field(default_factory=dict)
    movers: set[str] = field(default_factory=set)
    needed: set[str] = field(default_factory=set)
    inputs: set[str] = field(default_factory=set)


def find_codes(draft: DialectDraft) -> CodeFlow:
    """Follow codes from where they are made to where they are used."""
    excluded: set[str] = set()
    while True:
        flow = _follow(draft, excluded)
        _find_needed(draft, flow)
        # An input that is also read as plain integers has to stay what it is.
        refused = flow.inputs & flow.needed
        if not refused:
            return flow
        excluded |= refused


def _follow(draft: DialectDraft, excluded: set[str]) -> CodeFlow:
    flow = CodeFlow()
    _seed(draft, flow, excluded)
    for node in draft.nodes.values():
        if is_operator(node, QUANTIZE):
            point = _quantizer(draft, node)
            if point is not None:
                flow.points[node.name] = flow.codes[node.output[0]] = point
        elif is_operator(node, DEQUANTIZE):
            point = _dequantizer(draft, node, flow)
            if point is not None:
                flow.points[node.name] = point
        else:
            _move(draft, node, flow)
    return flow


def _seed(draft: DialectDraft, flow: CodeFlow, excluded: set[str]) -> None:
    """Give codes that are inputs, or constants on which nodes work, the meaning of the first DequantizeLinear."""
    types = {value.name: by_number(value.type.tensor_type.elem_type) for value in draft.model.proto.graph.input}
    for node in draft.nodes.values():
        if not is_operator(node, DEQUANTIZE):
            continue
        root = _root(draft, node.input[0])
        constant = root in draft.constants
        if root in excluded or root in flow.codes or (constant and root == node.input[0]):
            continue
        element = draft.constants.element(root) if constant else types.get(root)
        if element is None or not _can_be_code(element):
            continue
        try:
            shape = draft.constants.shape(root) if constant else None
            flow.codes[root] = read_point(draft, node, known=element, shape=shape)
        except CannotRepresent:
            continue
        if not constant:
            flow.inputs.add(root)


# They take no integers of 8 or 16 bits; codes in front of them lack their DequantizeLinear.
_FLOAT_ONLY = frozenset({
    "Conv", "ConvTranspose", "Gemm", "MatMul", "BatchNormalization", "LayerNormalization", "AveragePool",
    "GlobalAveragePool", "Softmax", "Sigmoid", "Tanh", "HardSwish", "Gelu", "LeakyRelu",
})  # fmt: skip


def _can_be_code(element: OnnxType) -> bool:
    return "int" in element.dtype and element.bits <= _WIDEST_CODES


def _root(draft: DialectDraft, tensor: str) -> str:
    """Where codes come from: up through the nodes that only pass them on."""
    node = draft.producer(tensor)
    while node is not None and data_inputs(node) and node.input and tensor not in draft.constants:
        tensor = node.input[data_inputs(node)[0]]
        node = draft.producer(tensor)
    return tensor


def _quantizer(draft: DialectDraft, node: Any) -> Point | None:
    try:
        constant = node.input[0] in draft.constants
        return read_point(draft, node, shape=draft.constants.shape(node.input[0]) if constant else None)
    except CannotRepresent as reason:
        _leave(draft, node, reason)
        return None


def _dequantizer(draft: DialectDraft, node: Any, flow: CodeFlow) -> Point | None:
    source = node.input[0]
    try:
        if source in flow.codes:
            known = flow.codes[source]
            codes = _element(known) or code_type(draft, node, None)
            return read_point(draft, node, known=codes, shape=_quantized_shape(draft, source))
        if source in draft.constants:
            element, shape = draft.constants.element(source), draft.constants.shape(source)
            return read_point(draft, node, known=element, shape=shape)
        raise CannotRepresent(english("its integers are not codes of a known scale"))
    except CannotRepresent as reason:
        _leave(draft, node, reason)
        return None


def _quantized_shape(draft: DialectDraft, codes: str) -> tuple[int, ...] | None:
    """The shape of codes that are computed from a constant; None for others."""
    node = draft.producer(codes)
    if node is None or not is_operator(node, QUANTIZE) or node.input[0] not in draft.constants:
        return None
    return draft.constants.shape(node.input[0])


def _element(point: Point) -> OnnxType | None:
    return by_dtype(f"{'int' if point.spec.signed else 'uint'}{point.spec.bits}")


def _leave(draft: DialectDraft, node: Any, reason: CannotRepresent) -> None:
    text = message("graph.stays_float", op=node.op_type, node=node.name, why=str(reason))
    draft.odd("dynamic" if reason.dynamic else "not_represented", node.name, text)


def _move(draft: DialectDraft, node: Any, flow: CodeFlow) -> None:
    carried = [flow.codes.get(node.input[at]) for at in data_inputs(node) if at < len(node.input)]
    point = written_codes(draft, node, carried) if any(known is not None for known in carried) else None
    if point is not None:
        flow.movers.add(node.name)
        # TopK and MaxPool write indices too, Dropout a mask: only the first output of those is codes.
        written = node.output if node.op_type == "Split" else node.output[:1]
        flow.codes.update((name, point) for name in written if name)


def _find_needed(draft: DialectDraft, flow: CodeFlow) -> None:
    for node in reversed(draft.nodes.values()):
        if node.name in flow.points or reads_shape_only(node):
            continue
        if node.name not in flow.movers or any(name in flow.needed for name in node.output):
            flow.needed.update(name for name in reads(node) if name in flow.codes)
        if node.op_type in _FLOAT_ONLY and not node.domain:
            for name in node.input:
                if name in flow.codes:
                    key = "graph.codes_not_dequantized"
                    text = message(key, op=node.op_type, node=node.name, tensor=name)
                    draft.odd("disagreement", node.name, text)
