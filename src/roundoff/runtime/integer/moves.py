"""Operations that move codes without computing anything: reshaping, slicing, padding, joining."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from roundoff.core.quantization import quantize
from roundoff.core.tensors import Array
from roundoff.runtime.integer.call import Call, IntegerKernel, NotInteger, Operand, Outcome
from roundoff.runtime.integer.composed import Clipped
from roundoff.runtime.integer.results import Coded, Move, Result, Wide, as_wide

__all__ = ["MOVE_KERNELS", "carried"]

# Whole numbers of these types are exact in float32; others are carried in float64.
_NARROW = (np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int16), np.dtype(np.uint16), np.dtype(np.float32))


def carried(call: Call, values: Array, *, at: int = 0, instead: dict[int, Array] | None = None) -> list[Array]:
    """What the node does to numbers of any type: they travel through it as floats, and come back.

    Args:
        call: The node; its other inputs must not be quantized.
        values: The numbers for its input `at`.
        at: Which input.
        instead: Other inputs to replace.
    """
    given = {index: operand.value for index, operand in enumerate(call.operands) if operand is not None}
    given[at] = values.astype(np.float32 if values.dtype in _NARROW else np.float64, copy=False)
    given |= instead or {}
    if not all(isinstance(value, np.ndarray) for value in given.values()):
        raise NotInteger("more than its first input is quantized")
    moved = call.run_in_float([given.get(index) for index in range(len(call.operands))])
    return [moved[0].astype(values.dtype, copy=False), *moved[1:]]


def _moved(call: Call, move: Move) -> Outcome:
    if call.outputs > 1:
        raise NotInteger("its second output is used")
    return call.operand(0).result.rearranged(move)


def _identity(call: Call) -> Outcome:
    return _moved(call, lambda values: [values])


def _transpose(call: Call) -> Outcome:
    order = call.attributes.get("perm")
    return _moved(call, lambda values: [values.transpose(order)])


def _reshape(call: Call) -> Outcome:
    """Reshape, Flatten, Squeeze, Unsqueeze: onnxruntime says what shape comes out."""
    result = call.operand(0).result
    # An array without elements of its own in memory stands for the data.
    shape = carried(call, np.broadcast_to(np.float32(0), result.shape))[0].shape
    return result.rearranged(lambda values: [values.reshape(shape)])


def _selected(call: Call) -> Outcome:
    """Slice, Gather, Tile and others whose outputs are elements of the first input."""

    def move(values: Array) -> list[Array]:
        return [part.astype(values.dtype, copy=False) for part in carried(call, values)]

    return call.operand(0).result.rearranged(move)


def _ordered(call: Call) -> Outcome:
    """MaxPool and others that choose by size: the largest code is that of the largest value."""
    values = call.operand(0).whole
    codes, *others = carried(call, values.codes)
    return [Coded(codes, values.params, values.spec.along(None)), *others]


def _pad(call: Call) -> Outcome:
    return [_padded(call, call.operand(0).result, _fill(call))]


def _padded(call: Call, result: Result, fill: float) -> Result:
    if isinstance(result, Clipped) and result.low <= fill <= result.high:
        return replace(result, inner=_padded(call, result.inner, fill))
    if isinstance(result, Coded) and result.whole:
        spec = result.spec.along(None)
        code = quantize(np.asarray(fill, np.float32), result.params, spec)
        return Coded(_with_margin(call, result.codes, code, fill), result.params, spec)
    wide = as_wide(result)
    if wide.scale.ndim == 0:
        amount = fill / float(wide.scale)
        total = _with_margin(call, wide.total.astype(np.float64, copy=False), np.array(amount), fill)
        return Wide(total, wide.scale, wide.integral and amount.is_integer())
    real = np.asarray(wide.real(), dtype=np.float64)
    return Wide(_with_margin(call, real, np.array(fill), fill), np.ones(()), integral=False)


def _with_margin(call: Call, values: Array, margin: Array, fill: float) -> Array:
    """Pad numbers; the node itself says where each comes from, and `fill` marks the places that are new."""
    start = np.floor(fill) + 1 if 0 <= fill < np.inf else 0.0
    places = np.arange(values.size, dtype=np.float64).reshape(values.shape) + start
    marked = {2: np.asarray(fill, dtype=np.float64)} if call.optional(2) is not None else None
    origin = carried(call, places, instead=marked)[0] - start
    new = ~((origin >= 0) & (origin < values.size))
    taken = values.reshape(-1)[np.where(new, 0, origin).astype(np.int64)] if values.size else margin
    return np.where(new, margin, taken).astype(values.dtype, copy=False)


def _fill(call: Call) -> float:
    operand = call.optional(2)
    if operand is None:
        return float(call.attributes.get("value", 0.0))
    if not operand.constant:
        raise NotInteger(f"its fill value {operand.name!r} is not constant")
    value = operand.value.real() if isinstance(operand.value, Result) else operand.value
    return float(value.reshape(()))


def _concat(call: Call) -> Outcome:
    operands = [operand for operand in call.operands if operand is not None]
    axis = int(call.attributes.get("axis", 0))
    results = [_joinable(operand) for operand in operands]
    first = results[0]
    if isinstance(first, Coded) and first.whole and all(_same_codes(first, other) for other in results[1:]):
        codes = np.concatenate([result.codes for result in results], axis)  # type: ignore[attr-defined]
        return [Coded(codes, first.params, first.spec.along(None))]
    wides = [as_wide(result) for result in results]
    total = np.concatenate([wide.total for wide in wides], axis)
    return [Wide(total, _joined_scale(wides, axis), all(wide.integral for wide in wides))]


def _joinable(operand: Operand) -> Result:
    if operand.plain is not None:
        return Wide(operand.plain.astype(np.float64), np.ones(()), integral=False)
    return operand.result


def _same_codes(first: Coded, other: Result) -> bool:
    return isinstance(other, Coded) and first.spec == other.spec and first.shares_scale(other.params, other.spec)


def _joined_scale(wides: Sequence[Wide], axis: int) -> Array:
    """One scale for each slice along the axis where the parts have one each, else one for each element."""
    shapes = [wide.shape for wide in wides]
    if all(wide.scale.ndim == 0 for wide in wides):
        shapes = [
            tuple(size if place == axis % len(shape) else 1 for place, size in enumerate(shape))
            for shape in shapes
        ]
    return np.concatenate(
        [np.broadcast_to(wide.scale, shape) for wide, shape in zip(wides, shapes, strict=True)], axis
    )


MOVE_KERNELS: Mapping[str, IntegerKernel] = (
    dict.fromkeys(("Identity", "Dropout"), _identity)
    | dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape)
    | dict.fromkeys(
        (
            "DepthToSpace",
            "Expand",
            "Gather",
            "GatherElements",
            "GatherND",
            "ReverseSequence",
            "Slice",
            "SpaceToDepth",
            "Split",
            "Tile",
        ),
        _selected,
    )
    | dict.fromkeys(("GlobalMaxPool", "MaxPool", "ReduceMax", "ReduceMin"), _ordered)
    | {"Concat": _concat, "Pad": _pad, "Transpose": _transpose}
)
