"""Layers that move values without changing them."""

import itertools
import math
from typing import Any

import numpy as np

from roundoff.graph.caffe.conversion import LayerJob, Params, Shape, converts
from roundoff.messages.message import english

_FLOAT, _INT64, _BOOL = 1, 7, 9


@converts("Flatten")
def flatten(job: LayerJob) -> None:
    """Several axes become one."""
    job.check_counts((1,))
    params, shape = job.params("flatten_param"), job.bottoms[0].shape
    first, last = (job.axis(params.integer(name), len(shape)) for name in ("axis", "end_axis"))
    if first > last:
        raise job.refuse(
            english("flattens the axes from {first} to {last}, of which there are none", first=first, last=last)
        )
    top = (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])
    if first == 1 and last == len(shape) - 1:
        job.top("Flatten", [job.bottoms[0].name], top, axis=1)
        return
    if first == 0:
        job.fix_batch(english("layer {name!r} joins the samples with another axis", name=job.layer.name))
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
        raise job.refuse(
            english(
                "replaces {count} axes from axis {integer} on; there are {count2}",
                count=count,
                integer=params.integer("axis"),
                count2=len(shape),
            )
        )
    sizes = _resolved(job, wanted, start=start, end=end)
    top = (*shape[:start], *sizes, *shape[end:])
    spec = _as_onnx(job, wanted, top, start=start)
    job.top("Reshape", [job.bottoms[0].name, job.integers(spec, "shape")], top)


def _resolved(job: LayerJob, wanted: tuple[int, ...], *, start: int, end: int) -> Shape:
    shape = job.bottoms[0].shape
    if any(size == 0 and start + place >= end for place, size in enumerate(wanted)):
        raise job.refuse(english("keeps the size of an axis (dim: 0) that its input does not have"))
    sizes = [shape[start + place] if size == 0 else size for place, size in enumerate(wanted)]
    inferred = [place for place, size in enumerate(sizes) if size == -1]
    rest = math.prod(size for size in sizes if size != -1)
    whole = math.prod(shape[start:end])
    if len(inferred) > 1 or any(size < -1 for size in sizes):
        raise job.refuse(english("has more than one size of -1, or a negative one"))
    if inferred and rest and whole % rest == 0:
        sizes[inferred[0]] = whole // rest
    elif inferred or rest != whole:
        raise job.refuse(
            english("makes {whole} values into the shape {wanted}", whole=whole, wanted="x".join(map(str, wanted)))
        )
    return tuple(sizes)


def _as_onnx(job: LayerJob, wanted: tuple[int, ...], top: Shape, *, start: int) -> list[int]:
    """The new shape so that it fits any batch size, where the layer allows that."""
    spec = list(top)
    if start > 0 or wanted[:1] == (0,):
        spec[0] = 0
    elif wanted[:1] == (-1,):
        spec[0] = -1
    elif job.bottoms[0].shape:
        job.fix_batch(english("layer {name!r} names the number of samples in its shape", name=job.layer.name))
    return spec


@converts("Permute", "Transpose")
def permute(job: LayerJob) -> None:
    """The axes in another order; those that are not named follow in their own."""
    job.check_counts((1,))
    shape = job.bottoms[0].shape
    if job.layer.type == "Transpose":
        order = job.params("transpose_param").integers("dim")
    else:
        order = job.params("permute_param").integers("order")
    if len(set(order)) < len(order) or any(axis >= len(shape) for axis in order):
        raise job.refuse(
            english(
                "orders the axes {order} of a blob with {count}",
                order=", ".join(map(str, order)),
                count=len(shape),
            )
        )
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
            english(
                "shuffles {groups} groups of channels of a blob of the shape {shape}",
                groups=groups,
                shape="x".join(map(str, shape)),
            )
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
        raise job.refuse(
            english("crops a blob with {count} axes to one with {count2}", count=len(whole), count2=len(part))
        )
    axis = job.axis(params.integer("axis"), len(whole))
    axes = list(range(axis, len(whole)))
    given = params.integers("offset") or (0,)
    if len(given) not in (1, len(axes)):
        raise job.refuse(english("has {count} offsets for {count2} axes", count=len(given), count2=len(axes)))
    offsets = list(given * len(axes) if len(given) == 1 else given)
    ends = [offset + part[place] for offset, place in zip(offsets, axes, strict=True)]
    if any(end > whole[place] for end, place in zip(ends, axes, strict=True)):
        raise job.refuse(
            english(
                "crops {part} from {whole}, beyond its end",
                part="x".join(map(str, part)),
                whole="x".join(map(str, whole)),
            )
        )
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


