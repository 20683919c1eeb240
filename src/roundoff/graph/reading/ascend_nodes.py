"""Where a model of AMCT goes over to whole numbers and back: by nodes of its own, or by chains of plain ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.quantizer import Rounding
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.reading.constants import attribute
from roundoff.graph.reading.draft import Draft

__all__ = ["ToNumbers", "ToValues", "to_numbers", "to_values"]

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


def to_numbers(draft: Draft) -> Iterator[ToNumbers]:
    """Find every place where values become whole numbers."""
    for node in draft.nodes:
        if node.op_type in ("AscendQuant", "AscendQuantV2"):
            yield _ascend_quant(draft, node)
        elif node.op_type == "Round" and not node.domain:
            chain = _chain(draft, node)
            if chain is not None:
                yield chain


def _ascend_quant(draft: Draft, node: Any) -> ToNumbers:
    if node.op_type == "AscendQuant":
        given = attribute(node, "scale", 0.0)
        factor: Array = np.asarray(given if isinstance(given, float) else 0.0)
        offset = np.asarray(round(float(attribute(node, "offset", 0.0))))
    else:
        names = [name for name in node.input[1:3] if name]
        if not names or any(name not in draft.constants for name in names):
            raise BadInput(
                f"Node {node.name!r} ({node.op_type}) computes its scale while the model runs.",
                fix="quantize the model with fixed scales",
            )
        factor = np.squeeze(draft.constants.value(names[0]).astype(np.float64))
        offset = np.rint(draft.constants.value(names[1])) if len(names) > 1 else np.zeros(())
    if attribute(node, "sqrt_mode", 0):
        factor = factor * factor
    if not np.all((factor > 0) & np.isfinite(factor)):
        what = f"Node {node.name!r} ({node.op_type}) has the scale {attribute(node, 'scale')!r}."
        raise BadInput(what, fix="it must be one over the step of the codes; quantize the model again")
    step = np.asarray(1.0 / factor, dtype=np.float32)
    rounding = _ROUNDINGS.get(str(attribute(node, "round_mode", "Round")).upper())
    bits = _BITS.get(str(attribute(node, "dst_type", "INT8")).upper())
    if rounding is None or bits is None:
        unknown = attribute(node, "round_mode" if rounding is None else "dst_type")
        what = f"Node {node.name!r} ({node.op_type}) asks for {unknown!r}, which is not known."
        raise BadInput(what, fix="quantize the model to int8 with the usual rounding")
    axis = int(attribute(node, "axis", -1)) if step.ndim else None
    offset = np.broadcast_to(np.squeeze(offset), step.shape).astype(np.int64)
    return ToNumbers(node, node.input[0], node.output[0], step, offset, bits, rounding, axis)


def _chain(draft: Draft, node: Any) -> ToNumbers | None:
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


def _constant_operand(draft: Draft, node: Any, op_types: tuple[str, ...]) -> Array | None:
    """The constant operand of a node with one constant and one computed operand."""
    if node.op_type not in op_types or len(node.input) != 2:
        return None
    known = [name for name in node.input if name in draft.constants]
    commutes = node.op_type in ("Mul", "Add")
    if len(known) != 1 or (not commutes and known[0] != node.input[1]):
        return None
    return draft.constants.value(known[0])


def _clip_bits(draft: Draft, node: Any) -> int | None:
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


def to_values(draft: Draft, node: Any) -> ToValues | None:
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


def _ascend_dequant(draft: Draft, node: Any) -> ToValues:
    """The second input packs float32 scale, shift and weight offset into 64 bits, or is the scale itself."""
    name = node.input[1] if len(node.input) > 1 else ""
    if name not in draft.constants:
        what = f"Node {node.name!r} (AscendDequant) has no constant parameter."
        raise BadInput(what, fix="quantize the model again; it is not as AMCT writes it")
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
