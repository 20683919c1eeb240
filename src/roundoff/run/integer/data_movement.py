"""Operations that move codes without computing anything: reshaping, slicing, padding, joining."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from roundoff.core.quantizers import quantize
from roundoff.core.tensors import Array
from roundoff.messages.message import english
from roundoff.run.integer.call import IntegerKernel, KernelCall, KernelResult, NotInteger, Operand
from roundoff.run.integer.convolution import Geometry, pad_spatial
from roundoff.run.integer.elementwise import Clipped, CodeMean
from roundoff.run.integer.results import Coded, Move, Result, Wide, as_wide

# Whole numbers of these types are exact in float32; others are carried in float64.
_NARROW = (np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int16), np.dtype(np.uint16), np.dtype(np.float32))


def carried(
    call: KernelCall, values: Array, *, at: int = 0, instead: dict[int, Array] | None = None
) -> list[Array]:
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
        raise NotInteger(english("more than its first input is quantized"))
    moved = call.run_in_float([given.get(index) for index in range(len(call.operands))])
    return [moved[0].astype(values.dtype, copy=False), *moved[1:]]


def _moved(call: KernelCall, move: Move) -> KernelResult:
    if call.outputs > 1:
        raise NotInteger(english("its second output is used"))
    return call.operand(0).result.rearranged(move)


def _identity(call: KernelCall) -> KernelResult:
    return _moved(call, lambda values: [values])


def _transpose(call: KernelCall) -> KernelResult:
    order = call.attributes.get("perm")
    return _moved(call, lambda values: [values.transpose(order)])


def _reshape(call: KernelCall) -> KernelResult:
    """Reshape, Flatten, Squeeze, Unsqueeze: onnxruntime says what shape comes out."""
    result = call.operand(0).result
    # An array without elements of its own in memory stands for the data.
    shape = carried(call, np.broadcast_to(np.float32(0), result.shape))[0].shape
    return result.rearranged(lambda values: [values.reshape(shape)])


def _selected(call: KernelCall) -> KernelResult:
    """Slice, Gather, Tile and others whose outputs are elements of the first input."""

    def move(values: Array) -> list[Array]:
        return [part.astype(values.dtype, copy=False) for part in carried(call, values)]

    return call.operand(0).result.rearranged(move)


def _ordered(call: KernelCall) -> KernelResult:
    """MaxPool and others that choose by size: the largest code is that of the largest value."""
    values = call.operand(0).whole
    codes, *others = carried(call, values.codes)
    return [Coded(codes, values.params, values.spec.along(None)), *others]


def _pad(call: KernelCall) -> KernelResult:
    return [_padded(call, call.operand(0).result, _fill(call))]


def _padded(call: KernelCall, result: Result, fill: float) -> Result:
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


def _with_margin(call: KernelCall, values: Array, margin: Array, fill: float) -> Array:
    """Pad numbers; the node itself says where each comes from, and `fill` marks the places that are new."""
    start = np.floor(fill) + 1 if 0 <= fill < np.inf else 0.0
    places = np.arange(values.size, dtype=np.float64).reshape(values.shape) + start
    marked = {2: np.asarray(fill, dtype=np.float64)} if call.optional(2) is not None else None
    origin = carried(call, places, instead=marked)[0] - start
    new = ~((origin >= 0) & (origin < values.size))
    taken = values.reshape(-1)[np.where(new, 0, origin).astype(np.int64)] if values.size else margin
    return np.where(new, margin, taken).astype(values.dtype, copy=False)


def _fill(call: KernelCall) -> float:
    operand = call.optional(2)
    if operand is None:
        return float(call.attributes.get("value", 0.0))
    if not operand.constant:
        raise NotInteger(english("its fill value {name!r} is not constant", name=operand.name))
    value = operand.value.real() if isinstance(operand.value, Result) else operand.value
    return float(value.reshape(()))


def _concat(call: KernelCall) -> KernelResult:
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


# Means and sums over windows and axes, and resizing.

_INT64_LIMIT = 1 << 63
# From these versions on the axes are an input.
_AXES_AS_INPUT = {"ReduceSum": 13, "ReduceMean": 18}


def _average_pool(call: KernelCall) -> KernelResult:
    values = call.operand(0).whole
    # onnxruntime's own mean of ones tells how many windows there are, and what it divides their sums by.
    ones = np.ones(values.shape, dtype=np.float32)[:1, :1]
    means = carried(call, ones)[0]
    geometry = _pool_geometry(call, values.shape[2:], means.shape[2:])
    seen = _window_sums(ones.astype(np.float64), geometry)
    counts = np.where(means > 0, np.rint(seen / np.where(means > 0, means, 1)), 1.0)
    if call.op_type in call.context.arithmetic.in_float:
        # Element by element, as a plain loop adds up: halves of codes depend on the last bit.
        return [_window_sums(values.real(), geometry) / counts.astype(np.float32)]
    total = _window_sums(values.centred(), geometry)
    return [CodeMean(call.accumulated(total), counts, values)]


def _pool_geometry(call: KernelCall, spatial: tuple[int, ...], out: tuple[int, ...]) -> Geometry:
    """Where pooling windows lie when so many of them come out."""
    rank = len(spatial)
    kernel = tuple(call.attributes["kernel_shape"])
    strides = tuple(call.attributes.get("strides") or (1,) * rank)
    dilations = tuple(call.attributes.get("dilations") or (1,) * rank)
    needed = tuple(
        (count - 1) * stride + (size - 1) * dilation + 1
        for count, stride, size, dilation in zip(out, strides, kernel, dilations, strict=True)
    )
    mode = call.attributes.get("auto_pad", "NOTSET")
    lacking = [max(0, need - size) for need, size in zip(needed, spatial, strict=True)]
    if mode == "SAME_UPPER":
        begins = tuple(total // 2 for total in lacking)
    elif mode == "SAME_LOWER":
        begins = tuple(total - total // 2 for total in lacking)
    else:
        pads = call.attributes.get("pads") if mode == "NOTSET" else None
        begins = tuple(pads or (0,) * rank)[:rank]
    ends = tuple(max(0, need - size - begin) for need, size, begin in zip(needed, spatial, begins, strict=True))
    return Geometry(kernel, strides, dilations, begins, ends, out)


def _window_sums(values: Array, geometry: Geometry) -> Array:
    padded = pad_spatial(values, geometry.begins, geometry.ends)
    total = np.zeros((*values.shape[:2], *geometry.out), dtype=values.dtype)
    for _, places in geometry.offsets():
        total += padded[:, :, *places]
    return total


def _global_average_pool(call: KernelCall) -> KernelResult:
    rank = len(call.operand(0).result.shape)
    return [_reduced(call, tuple(range(2, rank)), keep=True, mean=True)]


def _reduce_mean(call: KernelCall) -> KernelResult:
    return _over_axes(call, mean=True)


def _reduce_sum(call: KernelCall) -> KernelResult:
    return _over_axes(call, mean=False)


def _over_axes(call: KernelCall, *, mean: bool) -> KernelResult:
    rank = len(call.operand(0).result.shape)
    axes = call.attributes.get("axes")
    given = call.optional(1)
    if given is not None and call.context.opset >= _AXES_AS_INPUT[call.op_type]:
        axes = np.asarray(given.value).reshape(-1).tolist()
    if not axes:
        if call.attributes.get("noop_with_empty_axes", 0):
            return [call.operand(0).result]
        axes = range(rank)
    places = tuple(sorted(int(axis) % rank for axis in axes)) if rank else ()
    return [_reduced(call, places, keep=bool(call.attributes.get("keepdims", 1)), mean=mean)]


def _reduced(call: KernelCall, axes: tuple[int, ...], *, keep: bool, mean: bool) -> Wide:
    wide = as_wide(call.operand(0).result)
    if any(wide.scale.shape[axis] > 1 for axis in axes if wide.scale.ndim):
        wide = Wide(np.asarray(wide.real(), dtype=np.float64), np.ones(()), integral=False)
    count = prod(wide.shape[axis] for axis in axes)
    if not count:
        raise NotInteger(english("it has nothing to add up"))
    total = wide.total.sum(axis=axes, keepdims=keep, dtype=_sum_dtype(wide, count))
    scale = wide.scale if wide.scale.ndim == 0 or keep else wide.scale.squeeze(axes)
    return Wide(
        call.accumulated(total) if wide.integral else total, scale / count if mean else scale, wide.integral
    )


def _sum_dtype(wide: Wide, count: int) -> np.dtype:
    if wide.total.dtype.kind == "f" or not wide.total.size:
        return wide.total.dtype
    largest = max(abs(int(wide.total.min())), abs(int(wide.total.max())))
    return np.dtype(np.int64 if largest * count < _INT64_LIMIT else np.float64)


def _resize(call: KernelCall) -> KernelResult:
    values = call.operand(0).whole
    mode = call.attributes.get("mode", "nearest")
    if call.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise NotInteger(english("it fills what lies outside of its input"))
    if mode == "nearest":
        return [Coded(carried(call, values.codes)[0], values.params, values.spec.along(None))]
    # Resizing is linear, so weights and sums are those of the codes; onnxruntime knows all the ways to place them.
    return [Wide(carried(call, values.centred(np.float32))[0], values.scale.reshape(()), integral=False)]


FLOAT_KERNELS = frozenset({"AveragePool"})
"""Those that know how targets compute them in float32."""

REDUCTION_KERNELS: dict[str, IntegerKernel] = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_average_pool,
    "ReduceMean": _reduce_mean,
    "ReduceSum": _reduce_sum,
    "Resize": _resize,
    "Upsample": _resize,
}