@converts("Reorg")
def reorg(job: LayerJob) -> None:
    """Planes moved into channels as YOLOv2 does it, or back."""
    job.check_counts((1,))
    params, shape = job.params("reorg_param"), job.bottoms[0].shape
    stride, source = params.integer("stride"), job.bottoms[0].name
    if len(shape) != 4 or stride < 1 or shape[1] % stride**2:
        raise job.refuse(
            english(
                "moves squares of {stride} x {stride} of a blob of the shape {shape}",
                stride=stride,
                shape="x".join(map(str, shape)),
            )
        )
    channels, height, width = shape[1] // stride**2, *shape[2:]
    if params.flag("reverse"):
        job.top("DepthToSpace", [source], (shape[0], channels, height * stride, width * stride), blocksize=stride)
        return
    if height % stride or width % stride:
        raise job.refuse(english("cuts {height} x {width} values into squares", height=height, width=width))
    # It reads the memory as if channels were fewer and planes larger, as the first program that had it did.
    parted = job.integers([0, channels, height, stride, width, stride], "parted")
    squares = job.step("Reshape", [source, parted], "squares")
    turned = job.step("Transpose", [squares], "turned", perm=[0, 3, 5, 1, 2, 4])
    top = (shape[0], shape[1] * stride**2, height // stride, width // stride)
    job.top("Reshape", [turned, job.integers([0, *top[1:]], "shape")], top)


@converts("Reverse")
def reverse(job: LayerJob) -> None:
    """The values along some axes, from the last to the first."""
    job.check_counts((1,))
    shape = job.bottoms[0].shape
    axes = [job.axis(axis, len(shape)) for axis in job.params("reverse_param").integers("axis") or (0,)]
    if 0 in axes:
        job.fix_batch(english("layer {name!r} reverses its first axis", name=job.layer.name))
    ends = [[-1] * len(axes), [np.iinfo(np.int64).min] * len(axes), axes, [-1] * len(axes)]
    names = ("starts", "ends", "axes", "steps")
    limits = [job.integers(each, name) for each, name in zip(ends, names, strict=True)]
    job.top("Slice", [job.bottoms[0].name, *limits], shape)


@converts("Filter")
def keep_selected(job: LayerJob) -> None:
    """The samples for which the last bottom is not zero."""
    count = job.top_count()
    job.check_counts((count + 1,), (count,))
    *kept, selector = job.bottoms
    if any(blob.shape[:1] != selector.shape[:1] for blob in kept) or math.prod(selector.shape[1:]) != 1:
        sizes = ", ".join("x".join(map(str, bottom.shape)) for bottom in job.bottoms)
        raise job.refuse(english("selects with blobs of the shapes {sizes}, which do not fit", sizes=sizes))
    job.fix_batch(english("layer {name!r} (Filter) drops samples", name=job.layer.name))
    flat = job.step("Reshape", [selector.name, job.integers([-1], "row")], "flat")
    chosen = job.step("Cast", [flat], "chosen", to=_BOOL)
    for index, blob in enumerate(kept):
        job.top("Compress", [blob.name, chosen], blob.shape, index=index, axis=0)
        job.varies(0, index=index)


@converts("BatchReindex")
def batch_reindex(job: LayerJob) -> None:
    """Samples by the numbers in the second bottom."""
    job.check_counts((2,))
    blob, numbers = job.bottoms
    if len(numbers.shape) != 1 or not blob.shape:
        raise job.refuse(english("takes a list of numbers as its second bottom"))
    job.fix_batch(english("layer {name!r} (BatchReindex) chooses samples", name=job.layer.name))
    whole = job.step("Cast", [numbers.name], "numbers", to=_INT64)
    job.top("Gather", [blob.name, whole], (*numbers.shape, *blob.shape[1:]), axis=0)


# Blobs put together and taken apart.


def _axis(job: LayerJob, params: Params, old: str) -> int:
    """The axis by its name of today, or by the one it had before."""
    if params.has(old) and params.has("axis"):
        raise job.refuse(english("has both axis and {old}", old=old), fix=english("leave {old} out", old=old))
    axis = params.integer(old if params.has(old) else "axis")
    axis = job.axis(axis, len(job.bottoms[0].shape))
    if axis == 0:
        job.fix_batch(f"layer {job.layer.name!r} ({job.layer.type}) works along the samples")
    return axis


@converts("Concat")
def concat(job: LayerJob) -> None:
    """Blobs one behind the other along an axis."""
    if not job.bottoms:
        raise job.refuse(english("has no bottoms"))
    job.check_counts((len(job.bottoms),))
    axis = _axis(job, job.params("concat_param"), "concat_dim")
    first = job.bottoms[0].shape
    for bottom in job.bottoms:
        if len(bottom.shape) != len(first) or _without(bottom.shape, axis) != _without(first, axis):
            sizes = " and ".join("x".join(map(str, each)) for each in (first, bottom.shape))
            raise job.refuse(
                english(
                    "joins blobs of the shapes {sizes} along axis {axis}; all other axes must agree",
                    sizes=sizes,
                    axis=axis,
                )
            )
    whole = sum(bottom.shape[axis] for bottom in job.bottoms)
    shape = (*first[:axis], whole, *first[axis + 1 :])
    job.top("Concat", [bottom.name for bottom in job.bottoms], shape, axis=axis)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


@converts("Slice")
def slicing(job: LayerJob) -> None:
    """Pieces of a blob along an axis."""
    job.check_counts((1,), range(1, job.top_count() + 1))
    params, shape = job.params("slice_param"), job.bottoms[0].shape
    axis = _axis(job, params, "slice_dim")
    count, size = job.top_count(), shape[axis]
    points = params.integers("slice_point")
    if points:
        edges = (0, *points, size)
        sizes = [end - start for start, end in itertools.pairwise(edges)]
        if len(sizes) != count or min(sizes) < 1:
            raise job.refuse(
                english(
                    "is cut at {points}: not into {count} pieces of {size} values",
                    points=", ".join(map(str, points)),
                    count=count,
                    size=size,
                )
            )
    elif size % count:
        raise job.refuse(
            english("has {count} tops, into which {size} values cannot be cut evenly", count=count, size=size),
            fix=english("give slice_point"),
        )
    else:
        sizes = [size // count] * count
    shapes = [(*shape[:axis], part, *shape[axis + 1 :]) for part in sizes]
    if count == 1:
        job.top("Identity", [job.bottoms[0].name], shape)
    else:
        job.tops_of("Split", [job.bottoms[0].name, job.integers(sizes, "sizes")], shapes, axis=axis)


@converts("Tile")
def tile(job: LayerJob) -> None:
    """A blob repeated along an axis."""
    job.check_counts((1,))
    params, shape = job.params("tile_param"), job.bottoms[0].shape
    axis, times = job.axis(params.integer("axis"), len(shape)), params.integer("tiles")
    if times < 1:
        raise job.refuse(english("repeats its input {times} times", times=times))
    if axis == 0:
        job.fix_batch(f"layer {job.layer.name!r} repeats the samples")
    repeats = [times if place == axis else 1 for place in range(len(shape))]
    top = tuple(size * repeat for size, repeat in zip(shape, repeats, strict=True))
    job.top("Tile", [job.bottoms[0].name, job.integers(repeats, "repeats")], top)


# Sums, means and largest values along axes.


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
        raise job.refuse(english("asks for the {many} largest of {size} values", many=many, size=size))


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
