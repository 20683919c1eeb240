"""Layers that move values without changing them."""

import math

from roundoff.graph.caffe.job import LayerJob, Shape
from roundoff.graph.caffe.registry import converts

__all__ = ["crop", "flatten", "permute", "reshape", "shuffle_channel"]


@converts("Flatten")
def flatten(job: LayerJob) -> None:
    """Several axes become one."""
    job.check_counts((1,))
    params, shape = job.params("flatten_param"), job.bottoms[0].shape
    first, last = (job.axis(params.integer(name), len(shape)) for name in ("axis", "end_axis"))
    if first > last:
        raise job.refuse(f"flattens the axes from {first} to {last}, of which there are none")
    top = (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])
    if first == 1 and last == len(shape) - 1:
        job.top("Flatten", [job.bottoms[0].name], top, axis=1)
        return
    if first == 0:
        job.fix_batch(f"layer {job.layer.name!r} joins the samples with another axis")
    kept = [0] * first + [*top[first:]]
    job.top("Reshape", [job.bottoms[0].name, job.integers(kept, "shape")], top)


@converts("Reshape")
def reshape(job: LayerJob) -> None:
    """Other sizes for the same values: 0 keeps a size, -1 stands for what is left."""
    job.check_counts((1,))
    params, shape = job.params("reshape_param"), job.bottoms[0].shape
    wanted = params.inner("shape").integers("dim")
    start, count = params.integer("axis"), params.integer("num_axes")
    start = start if start >= 0 else len(shape) + start + 1
    end = len(shape) if count == -1 else start + count
    if not 0 <= start <= end <= len(shape):
        raise job.refuse(f"replaces {count} axes from axis {params.integer('axis')} on; there are {len(shape)}")
    sizes = _resolved(job, wanted, start=start, end=end)
    top = (*shape[:start], *sizes, *shape[end:])
    spec = _as_onnx(job, wanted, top, start=start)
    job.top("Reshape", [job.bottoms[0].name, job.integers(spec, "shape")], top)


def _resolved(job: LayerJob, wanted: tuple[int, ...], *, start: int, end: int) -> Shape:
    shape = job.bottoms[0].shape
    if any(size == 0 and start + place >= end for place, size in enumerate(wanted)):
        raise job.refuse("keeps the size of an axis (dim: 0) that its input does not have")
    sizes = [shape[start + place] if size == 0 else size for place, size in enumerate(wanted)]
    inferred = [place for place, size in enumerate(sizes) if size == -1]
    rest = math.prod(size for size in sizes if size != -1)
    whole = math.prod(shape[start:end])
    if len(inferred) > 1 or any(size < -1 for size in sizes):
        raise job.refuse("has more than one size of -1, or a negative one")
    if inferred and rest and whole % rest == 0:
        sizes[inferred[0]] = whole // rest
    elif inferred or rest != whole:
        raise job.refuse(f"makes {whole} values into the shape {'x'.join(map(str, wanted))}")
    return tuple(sizes)


def _as_onnx(job: LayerJob, wanted: tuple[int, ...], top: Shape, *, start: int) -> list[int]:
    """The new shape so that it fits any batch size, where the layer allows that."""
    spec = list(top)
    if start > 0 or wanted[:1] == (0,):
        spec[0] = 0
    elif wanted[:1] == (-1,):
        spec[0] = -1
    elif job.bottoms[0].shape:
        job.fix_batch(f"layer {job.layer.name!r} names the number of samples in its shape")
    return spec


@converts("Permute")
def permute(job: LayerJob) -> None:
    """The axes in another order; those that are not named follow in their own."""
    job.check_counts((1,))
    shape = job.bottoms[0].shape
    order = job.params("permute_param").integers("order")
    if len(set(order)) < len(order) or any(axis >= len(shape) for axis in order):
        raise job.refuse(f"orders the axes {', '.join(map(str, order))} of a blob with {len(shape)}")
    order += tuple(axis for axis in range(len(shape)) if axis not in order)
    if order[0] != 0:
        job.fix_batch(f"layer {job.layer.name!r} moves the axis of the samples")
    job.top("Transpose", [job.bottoms[0].name], tuple(shape[axis] for axis in order), perm=list(order))


@converts("ShuffleChannel")
def shuffle_channel(job: LayerJob) -> None:
    """The channels of several groups, in turns."""
    job.check_counts((1,))
    shape, groups = job.bottoms[0].shape, job.params("shuffle_channel_param").integer("group")
    if len(shape) != 4 or groups < 1 or shape[1] % groups:
        raise job.refuse(
            f"shuffles {groups} groups of channels of a blob of the shape {'x'.join(map(str, shape))}"
        )
    channels, plane = shape[1], shape[2:]
    parted = job.integers([0, groups, channels // groups, *plane], "groups")
    grouped = job.step("Reshape", [job.bottoms[0].name, parted], "grouped")
    turned = job.step("Transpose", [grouped], "turned", perm=[0, 2, 1, 3, 4])
    job.top("Reshape", [turned, job.integers([0, channels, *plane], "shape")], shape)


@converts("Crop")
def crop(job: LayerJob) -> None:
    """A part of the first blob that is as large as the second."""
    job.check_counts((2,))
    params, (whole, part) = job.params("crop_param"), (bottom.shape for bottom in job.bottoms)
    if len(whole) != len(part):
        raise job.refuse(f"crops a blob with {len(whole)} axes to one with {len(part)}")
    axis = job.axis(params.integer("axis"), len(whole))
    axes = list(range(axis, len(whole)))
    given = params.integers("offset") or (0,)
    if len(given) not in (1, len(axes)):
        raise job.refuse(f"has {len(given)} offsets for {len(axes)} axes")
    offsets = list(given * len(axes) if len(given) == 1 else given)
    ends = [offset + part[place] for offset, place in zip(offsets, axes, strict=True)]
    if any(end > whole[place] for end, place in zip(ends, axes, strict=True)):
        raise job.refuse(f"crops {'x'.join(map(str, part))} from {'x'.join(map(str, whole))}, beyond its end")
    if axis == 0:
        job.fix_batch(f"layer {job.layer.name!r} crops the samples")
    limits = [job.integers(values, step) for values, step in ((offsets, "starts"), (ends, "ends"), (axes, "axes"))]
    job.top("Slice", [job.bottoms[0].name, *limits], (*whole[:axis], *part[axis:]))


@converts("Parameter")
def parameter(job: LayerJob) -> None:
    """A stored blob."""
    job.check_counts((0,))
    shape = job.params("parameter_param").inner("shape").integers("dim")
    job.top("Identity", [job.floats(job.blob(0, shape), "value")], shape)
