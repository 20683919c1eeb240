"""From a graph with QuantizeLinear and DequantizeLinear to a float graph and the quantizers that were in it."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from roundoff.core.quantizers import Consumer, Rounding
from roundoff.graph.nodes import attribute, by_number, free_name, reads
from roundoff.graph.readers.code_flow import (
    CodeFlow,
    data_inputs,
    find_codes,
    is_code_clip,
    moved_constants,
    reads_shape_only,
)
from roundoff.graph.readers.points import DEQUANTIZE, QUANTIZE, DialectDraft, Point, is_operator, limited
from roundoff.messages.message import message


@dataclass(slots=True, eq=False)
class Stage:
    """A quantizer under construction.

    Attributes:
        name: What it will be called.
        tensor: What it quantizes, in the float graph.
        point: How.
        before: The one whose result it quantizes again.
        consumers: The node inputs that see its result.
        output: Whether its result leaves the network.
        codes: The constant that holds the codes of its tensor, which then has its values from them.
    """

    name: str
    tensor: str
    point: Point
    before: "Stage | None" = None
    consumers: list[Consumer] = field(default_factory=list)
    output: bool = False
    codes: str = ""


@dataclass(frozen=True, slots=True)
class Wire:
    """Float values: those of a tensor of the float graph, quantized by a stage (and those before it) if any."""

    tensor: str
    stage: Stage | None = None


@dataclass(slots=True, eq=False)
class CodeWire:
    """Integers that stand for values.

    Attributes:
        source: The values before they were quantized.
        point: How they were.
        name: Name for the quantizer that is made when the codes are used.
        exact: The values are on the codes' grid already: quantizing them changes nothing.
        stage: The quantizer, once it is made.
    """

    source: Wire
    point: Point
    name: str
    exact: bool = False
    stage: Stage | None = None


class StageList(list[Stage]):
    """All quantizers found so far, in the order in which they are first used."""

    def __init__(self) -> None:
        super().__init__()
        self._names: set[str] = set()
        self._of_codes: dict[str, list[Stage]] = {}

    def add(self, name: str, tensor: str, point: Point, *, codes: str = "") -> Stage:
        """Begin a quantizer, under a name that is free."""
        stage = Stage(free_name(name, self._names), tensor, point, codes=codes)
        self.append(stage)
        if codes:
            self._of_codes.setdefault(codes, []).append(stage)
        return stage

    def of_codes(self, codes: str, point: Point) -> Stage | None:
        """The quantizer of a constant of which only the codes are there, if it is known already."""
        return next((stage for stage in self._of_codes.get(codes, ()) if stage.point.same(point)), None)


# Names for values of which a quantized model has only the codes: what they probably were called before.

_ENDINGS = ("_quantized", "_codes", "_quant", "_int8")


class ValueNames:
    """Gives names that no tensor of the float graph has."""

    def __init__(self, draft: DialectDraft, flow: CodeFlow) -> None:
        self._draft = draft
        graph = draft.model.proto.graph
        self._taken = {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
        for node in draft.nodes.values():
            # The results of quantizers vanish, unless something needs the integers.
            if node.name not in flow.points or node.output[0] in flow.needed:
                self._taken.update(node.output)

    def of_constant(self, codes: str, dequantized: str) -> str:
        """A name for the values of constant codes.

        Args:
            codes: Name of the codes.
            dequantized: What the values are called where they are dequantized.
        """
        for wanted in (_without_ending(codes), dequantized):
            if wanted != codes and wanted not in self._taken:
                self._taken.add(wanted)
                return wanted
        name = self._draft.free_tensor(f"{codes}_float")
        self._taken.add(name)
        return name

    def of_computed(self, codes: str) -> str:
        """A name for values that were computed as codes."""
        wanted = _without_ending(codes)
        if wanted in self._taken:
            return codes
        self._taken.add(wanted)
        return wanted


def _without_ending(codes: str) -> str:
    return next((codes.removesuffix(end) for end in _ENDINGS if codes.endswith(end)), codes)


# What `roundoff.graph.qdq` writes around a QuantizeLinear that the operator alone cannot do, read back.

_ENDING = f"_{QUANTIZE}"
_CAST = "to_float32"


def absorbed(draft: DialectDraft, node: Any, point: Point) -> tuple[str, Point]:
    """What a QuantizeLinear and the nodes written in front of it for its sake quantize, and how.

    Args:
        draft: The model.
        node: The QuantizeLinear.
        point: What it says alone.
    """
    tensor = node.input[0]
    if not node.name.endswith(_ENDING):
        return tensor, point
    prefix = node.name.removesuffix(_ENDING) + "_"
    seen: dict[str, Any] = {}
    producer = draft.producer(tensor)
    while producer is not None and producer.name.startswith(prefix) and _is_ours(producer.name, prefix):
        seen[producer.name.removeprefix(prefix)] = producer
        tensor = producer.input[0]
        producer = draft.producer(tensor)
    if not seen:
        return tensor, point
    found = _limited(draft, seen, replace(point, spec=replace(point.spec, rounding=_rounding(seen))))
    return (node.input[0], point) if found is None else (tensor, found)


def is_cast_back(node: Any, source: Wire | CodeWire | None) -> bool:
    """Whether a node only brings the result of a quantizer back to the type of its tensor."""
    stage = source.stage if isinstance(source, Wire) else None
    return stage is not None and node.op_type == "Cast" and node.name == f"{stage.name}_Cast_back"


def cast_back(node: Any, source: Wire | CodeWire) -> Wire | CodeWire:
    """What such a node gives; a constant of which only the codes are there gets the type of its tensor by it."""
    stage = source.stage
    stored = by_number(attribute(node, "to", 0))
    if stage is not None and stage.codes and stored is not None:
        stage.point = replace(stage.point, values=stored.dtype)
    return source


def _is_ours(name: str, prefix: str) -> bool:
    return name.removeprefix(prefix).startswith(("Clip", "Round_", _CAST))


def _rounding(seen: dict[str, Any]) -> Rounding:
    if "Round_signed" in seen:
        return "half_away"
    if "Round_whole" in seen:
        return "half_up"
    return "floor" if "Round_floor" in seen else "half_even"


def _limited(draft: DialectDraft, seen: dict[str, Any], point: Point) -> Point | None:
    """What a Clip in front leaves of the codes; None when its limits are those of no codes."""
    low, high = _bounds(draft, seen)
    if low is None or high is None:
        return point
    scale, zero = float(point.params.scale.ravel()[0]), int(point.params.zero_point.ravel()[0])
    codes = [round(bound / scale) + zero for bound in (low, high)]
    bounds = zip(codes, (low, high), strict=True)
    exact = all(np.float32((code - zero) * scale) == np.float32(bound) for code, bound in bounds)
    return limited(point, *codes) if exact else None


def _bounds(draft: DialectDraft, seen: dict[str, Any]) -> tuple[float | None, float | None]:
    clip, lower, upper = seen.get("Clip"), seen.get("Clip_Max"), seen.get("Clip_Min")
    if clip is not None and len(clip.input) > 2:
        return _first(draft, clip.input[1]), _first(draft, clip.input[2])
    if clip is not None:
        return attribute(clip, "min"), attribute(clip, "max")
    if lower is not None and upper is not None:
        return _first(draft, lower.input[1]), _first(draft, upper.input[1])
    return None, None


def _first(draft: DialectDraft, name: str) -> float | None:
    return float(draft.constants.value(name).ravel()[0]) if name in draft.constants else None


_SUFFIXES = (f"_{QUANTIZE}", f"_{DEQUANTIZE}")


class Extraction:
    """Takes the quantizers out of a graph.

    Attributes:
        draft: The quantized model, in Q/DQ form.
        nodes: The nodes of the float graph, in execution order; some may be of no use any more.
        stages: The quantizers.
        leaving: For each output of the network the tensor of the float graph that it is.
        inputs: Inputs that were codes and are values now.
    """

    def __init__(self, draft: DialectDraft) -> None:
        self.draft = draft
        self.nodes: list[Any] = []
        self.stages = StageList()
        self.leaving: dict[str, str] = {}
        self._wires: dict[str, Wire | CodeWire] = {}
        self._flow: CodeFlow = find_codes(draft)
        self.inputs = self._flow.inputs
        self._computed: set[str] = set()
        self._fed = {value.name for value in draft.model.proto.graph.input}
        self._value_names = ValueNames(draft, self._flow)

    def run(self) -> None:
        """Do it."""
        for name in sorted(self._flow.inputs):
            self._wires[name] = CodeWire(Wire(name), self._flow.codes[name], name)
            self.draft.odd("interface", name, message("graph.input_codes", name=name))
        for node in self.draft.nodes.values():
            self._take(node)
        self._computed = {name for node in self.nodes for name in node.output}
        for output, tensor in self.draft.outputs.items():
            self._leave(output, tensor)

    def _take(self, node: Any) -> None:
        point = self._flow.points.get(node.name)
        if point is not None and is_operator(node, QUANTIZE):
            source, point = absorbed(self.draft, node, point)
            wire = self._wire(source)
            self._wires[node.output[0]] = CodeWire(wire, point, _called(node, wire.tensor))
            if node.output[0] in self._flow.needed:
                self._copy(node)
        elif point is not None:
            self._dequantize(node, point)
        elif node.name in self._flow.movers:
            self._move(node)
        elif is_cast_back(node, self._wires.get(node.input[0] if node.input else "")):
            self._wires[node.output[0]] = cast_back(node, self._wires[node.input[0]])
        else:
            if node.op_type == "Identity" and node.output[0] in self.draft.constants:
                self._wires[node.output[0]] = Wire(self.draft.constants.origin(node.output[0]))
            self._copy(node)

    def _wire(self, tensor: str) -> Wire:
        known = self._wires.get(tensor)
        return known if isinstance(known, Wire) else Wire(tensor)

    def _dequantize(self, node: Any, point: Point) -> None:
        known = self._wires.get(node.input[0])
        if isinstance(known, CodeWire):
            if not known.point.same(point):
                self._disagree(node, known, point)
            self._wires[node.output[0]] = self._values(known)
        else:
            stage = self._stage_of_codes(node, point)
            self._wires[node.output[0]] = Wire(stage.tensor, stage)

    def _disagree(self, node: Any, codes: CodeWire, point: Point) -> None:
        self.draft.odd(
            "disagreement",
            codes.source.tensor,
            message(
                "graph.pair_differs",
                tensor=codes.source.tensor,
                quantized=codes.point.describe(),
                node=node.name,
                dequantized=point.describe(),
            ),
        )

    def _values(self, codes: CodeWire) -> Wire:
        """The values that codes stand for; makes their quantizer when there is none yet."""
        if codes.exact:
            return codes.source
        if codes.stage is None:
            codes.stage = self.stages.add(codes.name, codes.source.tensor, codes.point)
            codes.stage.before = codes.source.stage
        return Wire(codes.source.tensor, codes.stage)

    def _stage_of_codes(self, node: Any, point: Point) -> Stage:
        """The quantizer of a constant of which only the codes are there."""
        codes = self.draft.constants.origin(node.input[0])
        stage = self.stages.of_codes(codes, point)
        if stage is None:
            tensor = self._value_names.of_constant(codes, node.output[0])
            stage = self.stages.add(_called(node, tensor), tensor, point, codes=codes)
        return stage

    def _move(self, node: Any) -> None:
        """A node that works on codes works on the values instead."""
        data = [self._codes_of(node, at) for at in data_inputs(node)]
        first = data[0]
        clipped = None if first.exact else self._clipped(node, first)
        if clipped is not None:
            self._wires[node.output[0]] = clipped
            return
        for at, codes in zip(data_inputs(node), data, strict=True):
            self._wires[node.input[at]] = codes
        if node.op_type == "Cast":
            self._wires[node.output[0]] = first
        else:
            self._move_values(node, first.point)

    def _move_values(self, node: Any, point: Point) -> None:
        needed = any(name in self._flow.needed for name in node.output)
        if needed:
            self._copy(node)
        copy = self._copy(node, values=True, name=self.draft.free_node(node.name) if needed else node.name)
        for at, value in moved_constants(self.draft, node, point).items():
            name = self.draft.add_constant(np.asarray(value, dtype=point.values), f"{node.name}_value")
            copy.input.extend([""] * (at + 1 - len(copy.input)))
            copy.input[at] = name
        for at, name in enumerate(node.output):
            if name in self._flow.codes:
                copy.output[at] = self.draft.free_tensor(name) if needed else self._value_names.of_computed(name)
                self._wires[name] = CodeWire(Wire(copy.output[at]), point, copy.output[at], exact=True)
            elif needed and name:
                copy.output[at] = self.draft.free_tensor(name)

    def _codes_of(self, node: Any, at: int) -> CodeWire:
        known = self._wires.get(node.input[at])
        if isinstance(known, CodeWire):
            return known
        # Codes that are a constant.
        point = self._flow.codes[node.input[at]]
        plain = self.draft.constants.origin(node.input[at])
        tensor = self._value_names.of_constant(plain, f"{plain}_dequantized")
        stage = self.stages.add(tensor, tensor, point, codes=plain)
        return CodeWire(Wire(tensor), point, tensor, stage=stage)

    def _clipped(self, node: Any, codes: CodeWire) -> CodeWire | None:
        """Codes of fewer bits: quantized to a wider type, and then limited to what they may be."""
        limits = is_code_clip(self.draft, node, codes.point.spec)
        point = None if limits is None else limited(codes.point, *limits)
        return None if point is None else CodeWire(codes.source, point, codes.name)

    def _copy(self, node: Any, *, values: bool = False, name: str = "") -> Any:
        """Add a node that reads float values where it read dequantized ones, or also where it read codes."""
        copy = type(node)()
        copy.CopyFrom(node)
        copy.name = name or node.name
        for at, tensor in enumerate(node.input):
            known = self._wires.get(tensor)
            if isinstance(known, CodeWire) and (values or reads_shape_only(node)):
                known = self._values(known)
            if isinstance(known, Wire):
                copy.input[at] = known.tensor
                if known.stage is not None:
                    known.stage.consumers.append(Consumer(copy.name, at))
        for tensor in reads(node):
            known = self._wires.get(tensor)
            if tensor not in node.input and isinstance(known, Wire):
                self._name_for_subgraph(tensor, known)
        self.nodes.append(copy)
        return copy

    def _name_for_subgraph(self, name: str, wire: Wire) -> None:
        """Keep the name of a dequantized tensor that a subgraph takes from outside."""
        self._pass_on(wire, name)
        self._wires.pop(name)

    def _pass_on(self, wire: Wire, name: str) -> None:
        from onnx.helper import make_node

        node = make_node("Identity", [wire.tensor], [name], name=self.draft.free_node(f"{name}_Identity"))
        if wire.stage is not None:
            wire.stage.consumers.append(Consumer(node.name, 0))
        self.nodes.append(node)

    def _leave(self, output: str, tensor: str) -> None:
        """Find, or make, the tensor of the float graph that an output is."""
        known = self._wires.get(tensor)
        if isinstance(known, CodeWire):
            if tensor in self._flow.needed or output in self._fed:
                return
            self.draft.odd("interface", output, message("graph.output_codes", name=output))
            known = self._values(known)
        if known is None:
            known = Wire(tensor)
        if known == Wire(output) or output in self._computed:
            return
        elsewhere = known.tensor in self.draft.outputs and known.tensor != output
        if known.tensor not in self._computed or known.tensor in self.leaving.values() or elsewhere:
            self._pass_on(known, output)
        else:
            self.leaving[output] = known.tensor
            if known.stage is not None:
                known.stage.output = True


def _called(node: Any, tensor: str) -> str:
    """A name for a quantizer, as it was inserted under if that is to be seen."""
    for suffix in _SUFFIXES:
        if node.name.endswith(suffix) and node.name != suffix:
            return str(node.name.removesuffix(suffix))
    return tensor
