"""Pooling with Caffe's sizes: rounded up, windows cut at the padding, averages that count the padding."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.graph.caffe.conversion import LayerJob, Params, converts
from roundoff.graph.caffe.layers.convolution import spatial, volume_params
from roundoff.messages.message import english

_PLANE = 2
_POOLED_AXES = (_PLANE + 2, _PLANE + 3)
_TOO_MUCH_PADDING = english("has more padding than its window is large, so that windows would see padding alone")


@dataclass(frozen=True, slots=True)
class _PoolAxis:
    """Pooling along one axis.

    Attributes:
        size: Of the input.
        kernel: Of the window.
        stride: Its steps.
        pad: Zeros in front, and at most as many behind.
        pooled: Size of the output.
    """

    size: int
    kernel: int
    stride: int
    pad: int
    pooled: int

    @property
    def behind(self) -> int:
        """How far the last window reaches beyond the input."""
        return max((self.pooled - 1) * self.stride + self.kernel - self.size - self.pad, 0)

    @property
    def padding_behind(self) -> int:
        """How much of that is padding, which an average counts; the rest is cut off."""
        return min(self.behind, self.pad)

    @property
    def outside(self) -> bool:
        """Whether the last window lies beyond the input altogether."""
        return (self.pooled - 1) * self.stride >= self.size + self.pad


@converts("Pooling", "Pooling3D", "NdPooling")
def pooling(job: LayerJob) -> None:
    """The largest or the mean value of each window, over planes or over videos."""
    params = volume_params(job, "pooling_param")
    job.check_counts((1,), (1,) if job.layer.type == "NdPooling" else (1, 2))
    shape = job.bottoms[0].shape
    if len(shape) not in _POOLED_AXES:
        raise job.refuse(
            english("pools over planes or videos, but its input has {count} axes, not 4 or 5", count=len(shape))
        )
    method = params.choice("pool")
    if method == "STOCHASTIC":
        raise job.refuse(
            english("pools at random (STOCHASTIC), so that no two runs agree"), fix=english("use MAX or AVE")
        )
    if params.flag("global_pooling"):
        _global(job, params, method)
        return
    axes = _axes(job, params)
    if method == "MAX":
        _largest(job, axes)
    else:
        _mean(job, axes)


def _global(job: LayerJob, params: Params, method: str) -> None:
    if any(params.has(name) for name in ("kernel_size", "kernel_h", "kernel_w")):
        raise job.refuse(
            english("pools globally, but has a kernel size as well"), fix=english("leave the kernel size out")
        )
    sizes = job.bottoms[0].shape[2:]
    pads = spatial(job, params, "pad", default=0, count=len(sizes))
    strides = spatial(job, params, "stride", default=1, count=len(sizes))
    if any(pads) or any(stride != 1 for stride in strides):
        raise job.refuse(english("pools globally, but with padding or a stride"), fix=english("leave them out"))
    axes = [_PoolAxis(size, size, 1, 0, 1) for size in sizes]
    if job.top_count() == 2:
        _largest(job, axes)
        return
    op_type = "GlobalMaxPool" if method == "MAX" else "GlobalAveragePool"
    _give(job, op_type, job.bottoms[0].name, axes)


def _axes(job: LayerJob, params: Params) -> list[_PoolAxis]:
    sizes = job.bottoms[0].shape[2:]
    kernels = spatial(job, params, "kernel_size", default=None, count=len(sizes))
    strides = spatial(job, params, "stride", default=1, count=len(sizes))
    pads = spatial(job, params, "pad", default=0, count=len(sizes))
    if min(*kernels, *strides) < 1:
        raise job.refuse(english("has a kernel or stride of zero"))
    if any(pad >= kernel for pad, kernel in zip(pads, kernels, strict=True)):
        raise job.refuse(_TOO_MUCH_PADDING)
    # The layer that has its sizes as shapes leaves the rounding to cuDNN.
    down = params.choice("round_mode") == "FLOOR" or not params.flag("ceil_mode") or job.layer.type == "NdPooling"
    axes = []
    for size, kernel, stride, pad in zip(sizes, kernels, strides, pads, strict=True):
        steps = size + 2 * pad - kernel
        pooled = (steps // stride if down else -(-steps // stride)) + 1
        # A window that would begin in the padding behind is left out; without padding nobody looks.
        if any(pads) and (pooled - 1) * stride >= size + pad:
            pooled -= 1
        axes.append(_PoolAxis(size, kernel, stride, pad, pooled))
    return axes


def _shape(job: LayerJob, axes: Sequence[_PoolAxis]) -> tuple[int, ...]:
    return (*job.bottoms[0].shape[:2], *(axis.pooled for axis in axes))


def _give(job: LayerJob, op_type: str, source: str, axes: Sequence[_PoolAxis], **attributes: Any) -> None:
    """Make the top; NdPooling leaves out axes of which one value remains."""
    shape = _shape(job, axes)
    gone = [place for place, size in enumerate(shape) if place > 1 and size == 1]
    if job.layer.type != "NdPooling" or not gone:
        job.top(op_type, [source], shape, **attributes)
        return
    pooled = job.step(op_type, [source], "pooled", **attributes)
    kept = tuple(size for place, size in enumerate(shape) if place not in gone)
    job.top("Squeeze", [pooled, job.integers(gone, "gone")], kept)


def _attributes(axes: Sequence[_PoolAxis], begin: Sequence[int], end: Sequence[int]) -> dict[str, Any]:
    return {
        "kernel_shape": [axis.kernel for axis in axes],
        "strides": [axis.stride for axis in axes],
        "pads": [*begin, *end],
    }


def _padded(job: LayerJob, begin: Sequence[int], end: Sequence[int], value: float) -> str:
    pads = job.integers([0, 0, *begin, 0, 0, *end], "pads")
    return job.step("Pad", [job.bottoms[0].name, pads, job.floats(value, "padding")], "padded")


@converts("SPP")
def spatial_pyramid(job: LayerJob) -> None:
    """Grids of 1, 2, 4, ... cells along each axis laid over a plane, one behind the other."""
    job.check_counts((1,))
    params, shape = job.params("spp_param"), job.bottoms[0].shape
    levels, method = params.integer("pyramid_height"), params.choice("pool")
    if len(shape) != _PLANE + 2 or levels < 1 or method == "STOCHASTIC":
        raise job.refuse(english("takes planes, a pyramid_height of at least 1, and MAX or AVE"))
    if 2 ** (levels - 1) > min(shape[2:]):
        raise job.refuse(
            english("lays {cells} cells over {size} values", cells=2 ** (levels - 1), size=min(shape[2:]))
        )
    op_type, parts, width = ("MaxPool" if method == "MAX" else "AveragePool"), [], 0
    for level in range(levels):
        axes = [_pyramid_axis(size, 2**level) for size in shape[2:]]
        if any(axis.pad >= axis.kernel for axis in axes):
            raise job.refuse(_TOO_MUCH_PADDING)
        begin, end = [axis.pad for axis in axes], [axis.behind for axis in axes]
        attributes = _attributes(axes, begin, end)
        if method == "AVE":
            attributes["count_include_pad"] = 1
        if levels == 1:
            job.top(op_type, [job.bottoms[0].name], _shape(job, axes), **attributes)
            return
        pooled = job.step(op_type, [job.bottoms[0].name], f"level_{level}", **attributes)
        parts.append(job.step("Flatten", [pooled], f"flat_{level}", axis=1))
        width += shape[1] * axes[0].pooled * axes[1].pooled
    job.top("Concat", parts, (shape[0], width), axis=1)


def _pyramid_axis(size: int, cells: int) -> _PoolAxis:
    """Cells as large as needed, with the padding that lets them reach both ends."""
    kernel = -(-size // cells)
    pad = (kernel * cells - size + 1) // 2
    pooled = -(-(size + 2 * pad - kernel) // kernel) + 1
    if pad and (pooled - 1) * kernel >= size + pad:
        pooled -= 1
    return _PoolAxis(size, kernel, kernel, pad, pooled)


def _largest(job: LayerJob, axes: Sequence[_PoolAxis]) -> None:
    source = job.bottoms[0].name
    begin, end = [axis.pad for axis in axes], [axis.behind for axis in axes]
    if any(axis.outside for axis in axes):
        # A window without any value: Caffe leaves the number there with which its search begins.
        if job.top_count() == 2:
            raise job.refuse(english("has windows beyond its input, which have no largest value to point at"))
        source = _padded(job, begin, end, float(np.finfo(np.float32).min))
        begin = end = [0] * len(axes)
    attributes = _attributes(axes, begin, end)
    if job.top_count() == 1:
        _give(job, "MaxPool", source, axes, **attributes)
        return
    shape = _shape(job, axes)
    largest, places = job.steps("MaxPool", [source], ("largest", "places"), **attributes)
    job.top("Identity", [largest], shape)
    plane = job.integers(math.prod(axis.size for axis in axes), "plane")
    within = job.step("Mod", [places, plane], "within")
    job.top("Cast", [within], shape, index=1, to=1)
    job.counts_in(tuple(axis.size for axis in axes), index=1)


def _mean(job: LayerJob, axes: Sequence[_PoolAxis]) -> None:
    """The mean over the window as far as the padding reaches: what is beyond is not counted."""
    if any(axis.outside for axis in axes):
        raise job.refuse(
            english("has windows beyond its input, whose mean is not a number"),
            fix=english("add padding or change the stride"),
        )
    source = job.bottoms[0].name
    begin, end = [axis.pad for axis in axes], [axis.padding_behind for axis in axes]
    cut = [axis.behind - axis.padding_behind for axis in axes]
    if not any(cut):
        _give(job, "AveragePool", source, axes, count_include_pad=1, **_attributes(axes, begin, end))
        return
    if any(begin) or any(end):
        source = _padded(job, begin, end, 0.0)
    _give(job, "AveragePool", source, axes, count_include_pad=0, **_attributes(axes, [0] * len(axes), cut))


# Planes made larger or smaller.

_INT64 = 7


def _scales(job: LayerJob, sizes: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """Factors that lead to exactly the wanted sizes, whatever the batch size is."""
    factors = [np.float32(1), np.float32(1)]
    for size, target in zip(sizes, wanted, strict=True):
        factor = np.float32(target / size)
        # Some multiply in float32, others in double, and all round down.
        while int(np.float32(size) * factor) < target or int(size * float(factor)) < target:
            factor = np.nextafter(factor, np.float32(np.inf))
        factors.append(factor)
    return job.floats(factors, "scales")


@converts("Interp")
def interp(job: LayerJob) -> None:
    """Planes resized linearly so that their corners stay where they are."""
    job.check_counts((1, 2))
    params, shape = job.params("interp_param"), job.bottoms[0].shape
    if len(shape) != 4:
        raise job.refuse(english("resizes planes, but its input has {count} axes instead of 4", count=len(shape)))
    begin, end = params.integer("pad_beg"), params.integer("pad_end")
    if begin > 0 or end > 0:
        raise job.refuse(english("pads its input; Interp only crops, with numbers below zero"))
    inside = tuple(size + begin + end for size in shape[2:])
    if min(inside) < 1:
        raise job.refuse(english("crops all of its input away"))
    source = job.bottoms[0].name
    if begin or end:
        ends = [size + end for size in shape[2:]]
        limits = [job.integers(each, step) for each, step in (
            ([-begin, -begin], "starts"), (ends, "ends"), ([2, 3], "axes"))]  # fmt: skip
        source = job.step("Slice", [source, *limits], "cropped")
    wanted = _interp_sizes(job, params, inside)
    if wanted == inside:
        job.top("Identity", [source], (*shape[:2], *wanted))
        return
    job.top(
        "Resize",
        [source, "", _scales(job, inside, wanted)],
        (*shape[:2], *wanted),
        mode="linear",
        coordinate_transformation_mode="align_corners",
    )


def _interp_sizes(job: LayerJob, params: Params, inside: tuple[int, ...]) -> tuple[int, ...]:
    if len(job.bottoms) == 2:
        return job.bottoms[1].shape[2:]
    zoom, shrink = params.integer("zoom_factor"), params.integer("shrink_factor")
    if zoom < 1 or shrink < 1:
        raise job.refuse(english("has a zoom or shrink factor below one"))
    if params.has("zoom_factor") or params.has("shrink_factor"):
        small = [(size - 1) // shrink + 1 for size in inside]
        return tuple(size + (size - 1) * (zoom - 1) for size in small)
    height, width = params.integer("height"), params.integer("width")
    if height < 1 or width < 1:
        raise job.refuse(
            english("says nothing of its size"), fix=english("give height and width, zoom_factor or shrink_factor")
        )
    return height, width


@converts("Upsample")
def upsample(job: LayerJob) -> None:
    """Every value repeated in a square; or, with a second bottom, put back to where pooling found it."""
    job.check_counts((1, 2))
    if len(job.bottoms[0].shape) != 4:
        raise job.refuse(
            english(
                "enlarges planes, but its input has {count} axes instead of 4", count=len(job.bottoms[0].shape)
            )
        )
    if len(job.bottoms) == 2:
        _unpool(job)
        return
    params, shape = job.params("upsample_param"), job.bottoms[0].shape
    times, factor = _repeats(job, params)
    scales = job.floats([1, 1, *times], "scales")
    top = (*shape[:2], *(size * time for size, time in zip(shape[2:], times, strict=True)))
    how: dict[str, Any] = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    inputs = [job.bottoms[0].name, "", scales]
    if factor == 1:
        job.top("Resize", inputs, top, **how)
        return
    large = job.step("Resize", inputs, "large", **how)
    job.top("Mul", [large, job.floats(factor, "factor")], top)


def _repeats(job: LayerJob, params: Params) -> tuple[tuple[int, int], float]:
    """How often values are repeated along each axis, and the factor they get.

    Some forks say `stride` for the first and `scale` for the second, others `scale` for the first.
    """
    if any(params.has(name) for name in ("stride", "stride_h", "stride_w")):
        both = params.integer("stride")
        sides = [params.integer(name) if params.has(name) else both for name in ("stride_h", "stride_w")]
        factor = params.number("scale")
    else:
        plain = params.number("scale")
        if plain != int(plain):
            raise job.refuse(english("enlarges by {plain:g}, which is no whole number", plain=plain))
        sides = [params.integer(name) if params.has(name) else int(plain) for name in ("scale_h", "scale_w")]
        factor = 1.0
    if min(sides) < 1:
        raise job.refuse(english("enlarges by less than one"))
    return (sides[0], sides[1]), factor


def _unpool(job: LayerJob) -> None:
    params, (shape, places) = job.params("upsample_param"), (bottom.shape for bottom in job.bottoms)
    if shape != places:
        raise job.refuse(english("has values and places of different shapes"))
    (scale_h, scale_w), _ = _repeats(job, params)
    height = params.integer("upsample_h") if params.has("upsample_h") else shape[2] * scale_h
    width = params.integer("upsample_w") if params.has("upsample_w") else shape[3] * scale_w
    if not params.has("upsample_h"):
        height -= params.flag("pad_out_h")
        width -= params.flag("pad_out_w")
    _put_back(job, (height, width))


@converts("Unpooling", "Unpooling3D")
def unpooling(job: LayerJob) -> None:
    """Values put back to where pooling found them, on planes of a given size or as large as they were."""
    job.check_counts((2,))
    params, (values, places) = job.params("unpooling_param"), job.bottoms
    if params.choice("unpool") != "MAX" or values.shape != places.shape or len(values.shape) not in _POOLED_AXES:
        raise job.refuse(english("unpools other than MAX, or has values and places of different shapes"))
    said = [params.integer(name) or params.integer("unpool_size") for name in ("unpool_h", "unpool_w")]
    sizes = (*places.places_in[:-_PLANE], *said) if all(said) else places.places_in
    if len(sizes) != len(values.shape) - 2:
        raise job.refuse(
            english("says nothing of its size"), fix=english("give unpool_size, or the places of a Pooling")
        )
    if places.places_in and math.prod(sizes) < math.prod(places.places_in):
        raise job.refuse(english("has less room than the Pooling that found its places"))
    _put_back(job, sizes)


def _put_back(job: LayerJob, sizes: tuple[int, ...]) -> None:
    """Values of the first bottom at the places of a plane that the second names, zeros elsewhere."""
    shape = job.bottoms[0].shape
    plane = job.integers([math.prod(sizes)], "plane")
    rows = job.integers([0, 0, -1], "rows")
    values = job.step("Reshape", [job.bottoms[0].name, rows], "values")
    numbers = job.step("Cast", [job.bottoms[1].name], "numbers", to=_INT64)
    spots = job.step("Reshape", [numbers, rows], "spots")
    many = job.step("Shape", [job.bottoms[0].name], "sizes", start=0, end=2)
    empty = job.step("Concat", [many, plane], "empty", axis=0)
    zeros = job.step("Expand", [job.floats(0.0, "zero"), empty], "zeros")
    filled = job.step("ScatterElements", [zeros, spots, values], "filled", axis=2)
    job.top("Reshape", [filled, job.integers([0, 0, *sizes], "shape")], (*shape[:2], *sizes))
