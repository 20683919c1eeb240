"""AMCT's models: AscendQuant and AscendDequant around integer layers, or the same with plain operators in float.

Between the two a layer computes with whole numbers: codes less their offset, and the codes of the weights. Here
activations are dequantized at once, weights and bias get a DequantizeLinear of their own, and what scaled the sums
of the layer falls away: the deploy model and both kinds of simulating models become the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roundoff.core.quantizers import Rounding
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.nodes import OnnxType, attribute, by_dtype, input_at
from roundoff.graph.readers.code_flow import data_inputs
from roundoff.graph.readers.points import Coding, DialectDraft, Rewriting
from roundoff.messages.message import english, message

# Where a model of AMCT goes over to whole numbers and back: by nodes of its own, or by chains of plain ones.

_BITS = {"INT4": 4, "INT8": 8, "INT16": 16, "29": 4, "2": 8, "6": 16}
_ROUNDINGS: dict[str, Rounding] = {"ROUND": "half_even", "RINT": "half_even", "FLOOR": "floor"}
_SCALE_BITS = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class ToNumbers:
    """Values become whole numbers.

    Attributes:
        node: The last node of it.
        source: The values.
        result: The whole numbers: codes, or codes less their offset.
        step: What the number 1 stands for, float32 of shape [] or [C].
        offset: The code of zero.
        bits: Width of the codes.
        rounding: How values are rounded.
        axis: Axis of the steps when there are several.
    """

    node: Any
    source: str
    result: str
    step: Array
    offset: Array
    bits: int
    rounding: Rounding = "half_even"
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class ToValues:
    """Whole numbers become values.

    Attributes:
        node: The node that does it.
        source: The numbers.
        step: What the number 1 stands for, float32 of shape [C]; C may be 1.
        shift: Bits by which sums are shifted right before.
        weight_offset: The code of zero of the weights that made the numbers.
        relu: Whether negative values become zero.
    """

    node: Any
    source: str
    step: Array
    shift: Array
    weight_offset: Array
    relu: bool = False


def to_numbers(draft: DialectDraft) -> Iterator[ToNumbers]:
    """Find every place where values become whole numbers."""
    for node in draft.nodes.values():
        if node.op_type in ("AscendQuant", "AscendQuantV2"):
            yield _ascend_quant(draft, node)
        elif node.op_type == "Round" and not node.domain:
            chain = _chain(draft, node)
            if chain is not None:
                yield chain


def _ascend_quant(draft: DialectDraft, node: Any) -> ToNumbers:
    if node.op_type == "AscendQuant":
        given = attribute(node, "scale", 0.0)
        factor: Array = np.asarray(given if isinstance(given, float) else 0.0)
        offset = np.asarray(round(float(attribute(node, "offset", 0.0))))
    else:
        names = [name for name in node.input[1:3] if name]
        if not names or any(name not in draft.constants for name in names):
            raise BadInput(
                english(
                    "Node {name!r} ({op_type}) computes its scale while the model runs.",
                    name=node.name,
                    op_type=node.op_type,
                ),
                fix=english("quantize the model with fixed scales"),
            )
        factor = np.squeeze(draft.constants.value(names[0]).astype(np.float64))
        offset = np.rint(draft.constants.value(names[1])) if len(names) > 1 else np.zeros(())
    if attribute(node, "sqrt_mode", 0):
        factor = factor * factor
    if not np.all((factor > 0) & np.isfinite(factor)):
        what = english(
            "Node {name!r} ({op_type}) has the scale {attribute!r}.",
            name=node.name,
            op_type=node.op_type,
            attribute=attribute(node, "scale"),
        )
        raise BadInput(what, fix=english("it must be one over the step of the codes; quantize the model again"))
    step = np.asarray(1.0 / factor, dtype=np.float32)
    rounding = _ROUNDINGS.get(str(attribute(node, "round_mode", "Round")).upper())
    bits = _BITS.get(str(attribute(node, "dst_type", "INT8")).upper())
    if rounding is None or bits is None:
        unknown = attribute(node, "round_mode" if rounding is None else "dst_type")
        what = english(
            "Node {name!r} ({op_type}) asks for {unknown!r}, which is not known.",
            name=node.name,
            op_type=node.op_type,
            unknown=unknown,
        )
        raise BadInput(what, fix=english("quantize the model to int8 with the usual rounding"))
    axis = int(attribute(node, "axis", -1)) if step.ndim else None
    offset = np.broadcast_to(np.squeeze(offset), step.shape).astype(np.int64)
    return ToNumbers(node, node.input[0], node.output[0], step, offset, bits, rounding, axis)


def _chain(draft: DialectDraft, node: Any) -> ToNumbers | None:
    """Mul (or Div), Round, Add, Clip, Sub by constants; the offset may be left out."""
    scaling = draft.producer(node.input[0])
    factor = None if scaling is None else _constant_operand(draft, scaling, ("Mul", "Div"))
    if scaling is None or factor is None or factor.size != 1 or draft.only_reader(node.input[0]) is None:
        return None
    step = float(factor.ravel()[0]) if scaling.op_type == "Div" else 1.0 / float(factor.ravel()[0] or np.inf)
    last, offset = draft.only_reader(node.output[0]), 0.0
    if last is not None and last.op_type == "Add":
        added = _constant_operand(draft, last, ("Add",))
        offset = 0.0 if added is None else float(added.ravel()[0])
        last = draft.only_reader(last.output[0])
    bits = None if last is None else _clip_bits(draft, last)
    if bits is None or not (step > 0 and np.isfinite(step)):
        return None
    following = draft.only_reader(last.output[0])
    taken = None if following is None else _constant_operand(draft, following, ("Sub",))
    if taken is not None and float(taken.ravel()[0]) == offset:
        last = following
    elif offset:
        return None
    values = next(name for name in scaling.input if name not in draft.constants)
    return ToNumbers(
        last, values, last.output[0], np.asarray(step, np.float32), np.asarray(round(offset), np.int64), bits
    )


def _constant_operand(draft: DialectDraft, node: Any, op_types: tuple[str, ...]) -> Array | None:
    """The constant operand of a node with one constant and one computed operand."""
    if node.op_type not in op_types or len(node.input) != 2:
        return None
    known = [name for name in node.input if name in draft.constants]
    commutes = node.op_type in ("Mul", "Add")
    if len(known) != 1 or (not commutes and known[0] != node.input[1]):
        return None
    return draft.constants.value(known[0])


def _clip_bits(draft: DialectDraft, node: Any) -> int | None:
    """How many bits the limits of a Clip leave for signed numbers."""
    if node.op_type != "Clip":
        return None
    names = [*node.input[1:3], "", ""][:2]
    if any(name and name not in draft.constants for name in names):
        return None
    low, high = (
        float(draft.constants.value(name).ravel()[0]) if name else attribute(node, key)
        for name, key in zip(names, ("min", "max"), strict=True)
    )
    return next(
        (bits for bits in (4, 8, 16) if (low, high) == (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1)), None
    )


def to_values(draft: DialectDraft, node: Any) -> ToValues | None:
    """What a node says of the numbers it turns into values; None when it is no such node."""
    if node.op_type == "AscendDequant":
        return _ascend_dequant(draft, node)
    if node.op_type == "AscendAntiQuant":
        given = attribute(node, "scale", 1.0)
        step = np.float64(given if isinstance(given, float) else 1.0)
        step = step * step if attribute(node, "sqrt_mode", 0) else step
        return _to_values(node, node.input[0], np.asarray([step], np.float32))
    factor = _constant_operand(draft, node, ("Mul",))
    if factor is None:
        return None
    numbers = next(name for name in node.input if name not in draft.constants)
    return _to_values(node, numbers, factor.astype(np.float32).ravel())


def _to_values(node: Any, source: str, step: Array) -> ToValues:
    nothing = np.zeros(step.shape, np.int64)
    return ToValues(node, source, step, nothing, nothing)


def _ascend_dequant(draft: DialectDraft, node: Any) -> ToValues:
    """The second input packs float32 scale, shift and weight offset into 64 bits, or is the scale itself."""
    name = input_at(node, 1)
    if name not in draft.constants:
        what = english("Node {name!r} (AscendDequant) has no constant parameter.", name=node.name)
        raise BadInput(what, fix=english("quantize the model again; it is not as AMCT writes it"))
    packed = draft.constants.value(name).ravel()
    if packed.dtype.kind == "f":
        found = _to_values(node, node.input[0], packed.astype(np.float32))
    else:
        bits = packed.astype(np.uint64)
        step = (bits & np.uint64(_SCALE_BITS)).astype(np.uint32).view(np.float32)
        shift = ((bits >> np.uint64(32)) & np.uint64(0xFF)).astype(np.int64)
        offset = ((bits >> np.uint64(40)) & np.uint64(0xFF)).astype(np.uint8).view(np.int8).astype(np.int64)
        found = ToValues(node, node.input[0], step, shift, offset)
    step = found.step * found.step if attribute(node, "sqrt_mode", 0) else found.step
    relu = bool(attribute(node, "relu_flag", 0))
    return ToValues(node, found.source, step, found.shift, found.weight_offset, relu)


_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# What they compute from numbers with a step is the same with values, but for that step.
_LINEAR = ("AveragePool", "GlobalAveragePool", "Relu", "ReduceMean", "LeakyRelu")
_OWN = ("AscendQuant", "AscendQuantV2", "AscendDequant", "AscendAntiQuant")
_REFUSED = ("AscendRequant", "AscendRequantS16", "AscendDequantS16")
_SCALE_TOLERANCE = 1e-5
"""Two float32 products of the same scales in another order differ by less."""


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Whole numbers on their way.

    Attributes:
        origin: Where they come from.
        step: What 1 stood for before the layer.
        layer: The layer with constant weights that they went through.
        biases: Node and input of what was added to them.
    """

    origin: ToNumbers
    step: Array
    layer: Any = None
    biases: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class _ConstantCodes:
    """Codes that take the place of a constant input.

    Attributes:
        origin: Name of the node that made the numbers they are for.
        codes: The codes.
        scale: Their scale, of shape [] or [C].
        zero_point: Of the same shape.
        axis: Axis of the slices.
        element: Type of the codes.
    """

    origin: str
    codes: Array
    scale: Array
    zero_point: Array
    axis: int | None
    element: OnnxType


