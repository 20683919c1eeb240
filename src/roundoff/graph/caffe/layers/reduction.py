"""Sums, means and largest values along axes."""

import math
from typing import Any

import numpy as np

from roundoff.graph.caffe.job import LayerJob
from roundoff.graph.caffe.registry import converts

__all__ = ["arg_max", "reduction"]

_FLOAT = 1


@converts("Reduction")
def reduction(job: LayerJob) -> None:
    """All values behind an axis become one."""
    job.check_counts((1,))
    params, shape = job.params("reduction_param"), job.bottoms[0].shape
    axis = job.axis(params.integer("axis"), len(shape)) if shape else 0
    axes, factor = list(range(axis, len(shape))), params.number("coeff")
    if axis == 0:
        job.fix_batch(f"layer {job.layer.name!r} reduces over the samples")
    names = {"SUM": "ReduceSum", "ASUM": "ReduceL1", "SUMSQ": "ReduceSumSquare", "MEAN": "ReduceMean"}
    op_type = names[params.choice("operation")]
    inputs = [job.bottoms[0].name]
    attributes: dict[str, Any] = {"axes": axes}
    if op_type == "ReduceSum":
        inputs, attributes = [*inputs, job.integers(axes, "axes")], {}
    if factor == 1:
        job.top(op_type, inputs, shape[:axis], keepdims=0, **attributes)
        return
    reduced = job.step(op_type, inputs, "reduced", keepdims=0, **attributes)
    job.top("Mul", [reduced, job.floats(factor, "coefficient")], shape[:axis])


@converts("ArgMax")
def arg_max(job: LayerJob) -> None:
    """Where the largest values are, or what they are; of equal values Caffe takes the last."""
    job.check_counts((1,))
    params, shape = job.params("argmax_param"), job.bottoms[0].shape
    many, values_too = params.integer("top_k"), params.flag("out_max_val")
    if params.has("axis"):
        axis = job.axis(params.integer("axis"), len(shape))
        if axis == 0:
            job.fix_batch(f"layer {job.layer.name!r} compares the samples")
        _check(job, many, shape[axis])
        places, values = _largest(job, job.bottoms[0].name, many, axis=axis, size=shape[axis])
        top = (*shape[:axis], many, *shape[axis + 1 :])
        job.top("Identity", [values if values_too else places], top)
        return
    size = math.prod(shape[1:])
    _check(job, many, size)
    flat = job.step("Flatten", [job.bottoms[0].name], "flat", axis=1)
    places, values = _largest(job, flat, many, axis=1, size=size)
    both = job.step("Concat", [places, values], "both", axis=1) if values_too else places
    top = (shape[0], 1 + values_too, many, *[1] * (len(shape) - 3))
    job.top("Reshape", [both, job.integers([0, *top[1:]], "shape")], top)


def _check(job: LayerJob, many: int, size: int) -> None:
    if not 1 <= many <= size:
        raise job.refuse(f"asks for the {many} largest of {size} values")


def _largest(job: LayerJob, source: str, many: int, *, axis: int, size: int) -> tuple[str, str]:
    """Places, as float, and values of the largest values along an axis."""
    if many == 1:
        found = job.step("ArgMax", [source], "found", axis=axis, keepdims=1, select_last_index=1)
        values = job.step("ReduceMax", [source], "values", axes=[axis], keepdims=1)
        return job.step("Cast", [found], "places", to=_FLOAT), values
    # ONNX takes the first of equal values; seen from the end that is the last.
    backwards = [job.integers([number], step) for number, step in (
        (-1, "start"), (np.iinfo(np.int64).min, "end"), (axis, "axis"), (-1, "stride"))]  # fmt: skip
    turned = job.step("Slice", [source, *backwards], "turned")
    values, found = job.steps("TopK", [turned, job.integers([many], "count")], ("values", "found"), axis=axis)
    places = job.step("Sub", [job.integers(size - 1, "last"), found], "counted")
    return job.step("Cast", [places], "places", to=_FLOAT), values
