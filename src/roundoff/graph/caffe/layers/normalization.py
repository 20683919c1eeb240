"""Normalizations: of batches, channels, neighbourhoods and vectors."""

from roundoff.graph.caffe.conversion import LayerJob
from roundoff.graph.caffe.registry import converts

__all__ = ["batch_norm", "lrn", "mvn", "normalize", "softmax"]


@converts("Softmax")
def softmax(job: LayerJob) -> None:
    """Exponentials that add up to one along an axis."""
    job.check_counts((1,))
    shape = job.bottoms[0].shape
    axis = job.axis(job.params("softmax_param").integer("axis"), len(shape))
    job.top("Softmax", [job.bottoms[0].name], shape, axis=axis)


@converts("LRN")
def lrn(job: LayerJob) -> None:
    """Values divided by the strength of their neighbours, in other channels or in the plane."""
    job.check_counts((1,))
    params, shape, source = job.params("lrn_param"), job.bottoms[0].shape, job.bottoms[0].name
    size, alpha, beta = params.integer("local_size"), params.number("alpha"), params.number("beta")
    if len(shape) != 4 or size % 2 == 0:
        raise job.refuse(
            f"has {size} neighbours and an input with {len(shape)} axes; it takes an odd number, and 4"
        )
    if params.choice("norm_region") == "ACROSS_CHANNELS":
        job.top("LRN", [source], shape, size=size, alpha=alpha, beta=beta, bias=params.number("k"))
        return
    squares = job.step("Mul", [source, source], "squares")
    half = (size - 1) // 2
    window = {"kernel_shape": [size] * 2, "strides": [1, 1], "pads": [half] * 4, "count_include_pad": 1}
    means = job.step("AveragePool", [squares], "means", **window)
    # Caffe takes 1 here, whatever k is.
    scaled = job.step("Mul", [means, job.floats(alpha, "alpha")], "scaled")
    shifted = job.step("Add", [scaled, job.floats(1.0, "one")], "shifted")
    factor = job.step("Pow", [shifted, job.floats(-beta, "power")], "factor")
    job.top("Mul", [source, factor], shape)


@converts("BatchNorm")
def batch_norm(job: LayerJob) -> None:
    """Stored means and variances, each divided by a stored factor; a Scale layer usually follows."""
    job.check_counts((1,))
    params, shape, source = job.params("batch_norm_param"), job.bottoms[0].shape, job.bottoms[0].name
    if len(shape) < 2:
        raise job.refuse("needs an input with channels")
    if params.has("use_global_stats") and not params.flag("use_global_stats"):
        _own_statistics(job, params.number("eps"))
        return
    channels = shape[1]
    stored = float(job.blob(2, ()))
    factor = 1 / stored if stored else 0.0
    mean, variance = (job.blob(index, (channels,)) * factor for index in (0, 1))
    if (variance + params.number("eps") <= 0).any():
        raise job.refuse("has stored variances below zero", fix="save the .caffemodel again")
    ones, zeros = job.floats([1.0] * channels, "ones"), job.floats([0.0] * channels, "zeros")
    inputs = [source, ones, zeros, job.floats(mean, "mean"), job.floats(variance, "variance")]
    job.top("BatchNormalization", inputs, shape, epsilon=params.number("eps"))


def _own_statistics(job: LayerJob, eps: float) -> None:
    """With use_global_stats: false, means and variances are those of the batch at hand."""
    shape, source = job.bottoms[0].shape, job.bottoms[0].name
    job.fix_batch(f"layer {job.layer.name!r} normalizes with the statistics of the batch it is fed")
    axes = [place for place in range(len(shape)) if place != 1]
    mean = job.step("ReduceMean", [source], "mean", axes=axes, keepdims=1)
    centred = job.step("Sub", [source, mean], "centred")
    squares = job.step("Mul", [centred, centred], "squares")
    variance = job.step("ReduceMean", [squares], "variance", axes=axes, keepdims=1)
    spread = job.step("Sqrt", [job.step("Add", [variance, job.floats(eps, "eps")], "raised")], "spread")
    job.top("Div", [centred, spread], shape)


@converts("MVN")
def mvn(job: LayerJob) -> None:
    """Values made to have mean zero, and variance one if asked, per channel or per sample."""
    job.check_counts((1,))
    params, shape, source = job.params("mvn_param"), job.bottoms[0].shape, job.bottoms[0].name
    axes = list(range(1 if params.flag("across_channels") else 2, len(shape)))
    if not axes:
        raise job.refuse(f"normalizes planes, but its input has {len(shape)} axes")
    mean = job.step("ReduceMean", [source], "mean", axes=axes, keepdims=1)
    if not params.flag("normalize_variance"):
        job.top("Sub", [source, mean], shape)
        return
    centred = job.step("Sub", [source, mean], "centred")
    squares = job.step("Mul", [centred, centred], "squares")
    variance = job.step("ReduceMean", [squares], "variance", axes=axes, keepdims=1)
    # Unlike elsewhere, eps is added to the root.
    deviation = job.step("Sqrt", [variance], "deviation")
    spread = job.step("Add", [deviation, job.floats(params.number("eps"), "eps")], "spread")
    job.top("Div", [centred, spread], shape)


@converts("Normalize")
def normalize(job: LayerJob) -> None:
    """Vectors brought to length one, times stored numbers."""
    job.check_counts((1,))
    params = job.params("norm_param" if job.given("norm_param") else "normalize_param")
    shape, source = job.bottoms[0].shape, job.bottoms[0].name
    if len(shape) != 4:
        raise job.refuse(f"has an input with {len(shape)} axes instead of 4")
    axes = [1, 2, 3] if params.flag("across_spatial") else [1]
    squares = job.step("ReduceSumSquare", [source], "squares", axes=axes, keepdims=1)
    raised = job.step("Add", [squares, job.floats(params.number("eps"), "eps")], "raised")
    unit = job.step("Div", [source, job.step("Sqrt", [raised], "length")], "unit")
    factor = job.blob(0, ()) if params.flag("channel_shared") else job.blob(0, (shape[1],)).reshape(-1, 1, 1)
    job.top("Mul", [unit, job.floats(factor, "scale")], shape)
