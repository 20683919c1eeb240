"""Arithmetic between blobs, and between blobs and stored numbers."""

from collections.abc import Sequence

from roundoff.graph.caffe.job import LayerJob, Shape
from roundoff.graph.caffe.params import Params
from roundoff.graph.caffe.registry import converts

__all__ = ["bias", "eltwise", "scale"]


@converts("Eltwise")
def eltwise(job: LayerJob) -> None:
    """Blobs of one shape multiplied, added with coefficients, or their largest values."""
    params = job.params("eltwise_param")
    shape = job.bottoms[0].shape if job.bottoms else ()
    if len(job.bottoms) < 2:
        raise job.refuse(f"has {len(job.bottoms)} bottoms; it takes two or more")
    job.check_counts((len(job.bottoms),))
    for bottom in job.bottoms:
        if bottom.shape != shape:
            sizes = " and ".join("x".join(map(str, each)) for each in (shape, bottom.shape))
            raise job.refuse(f"combines blobs of the shapes {sizes}; they must be equal")
    names, operation = [bottom.name for bottom in job.bottoms], params.choice("operation")
    factors = params.numbers("coeff")
    if factors and (operation != "SUM" or len(factors) != len(names)):
        raise job.refuse(
            f"has {len(factors)} coefficients for {len(names)} bottoms; only SUM takes them, one each"
        )
    if operation == "MAX":
        job.top("Max", names, shape)
    elif operation == "PROD":
        for number, name in enumerate(names[1:-1], start=1):
            names[0] = job.step("Mul", [names[0], name], f"product_{number}")
        job.top("Mul", [names[0], names[-1]], shape)
    else:
        terms = [_term(job, name, place, factors) for place, name in enumerate(names)]
        job.top("Add" if len(terms) == 2 else "Sum", terms, shape)


def _term(job: LayerJob, name: str, place: int, factors: Sequence[float]) -> str:
    if not factors or factors[place] == 1:
        return name
    return job.step("Mul", [name, job.floats(factors[place], f"coefficient_{place}")], f"term_{place}")


def _broadcast(job: LayerJob, params: Params) -> Shape:
    """The shape of the stored numbers of Scale and Bias."""
    shape = job.bottoms[0].shape
    count = params.integer("num_axes")
    if count == 0:
        return ()
    axis = job.axis(params.integer("axis"), len(shape))
    if count < -1 or axis + count > len(shape):
        raise job.refuse(f"covers {count} axes from axis {axis} on; the blob has {len(shape)}")
    covered = shape[axis:] if count == -1 else shape[axis : axis + count]
    if axis == 0:
        job.fix_batch(f"layer {job.layer.name!r} has stored numbers for each sample")
    return covered


def _stored(job: LayerJob, params: Params, index: int, step: str) -> str:
    """Stored numbers in a shape that ONNX spreads over the blob as Caffe does."""
    covered = _broadcast(job, params)
    values = job.blob(index, covered)
    if covered:
        rank = len(job.bottoms[0].shape)
        axis = job.axis(params.integer("axis"), rank)
        values = values.reshape(*covered, *[1] * (rank - axis - len(covered)))
    return job.floats(values, step)


def _second(job: LayerJob, params: Params) -> str:
    """The second bottom in a shape that ONNX spreads over the first as Caffe does."""
    whole, part = job.bottoms
    rank = len(whole.shape)
    if not part.shape:
        return part.name
    axis = job.axis(params.integer("axis"), rank)
    if whole.shape[axis : axis + len(part.shape)] != part.shape:
        sizes = " and ".join("x".join(map(str, each)) for each in (whole.shape, part.shape))
        raise job.refuse(f"combines blobs of the shapes {sizes}, which do not fit at axis {axis}")
    behind = rank - axis - len(part.shape)
    if not behind:
        return part.name
    return job.step("Reshape", [part.name, job.integers([0] * len(part.shape) + [1] * behind, "shape")], "spread")


@converts("Scale")
def scale(job: LayerJob) -> None:
    """A blob times another or times stored numbers, and stored numbers added."""
    job.check_counts((1, 2))
    params, shape = job.params("scale_param"), job.bottoms[0].shape
    single = len(job.bottoms) == 1
    factor = _stored(job, params, 0, "scale") if single else _second(job, params)
    if not params.flag("bias_term"):
        job.top("Mul", [job.bottoms[0].name, factor], shape)
        return
    scaled = job.step("Mul", [job.bottoms[0].name, factor], "scaled")
    job.top("Add", [scaled, _added(job, params, single=single)], shape)


def _added(job: LayerJob, params: Params, *, single: bool) -> str:
    if single:
        return _stored(job, params, 1, "bias")
    # With two bottoms the bias is the only stored blob; it has the shape of the second bottom.
    part, rank = job.bottoms[1].shape, len(job.bottoms[0].shape)
    axis = 0 if not part else job.axis(params.integer("axis"), rank)
    behind = rank - axis - len(part) if part else 0
    return job.floats(job.blob(0, part).reshape(*part, *[1] * behind), "bias")


@converts("Bias")
def bias(job: LayerJob) -> None:
    """A blob plus another, or plus stored numbers."""
    job.check_counts((1, 2))
    params = job.params("bias_param")
    term = _stored(job, params, 0, "bias") if len(job.bottoms) == 1 else _second(job, params)
    job.top("Add", [job.bottoms[0].name, term], job.bottoms[0].shape)


@converts("Axpy")
def axpy(job: LayerJob) -> None:
    """A factor for each channel times a blob, plus another blob."""
    job.check_counts((3,))
    factor, blob, term = job.bottoms
    rank = len(blob.shape)
    fits = factor.shape[:2] == blob.shape[:2] and all(size == 1 for size in factor.shape[2:])
    if term.shape != blob.shape or not fits:
        sizes = ", ".join("x".join(map(str, bottom.shape)) for bottom in job.bottoms)
        raise job.refuse(f"combines blobs of the shapes {sizes}, which do not fit")
    spread = factor.name
    if len(factor.shape) != rank:
        spread = job.step("Reshape", [spread, job.integers([0, 0, *[1] * (rank - 2)], "shape")], "spread")
    scaled = job.step("Mul", [spread, blob.name], "scaled")
    job.top("Add", [scaled, term.name], blob.shape)
