"""Which integer tensors of a model are codes with a known meaning, and where they are needed as integers."""

from dataclasses import dataclass, field
from typing import Any

from roundoff.graph.element_types import ElementType, by_dtype, by_number
from roundoff.graph.reading.draft import Draft
from roundoff.graph.reading.movers import data_inputs, only_looks, written_codes
from roundoff.graph.reading.points import (
    DEQUANTIZE,
    QUANTIZE,
    CannotRepresent,
    Point,
    code_type,
    is_operator,
    read_point,
)
from roundoff.graph.wiring import reads

__all__ = ["CodeFlow", "find_codes"]

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


def find_codes(draft: Draft) -> CodeFlow:
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


def _follow(draft: Draft, excluded: set[str]) -> CodeFlow:
    flow = CodeFlow()
    _seed(draft, flow, excluded)
    for node in draft.nodes:
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


def _seed(draft: Draft, flow: CodeFlow, excluded: set[str]) -> None:
    """Give codes that are inputs, or constants on which nodes work, the meaning of the first DequantizeLinear."""
    types = {value.name: by_number(value.type.tensor_type.elem_type) for value in draft.model.proto.graph.input}
    for node in draft.nodes:
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


def _can_be_code(element: ElementType) -> bool:
    return "int" in element.dtype and element.bits <= _WIDEST_CODES


def _root(draft: Draft, tensor: str) -> str:
    """Where codes come from: up through the nodes that only pass them on."""
    node = draft.producer(tensor)
    while node is not None and data_inputs(node) and node.input and tensor not in draft.constants:
        tensor = node.input[data_inputs(node)[0]]
        node = draft.producer(tensor)
    return tensor


def _quantizer(draft: Draft, node: Any) -> Point | None:
    try:
        constant = node.input[0] in draft.constants
        return read_point(draft, node, shape=draft.constants.shape(node.input[0]) if constant else None)
    except CannotRepresent as reason:
        _leave(draft, node, str(reason))
        return None


def _dequantizer(draft: Draft, node: Any, flow: CodeFlow) -> Point | None:
    source = node.input[0]
    try:
        if source in flow.codes:
            known = flow.codes[source]
            codes = _element(known) or code_type(draft, node, None)
            return read_point(draft, node, known=codes, shape=_quantized_shape(draft, source))
        if source in draft.constants:
            element, shape = draft.constants.element(source), draft.constants.shape(source)
            return read_point(draft, node, known=element, shape=shape)
        raise CannotRepresent("its integers are not codes of a known scale")
    except CannotRepresent as reason:
        _leave(draft, node, str(reason))
        return None


def _quantized_shape(draft: Draft, codes: str) -> tuple[int, ...] | None:
    """The shape of codes that are computed from a constant; None for others."""
    node = draft.producer(codes)
    if node is None or not is_operator(node, QUANTIZE) or node.input[0] not in draft.constants:
        return None
    return draft.constants.shape(node.input[0])


def _element(point: Point) -> ElementType | None:
    return by_dtype(f"{'int' if point.spec.signed else 'uint'}{point.spec.bits}")


def _leave(draft: Draft, node: Any, reason: str) -> None:
    kind = "dynamic" if "while the model runs" in reason else "not_represented"
    text = f"{node.op_type} {node.name!r} stays in the float model: {reason}"
    if all(oddity.text != text for oddity in draft.oddities):
        draft.odd("dynamic" if kind == "dynamic" else "not_represented", node.name, text)


def _move(draft: Draft, node: Any, flow: CodeFlow) -> None:
    carried = [flow.codes.get(node.input[at]) for at in data_inputs(node) if at < len(node.input)]
    point = written_codes(draft, node, carried) if any(known is not None for known in carried) else None
    if point is not None:
        flow.movers.add(node.name)
        # TopK and MaxPool write indices too, Dropout a mask: only the first output of those is codes.
        written = node.output if node.op_type == "Split" else node.output[:1]
        flow.codes.update((name, point) for name in written if name)


def _find_needed(draft: Draft, flow: CodeFlow) -> None:
    for node in reversed(draft.nodes):
        if node.name in flow.points or only_looks(node):
            continue
        if node.name not in flow.movers or any(name in flow.needed for name in node.output):
            flow.needed.update(name for name in reads(node) if name in flow.codes)
        if node.op_type in _FLOAT_ONLY and not node.domain:
            for name in node.input:
                if name in flow.codes:
                    text = f"{node.op_type} {node.name!r} reads the codes {name!r}, which nothing dequantizes"
                    draft.odd("disagreement", node.name, text)
