"""Means and sums over windows and axes, and resizing."""

from math import prod

import numpy as np

from roundoff.core.tensors import Array
from roundoff.runtime.integer.call import Call, IntegerKernel, NotInteger, Outcome
from roundoff.runtime.integer.composed import CodeMean
from roundoff.runtime.integer.geometry import Geometry, pad_spatial
from roundoff.runtime.integer.moves import carried
from roundoff.runtime.integer.results import Coded, Wide, as_wide

__all__ = ["REDUCTION_KERNELS"]

_INT64_LIMIT = 1 << 63
# From these versions on the axes are an input.
_AXES_AS_INPUT = {"ReduceSum": 13, "ReduceMean": 18}


def _average_pool(call: Call) -> Outcome:
    values = call.operand(0).whole
    # onnxruntime's own mean of ones tells how many windows there are, and what it divides their sums by.
    ones = np.ones(values.shape, dtype=np.float32)[:1, :1]
    means = carried(call, ones)[0]
    geometry = _pool_geometry(call, values.shape[2:], means.shape[2:])
    seen = _window_sums(ones.astype(np.float64), geometry)
    counts = np.where(means > 0, np.rint(seen / np.where(means > 0, means, 1)), 1.0)
    total = _window_sums(values.centred(), geometry)
    return [CodeMean(call.accumulated(total), counts, values)]


def _pool_geometry(call: Call, spatial: tuple[int, ...], out: tuple[int, ...]) -> Geometry:
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


def _global_average_pool(call: Call) -> Outcome:
    rank = len(call.operand(0).result.shape)
    return [_reduced(call, tuple(range(2, rank)), keep=True, mean=True)]


def _reduce_mean(call: Call) -> Outcome:
    return _over_axes(call, mean=True)


def _reduce_sum(call: Call) -> Outcome:
    return _over_axes(call, mean=False)


def _over_axes(call: Call, *, mean: bool) -> Outcome:
    rank = len(call.operand(0).result.shape)
    axes = call.attributes.get("axes")
    given = call.optional(1)
    if given is not None and call.shop.opset >= _AXES_AS_INPUT[call.op_type]:
        axes = np.asarray(given.value).reshape(-1).tolist()
    if not axes:
        if call.attributes.get("noop_with_empty_axes", 0):
            return [call.operand(0).result]
        axes = range(rank)
    places = tuple(sorted(int(axis) % rank for axis in axes)) if rank else ()
    return [_reduced(call, places, keep=bool(call.attributes.get("keepdims", 1)), mean=mean)]


def _reduced(call: Call, axes: tuple[int, ...], *, keep: bool, mean: bool) -> Wide:
    wide = as_wide(call.operand(0).result)
    if any(wide.scale.shape[axis] > 1 for axis in axes if wide.scale.ndim):
        wide = Wide(np.asarray(wide.real(), dtype=np.float64), np.ones(()), integral=False)
    count = prod(wide.shape[axis] for axis in axes)
    if not count:
        raise NotInteger("it has nothing to add up")
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


def _resize(call: Call) -> Outcome:
    values = call.operand(0).whole
    mode = call.attributes.get("mode", "nearest")
    if call.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise NotInteger("it fills what lies outside of its input")
    if mode == "nearest":
        return [Coded(carried(call, values.codes)[0], values.params, values.spec.along(None))]
    # Resizing is linear, so weights and sums are those of the codes; onnxruntime knows all the ways to place them.
    return [Wide(carried(call, values.centred(np.float32))[0], values.scale.reshape(()), integral=False)]


REDUCTION_KERNELS: dict[str, IntegerKernel] = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_average_pool,
    "ReduceMean": _reduce_mean,
    "ReduceSum": _reduce_sum,
    "Resize": _resize,
    "Upsample": _resize,
}
