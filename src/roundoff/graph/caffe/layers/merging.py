"""Blobs put together and taken apart."""

import itertools

from roundoff.graph.caffe.job import LayerJob
from roundoff.graph.caffe.params import Params
from roundoff.graph.caffe.registry import converts

__all__ = ["concat", "slicing", "tile"]


def _axis(job: LayerJob, params: Params, old: str) -> int:
    """The axis by its name of today, or by the one it had before."""
    if params.has(old) and params.has("axis"):
        raise job.refuse(f"has both axis and {old}", fix=f"leave {old} out")
    axis = params.integer(old if params.has(old) else "axis")
    axis = job.axis(axis, len(job.bottoms[0].shape))
    if axis == 0:
        job.fix_batch(f"layer {job.layer.name!r} ({job.layer.type}) works along the samples")
    return axis


@converts("Concat")
def concat(job: LayerJob) -> None:
    """Blobs one behind the other along an axis."""
    if not job.bottoms:
        raise job.refuse("has no bottoms")
    job.check_counts((len(job.bottoms),))
    axis = _axis(job, job.params("concat_param"), "concat_dim")
    first = job.bottoms[0].shape
    for bottom in job.bottoms:
        if len(bottom.shape) != len(first) or _without(bottom.shape, axis) != _without(first, axis):
            sizes = " and ".join("x".join(map(str, each)) for each in (first, bottom.shape))
            raise job.refuse(f"joins blobs of the shapes {sizes} along axis {axis}; all other axes must agree")
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
            raise job.refuse(f"is cut at {', '.join(map(str, points))}: not into {count} pieces of {size} values")
    elif size % count:
        raise job.refuse(
            f"has {count} tops, into which {size} values cannot be cut evenly", fix="give slice_point"
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
        raise job.refuse(f"repeats its input {times} times")
    if axis == 0:
        job.fix_batch(f"layer {job.layer.name!r} repeats the samples")
    repeats = [times if place == axis else 1 for place in range(len(shape))]
    top = tuple(size * repeat for size, repeat in zip(shape, repeats, strict=True))
    job.top("Tile", [job.bottoms[0].name, job.integers(repeats, "repeats")], top)
