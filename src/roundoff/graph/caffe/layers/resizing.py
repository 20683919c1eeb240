"""Planes made larger or smaller."""

from typing import Any

import numpy as np

from roundoff.graph.caffe.job import LayerJob
from roundoff.graph.caffe.params import Params
from roundoff.graph.caffe.registry import converts

__all__ = ["interp", "upsample"]

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
        raise job.refuse(f"resizes planes, but its input has {len(shape)} axes instead of 4")
    begin, end = params.integer("pad_beg"), params.integer("pad_end")
    if begin > 0 or end > 0:
        raise job.refuse("pads its input; Interp only crops, with numbers below zero")
    inside = tuple(size + begin + end for size in shape[2:])
    if min(inside) < 1:
        raise job.refuse("crops all of its input away")
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
        raise job.refuse("has a zoom or shrink factor below one")
    if params.has("zoom_factor") or params.has("shrink_factor"):
        small = [(size - 1) // shrink + 1 for size in inside]
        return tuple(size + (size - 1) * (zoom - 1) for size in small)
    height, width = params.integer("height"), params.integer("width")
    if height < 1 or width < 1:
        raise job.refuse("says nothing of its size", fix="give height and width, zoom_factor or shrink_factor")
    return height, width


@converts("Upsample")
def upsample(job: LayerJob) -> None:
    """Every value repeated in a square; or, with a second bottom, put back to where pooling found it."""
    job.check_counts((1, 2))
    if len(job.bottoms[0].shape) != 4:
        raise job.refuse(f"enlarges planes, but its input has {len(job.bottoms[0].shape)} axes instead of 4")
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
            raise job.refuse(f"enlarges by {plain:g}, which is no whole number")
        sides = [params.integer(name) if params.has(name) else int(plain) for name in ("scale_h", "scale_w")]
        factor = 1.0
    if min(sides) < 1:
        raise job.refuse("enlarges by less than one")
    return (sides[0], sides[1]), factor


def _unpool(job: LayerJob) -> None:
    params, (shape, places) = job.params("upsample_param"), (bottom.shape for bottom in job.bottoms)
    if shape != places:
        raise job.refuse("has values and places of different shapes")
    (scale_h, scale_w), _ = _repeats(job, params)
    height = params.integer("upsample_h") if params.has("upsample_h") else shape[2] * scale_h
    width = params.integer("upsample_w") if params.has("upsample_w") else shape[3] * scale_w
    if not params.has("upsample_h"):
        height -= params.flag("pad_out_h")
        width -= params.flag("pad_out_w")
    plane = job.integers([height * width], "plane")
    rows = job.integers([0, 0, -1], "rows")
    values = job.step("Reshape", [job.bottoms[0].name, rows], "values")
    numbers = job.step("Cast", [job.bottoms[1].name], "numbers", to=_INT64)
    spots = job.step("Reshape", [numbers, rows], "spots")
    sizes = job.step("Shape", [job.bottoms[0].name], "sizes", start=0, end=2)
    empty = job.step("Concat", [sizes, plane], "empty", axis=0)
    zeros = job.step("Expand", [job.floats(0.0, "zero"), empty], "zeros")
    filled = job.step("ScatterElements", [zeros, spots, values], "filled", axis=2)
    job.top("Reshape", [filled, job.integers([0, 0, height, width], "shape")], (*shape[:2], height, width))