def rewrite_ascend(draft: DialectDraft) -> None:
    """Replace what goes over to whole numbers and back by QuantizeLinear and DequantizeLinear.

    Raises:
        BadInput: A node that only AMCT writes is used in a way that cannot be followed.
    """
    own = any(node.op_type in (*_OWN, *_REFUSED) for node in draft.nodes.values())
    if not own and not any(node.op_type == "Round" for node in draft.nodes.values()):
        return
    for node in draft.nodes.values():
        if node.op_type in _REFUSED:
            raise BadInput(
                english(
                    "Node {name!r} is {op_type}, of a compiled model in which scales are merged.",
                    name=node.name,
                    op_type=node.op_type,
                ),
                fix=english("give the deploy or fake-quant model that AMCT wrote before it was compiled"),
            )
    following = _Following(draft)
    following.run()
    following.write()


class _Following:
    """Follows whole numbers through a model."""

    def __init__(self, draft: DialectDraft) -> None:
        self._draft = draft
        self._starts = {start.node.name: start for start in to_numbers(draft)}
        self._numbers: dict[str, _Numbers] = {}
        self._ends: dict[str, ToValues] = {}
        self._constants: dict[tuple[str, int], _ConstantCodes] = {}

    def run(self) -> None:
        for node in self._draft.nodes.values():
            start = self._starts.get(node.name)
            if start is not None:
                self._numbers[start.result] = _Numbers(start, start.step)
            elif any(name in self._numbers for name in node.input):
                self._pass(node)
        for output, tensor in self._draft.outputs.items():
            if tensor in self._numbers:
                self._lost(self._numbers[tensor], english("output {output!r}", output=output))

    def _pass(self, node: Any) -> None:
        incoming = {at: self._numbers[name] for at, name in enumerate(node.input) if name in self._numbers}
        first = next(iter(incoming.values()))
        end = to_values(self._draft, node)
        if end is not None:
            self._end(node, first, end)
        elif node.op_type in _LAYERS:
            self._numbers[node.output[0]] = self._layer(node, incoming)
        elif node.op_type in _LINEAR or data_inputs(node):
            self._numbers.update((name, first) for name in node.output if name)
        elif node.op_type == "Add" and len(incoming) == 1:
            constant = 1 - next(iter(incoming))
            if node.input[constant] not in self._draft.constants:
                self._lost(first, english("node {name!r} ({op_type})", name=node.name, op_type=node.op_type))
                return
            self._numbers[node.output[0]] = replace(first, biases=(*first.biases, (node.name, constant)))
        else:
            self._lost(first, english("node {name!r} ({op_type})", name=node.name, op_type=node.op_type))

    def _lost(self, numbers: _Numbers, where: str) -> None:
        """Chains of plain operators may be anything; AMCT's own nodes have to be understood."""
        start = numbers.origin
        if start.node.op_type in _OWN:
            raise BadInput(
                english(
                    "What {name!r} ({op_type}) writes reaches {where} and is not dequantized.",
                    name=start.node.name,
                    op_type=start.node.op_type,
                    where=where,
                ),
                fix=english("give the deploy or fake-quant model as AMCT wrote it"),
            )
        self._starts.pop(start.node.name, None)

    def _layer(self, node: Any, incoming: dict[int, _Numbers]) -> _Numbers:
        first = next(iter(incoming.values()))
        if 0 in incoming and 1 in incoming:
            return replace(first, step=np.asarray(incoming[0].step * incoming[1].step))
        if first.layer is not None:
            self._lost(first, english("a second layer, {name!r},", name=node.name))
        biases = first.biases
        if node.op_type != "MatMul" and len(node.input) > 2 and node.input[2]:
            biases = (*biases, (node.name, 2))
        return replace(first, layer=node, biases=biases)

    def _end(self, node: Any, numbers: _Numbers, end: ToValues) -> None:
        self._ends[node.name] = end
        if numbers.layer is None:
            expected = numbers.step.ravel()
            if end.step.size != 1 or not np.allclose(end.step, expected, rtol=_SCALE_TOLERANCE):
                start = numbers.origin.node
                self._draft.odd(
                    "disagreement",
                    numbers.origin.source,
                    message(
                        "graph.scale_differs",
                        first=start.name,
                        tensor=numbers.origin.source,
                        scale=float(expected[0]),
                        second=node.name,
                        other=float(end.step.ravel()[0]),
                    ),
                )
        else:
            self._weights(numbers, end)
        if np.any(end.shift):
            text = message("graph.shifted", node=node.name, bits=int(end.shift.max()))
            self._draft.odd("not_represented", node.name, text)

    def _weights(self, numbers: _Numbers, end: ToValues) -> None:
        """Give the weights of a layer, and what is added to its sums, the scales that follow from those around."""
        layer = numbers.layer
        at = 0 if layer.input[0] in self._draft.constants else 1
        codes, zero_point = self._codes(layer, at)
        scale = (end.step.astype(np.float64) / numbers.step.astype(np.float64)).astype(np.float32)
        whole = scale.size == 1
        shape = () if whole else (-1,)
        zero_point = np.broadcast_to(zero_point + end.weight_offset, scale.shape)
        width = 4 if numbers.origin.bits == 4 and codes.min(initial=0) >= -8 and codes.max(initial=0) <= 7 else 8
        self._constants[layer.name, at] = _ConstantCodes(
            numbers.origin.node.name,
            codes,
            scale.reshape(shape),
            zero_point.reshape(shape),
            None if whole else _weight_axis(layer, at),
            _element(codes, width),
        )
        for name, position in numbers.biases:
            node = self._draft.nodes[name]
            sums, _ = self._codes(node, position)
            zeros = np.zeros(scale.shape, np.int64).reshape(shape)
            self._constants[name, position] = _ConstantCodes(
                numbers.origin.node.name,
                sums,
                end.step.reshape(shape),
                zeros,
                None if whole else 0,
                _element(sums, 32),
            )

    def _codes(self, node: Any, at: int) -> tuple[Array, Array]:
        """The codes that a constant input holds, in whichever type, and their zero point."""
        draft, name = self._draft, node.input[at]
        maker = draft.producer(name)
        zero_point = np.zeros(1, np.int64)
        if maker is not None and maker.op_type == "AscendWeightQuant":
            name = maker.input[0]
            if len(maker.input) > 1 and maker.input[1] in draft.constants:
                zero_point = draft.constants.value(maker.input[1]).ravel().astype(np.int64)
        values = draft.constants.value(name) if name in draft.constants else None
        if values is None or np.any(values != np.rint(values.astype(np.float64))):
            raise BadInput(
                english(
                    "Input {at} of node {name!r} ({op_type}) should be whole numbers between a quantizer "
                    "and its counterpart, and is not.",
                    at=at,
                    name=node.name,
                    op_type=node.op_type,
                ),
                fix=english("give the deploy or fake-quant model as AMCT wrote it"),
            )
        return values, zero_point

    def write(self) -> None:
        rewriting = Rewriting(self._draft)
        for node in self._draft.nodes.values():
            start, end = self._starts.get(node.name), self._ends.get(node.name)
            if start is not None:
                self._write_start(rewriting, start)
            elif end is not None and self._starts.get(self._numbers[end.source].origin.node.name) is not None:
                if end.relu:
                    rewriting.add(
                        "Relu", [rewriting.current(end.source)], node.output[0], name=f"{node.name}.relu"
                    )
                else:
                    rewriting.rename(node.output[0], end.source)
            else:
                self._write_layer(rewriting, node)
        rewriting.finish()

    def _write_start(self, rewriting: Rewriting, start: ToNumbers) -> None:
        draft = self._draft
        element = by_dtype(f"int{start.bits}")
        scale = draft.add_constant(start.step, f"{start.node.name}.scale")
        zero = draft.add_constant(start.offset, f"{start.node.name}.offset", element)
        coding = Coding(scale, zero, axis=start.axis, rounding=start.rounding)
        codes = rewriting.quantize(rewriting.current(start.source), coding)
        rewriting.dequantize(codes, coding, start.result)

    def _write_layer(self, rewriting: Rewriting, node: Any) -> None:
        draft = self._draft
        places = {at: self._constants[node.name, at] for at in range(len(node.input)) if self._of(node, at)}
        inputs = {}
        for at, constant in places.items():
            name = node.input[at]
            codes = draft.add_constant(constant.codes, f"{name}_quantized", constant.element)
            scale = draft.add_constant(constant.scale, f"{name}_scale")
            zero = draft.add_constant(constant.zero_point, f"{name}_zero_point", constant.element)
            inputs[at] = rewriting.dequantize(codes, Coding(scale, zero, axis=constant.axis))
        kept = rewriting.keep(node)
        if inputs:
            copy = type(node)()
            copy.CopyFrom(kept)
            for at, name in inputs.items():
                copy.input[at] = name
            rewriting.replace_last(copy)

    def _of(self, node: Any, at: int) -> bool:
        constant = self._constants.get((node.name, at))
        return constant is not None and constant.origin in self._starts


def _weight_axis(layer: Any, at: int) -> int:
    if layer.op_type == "Gemm":
        return 0 if attribute(layer, "transB", 0) else 1
    if layer.op_type == "MatMul":
        return -1 if at == 1 else -2
    return 1 if layer.op_type == "ConvTranspose" else 0


def _element(codes: Array, bits: int) -> OnnxType:
    low, high = (float(codes.min()), float(codes.max())) if codes.size else (0.0, 0.0)
    if low < -(1 << (bits - 1)) or high > (1 << (bits - 1)) - 1:
        bits = 16 if bits < 16 else 64
    found = by_dtype(f"int{bits}")
    if found is None:
        raise BadInput(
            english("Codes of {bits} bits cannot be held.", bits=bits), fix=english("quantize the model again")
        )
    return found
