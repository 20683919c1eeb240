"""Arithmetic between blobs and with stored numbers; normalizations of batches, channels and vectors."""

import math
from collections.abc import Sequence
from typing import Any

from roundoff.core.tensors import Array
from roundoff.graph.caffe.conversion import LayerJob, Params, Shape, converts
from roundoff.messages.message import english


@converts("Eltwise")
def eltwise(job: LayerJob) -> None:
    """Blobs of one shape multiplied, added with coefficients, or their largest values."""
    params = job.params("eltwise_param")
    shape = job.bottoms[0].shape if job.bottoms else ()
    if len(job.bottoms) < 2:
        raise job.refuse(english("has {count} bottoms; it takes two or more", count=len(job.bottoms)))
    job.check_counts((len(job.bottoms),))
    for bottom in job.bottoms:
        if bottom.shape != shape:
            sizes = " and ".join("x".join(map(str, each)) for each in (shape, bottom.shape))
            raise job.refuse(english("combines blobs of the shapes {sizes}; they must be equal", sizes=sizes))
    names, operation = [bottom.name for bottom in job.bottoms], params.choice("operation")
    factors = params.numbers("coeff")
    if factors and (operation != "SUM" or len(factors) != len(names)):
        raise job.refuse(
            english(
                "has {count} coefficients for {count2} bottoms; only SUM takes them, one each",
                count=len(factors),
                count2=len(names),
            )
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
        raise job.refuse(
            english(
                "covers {count} axes from axis {axis} on; the blob has {count2}",
                count=count,
                axis=axis,
                count2=len(shape),
            )
        )
    covered = shape[axis:] if count == -1 else shape[axis : axis + count]
    if axis == 0:
        job.fix_batch(english("layer {name!r} has stored numbers for each sample", name=job.layer.name))
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
        raise job.refuse(
            english(
                "combines blobs of the shapes {sizes}, which do not fit at axis {axis}", sizes=sizes, axis=axis
            )
        )
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
        raise job.refuse(english("combines blobs of the shapes {sizes}, which do not fit", sizes=sizes))
    spread = factor.name
    if len(factor.shape) != rank:
        spread = job.step("Reshape", [spread, job.integers([0, 0, *[1] * (rank - 2)], "shape")], "spread")
    scaled = job.step("Mul", [spread, blob.name], "scaled")
    job.top("Add", [scaled, term.name], blob.shape)


# Functions of single values.

_FLOAT = 1
_LARGEST_RELU6 = 6.0


def _function(job: LayerJob, op_type: str, *more: str, **attributes: Any) -> None:
    job.check_counts((1,))
    job.top(op_type, [job.bottoms[0].name, *more], job.bottoms[0].shape, **attributes)


@converts("ReLU")
def relu(job: LayerJob) -> None:
    """Negative values become zero, or a fraction of themselves."""
    slope = job.params("relu_param").number("negative_slope")
    if slope:
        _function(job, "LeakyRelu", alpha=slope)
    else:
        _function(job, "Relu")


@converts("NegReLU")
def neg_relu(job: LayerJob) -> None:
    """Positive values become zero, or a fraction of themselves (DispNet)."""
    slope = job.params("relu_param").number("negative_slope")
    if not slope:
        _function(job, "Min", job.floats(0.0, "zero"))
        return
    turned = job.step("Neg", [job.bottoms[0].name], "turned")
    job.top("Neg", [job.step("LeakyRelu", [turned], "leaky", alpha=slope)], job.bottoms[0].shape)


@converts("PReLU")
def prelu(job: LayerJob) -> None:
    """Negative values become a stored fraction of themselves, one for each channel."""
    job.check_counts((1,))
    shape = job.bottoms[0].shape
    if len(shape) < 2:
        raise job.refuse(english("needs an input with channels"))
    if job.params("prelu_param").flag("channel_shared"):
        slope = job.blob(0, ()).reshape(1)
    else:
        slope = job.blob(0, (shape[1],)).reshape(-1, *[1] * (len(shape) - 2))
    _function(job, "PRelu", job.floats(slope, "slope"))


@converts("ReLU6")
def relu6(job: LayerJob) -> None:
    """Values limited to 0..6."""
    _function(job, "Clip", job.floats(0.0, "lowest"), job.floats(_LARGEST_RELU6, "highest"))


@converts("Clip")
def clip(job: LayerJob) -> None:
    """Values limited to a range."""
    params = job.params("clip_param")
    _function(job, "Clip", job.floats(params.number("min"), "lowest"), job.floats(params.number("max"), "highest"))


@converts("ELU")
def elu(job: LayerJob) -> None:
    """Negative values become an exponential."""
    _function(job, "Elu", alpha=job.params("elu_param").number("alpha"))


@converts("Sigmoid", "TanH", "AbsVal", "BNLL")
def elementwise(job: LayerJob) -> None:
    """Functions that ONNX has by another name."""
    names = {"Sigmoid": "Sigmoid", "TanH": "Tanh", "AbsVal": "Abs", "BNLL": "Softplus"}
    _function(job, names[job.layer.type])


@converts("Swish")
def swish(job: LayerJob) -> None:
    """A value times the sigmoid of its beta-fold."""
    job.check_counts((1,))
    source = job.bottoms[0].name
    scaled = _scaled(job, job.params("swish_param").number("beta"), 0, source=source)
    gate = job.step("Sigmoid", [scaled], "sigmoid")
    job.top("Mul", [source, gate], job.bottoms[0].shape)


@converts("Mish")
def mish(job: LayerJob) -> None:
    """A value times tanh(log(1 + exp(x))), as YOLOv4 has it."""
    job.check_counts((1,))
    source = job.bottoms[0].name
    gate = job.step("Tanh", [job.step("Softplus", [source], "softplus")], "gate")
    job.top("Mul", [source, gate], job.bottoms[0].shape)


@converts("HSigmoid", "HSwish", "HardSwish")
def hard_gates(job: LayerJob) -> None:
    """(x + 3) / 6 within 0 and 1, as MobileNetV3 has it; or a value times that."""
    if job.layer.type == "HSigmoid":
        _function(job, "HardSigmoid", alpha=1 / 6, beta=0.5)
        return
    job.check_counts((1,))
    gate = job.step("HardSigmoid", [job.bottoms[0].name], "gate", alpha=1 / 6, beta=0.5)
    job.top("Mul", [job.bottoms[0].name, gate], job.bottoms[0].shape)


@converts("Threshold")
def threshold(job: LayerJob) -> None:
    """One where a value exceeds a limit, zero elsewhere."""
    job.check_counts((1,))
    limit = job.floats(job.params("threshold_param").number("threshold"), "limit")
    exceeds = job.step("Greater", [job.bottoms[0].name, limit], "exceeds")
    job.top("Cast", [exceeds], job.bottoms[0].shape, to=_FLOAT)


def _scaled(job: LayerJob, factor: float, shift: float, *, source: str) -> str:
    """``source * factor + shift``, without the operations that would change nothing."""
    if factor != 1:
        source = job.step("Mul", [source, job.floats(factor, "factor")], "scaled")
    if shift != 0:
        source = job.step("Add", [source, job.floats(shift, "shift")], "shifted")
    return source


@converts("Power")
def power(job: LayerJob) -> None:
    """(shift + scale * x) ^ power."""
    job.check_counts((1,))
    params, shape = job.params("power_param"), job.bottoms[0].shape
    exponent, scale, shift = (params.number(name) for name in ("power", "scale", "shift"))
    source = job.bottoms[0].name
    if exponent != 1:
        source = _scaled(job, scale, shift, source=source)
        job.top("Pow", [source, job.floats(exponent, "power")], shape)
    elif shift != 0:
        source = _scaled(job, scale, 0, source=source)
        job.top("Add", [source, job.floats(shift, "shift")], shape)
    else:
        job.top("Mul", [source, job.floats(scale, "factor")], shape)


def _natural(job: LayerJob, base: float) -> float:
    """The logarithm of a base; -1 stands for e."""
    if base == -1:
        return 1.0
    if base <= 0:
        raise job.refuse(english("has the base {base:g}; it must be positive, or -1 for e", base=base))
    return math.log(base)


@converts("Exp")
def exponential(job: LayerJob) -> None:
    """Base ^ (shift + scale * x)."""
    job.check_counts((1,))
    params = job.params("exp_param")
    natural = _natural(job, params.number("base"))
    factor, shift = natural * params.number("scale"), natural * params.number("shift")
    job.top("Exp", [_scaled(job, factor, shift, source=job.bottoms[0].name)], job.bottoms[0].shape)


@converts("Log")
def logarithm(job: LayerJob) -> None:
    """log_base(shift + scale * x)."""
    job.check_counts((1,))
    params, shape = job.params("log_param"), job.bottoms[0].shape
    natural = _natural(job, params.number("base"))
    if natural == 0:
        raise job.refuse(english("has the base 1, to which there are no logarithms"))
    source = _scaled(job, params.number("scale"), params.number("shift"), source=job.bottoms[0].name)
    if natural == 1:
        job.top("Log", [source], shape)
        return
    logs = job.step("Log", [source], "log")
    job.top("Div", [logs, job.floats(natural, "base")], shape)


@converts("SpatialDropout", "SpatialDropoutLayer")
def spatial_dropout(job: LayerJob) -> None:
    """Drops whole channels in training, nothing outside of it; ENet has it in Python."""
    identity(job)


@converts("Dropout")
def dropout(job: LayerJob) -> None:
    """Drops nothing outside of training; some old nets scale here instead of there."""
    job.check_counts((1,))
    params = job.params("dropout_param")
    if params.flag("scale_train"):
        identity(job)
    else:
        kept = job.floats(1 - params.number("dropout_ratio"), "kept")
        job.top("Mul", [job.bottoms[0].name, kept], job.bottoms[0].shape)


@converts("Split")
def identity(job: LayerJob) -> None:
    """Every top is the bottom."""
    job.check_counts((1,), range(1, job.top_count() + 1))
    for index in range(job.top_count()):
        job.top("Identity", [job.bottoms[0].name], job.bottoms[0].shape, index=index)


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
            english(
                "has {size} neighbours and an input with {count} axes; it takes an odd number, and 4",
                size=size,
                count=len(shape),
            )
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
        raise job.refuse(english("needs an input with channels"))
    if params.has("use_global_stats") and not params.flag("use_global_stats"):
        _own_statistics(job, params.number("eps"))
        return
    channels = shape[1]
    stored = float(job.blob(2, ()))
    factor = 1 / stored if stored else 0.0
    mean, variance = (job.blob(index, (channels,)) * factor for index in (0, 1))
    if (variance + params.number("eps") <= 0).any():
        raise job.refuse(english("has stored variances below zero"), fix=english("save the .caffemodel again"))
    if params.flag("scale_bias"):  # a fork that has the Scale layer in here
        ones, zeros = (job.floats(job.blob(3 + place, (channels,)), name) for place, name in enumerate(_AFFINE))
    else:
        ones, zeros = job.floats([1.0] * channels, "ones"), job.floats([0.0] * channels, "zeros")
    inputs = [source, ones, zeros, job.floats(mean, "mean"), job.floats(variance, "variance")]
    job.top("BatchNormalization", inputs, shape, epsilon=params.number("eps"))


_AFFINE = ("scale", "bias")
# What SegNet's layer adds to the variance of a batch.
_SEGNET_EPS = 1e-9


@converts("BN")
def bn(job: LayerJob) -> None:
    """SegNet's layer, a factor and a term; or that of PSPNet, which has means and variances besides."""
    job.check_counts((1,))
    params, shape, source = job.params("bn_param"), job.bottoms[0].shape, job.bottoms[0].name
    if len(shape) < 2:
        raise job.refuse(english("needs an input with channels"))
    factor, term = (_channel_numbers(job, place) for place in (0, 1))
    # Without any numbers the words say which of the two it is.
    if len(job.layer.blobs) > 2 or (not job.layer.blobs and params.has("slope_filler")):
        mean, variance = (_channel_numbers(job, place) for place in (2, 3))
        stored = zip((factor, term, mean, variance), (*_AFFINE, "mean", "variance"), strict=True)
        inputs = [source, *(job.floats(values, name) for values, name in stored)]
        job.top("BatchNormalization", inputs, shape, epsilon=params.number("eps"))
        return
    if params.choice("bn_mode") == "LEARN":
        source = _own_statistics(job, _SEGNET_EPS, step="normalized")
    spread = (-1, *[1] * (len(shape) - 2))
    scaled = job.step("Mul", [source, job.floats(factor.reshape(spread), "scale")], "scaled")
    job.top("Add", [scaled, job.floats(term.reshape(spread), "shift")], shape)


def _channel_numbers(job: LayerJob, index: int) -> Array:
    """A stored blob of a number for each channel; these layers keep it as a blob of four axes, or of one."""
    count = job.bottoms[0].shape[1]
    four = index < len(job.layer.blobs) and job.layer.blobs[index].ndim == 4
    return job.blob(index, (count, 1, 1) if four else (count,)).reshape(count)


def _own_statistics(job: LayerJob, eps: float, step: str = "") -> str:
    """Means and variances of the batch at hand; the top itself, or a step before it."""
    shape, source = job.bottoms[0].shape, job.bottoms[0].name
    job.fix_batch(
        english("layer {name!r} normalizes with the statistics of the batch it is fed", name=job.layer.name)
    )
    axes = [place for place in range(len(shape)) if place != 1]
    mean = job.step("ReduceMean", [source], "mean", axes=axes, keepdims=1)
    centred = job.step("Sub", [source, mean], "centred")
    squares = job.step("Mul", [centred, centred], "squares")
    variance = job.step("ReduceMean", [squares], "variance", axes=axes, keepdims=1)
    spread = job.step("Sqrt", [job.step("Add", [variance, job.floats(eps, "eps")], "raised")], "spread")
    if step:
        return job.step("Div", [centred, spread], step)
    job.top("Div", [centred, spread], shape)
    return job.tops[0].name


@converts("MVN")
def mvn(job: LayerJob) -> None:
    """Values made to have mean zero, and variance one if asked, per channel or per sample."""
    job.check_counts((1,))
    params, shape, source = job.params("mvn_param"), job.bottoms[0].shape, job.bottoms[0].name
    axes = list(range(1 if params.flag("across_channels") else 2, len(shape)))
    if not axes:
        raise job.refuse(english("normalizes planes, but its input has {count} axes", count=len(shape)))
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
    if len(shape) == 2 and not job.layer.blobs:  # that of face recognition, which stores nothing
        job.top("LpNormalization", [source], shape, axis=1, p=2)
        return
    if len(shape) != 4:
        raise job.refuse(english("has an input with {count} axes instead of 4", count=len(shape)))
    axes = [1, 2, 3] if params.flag("across_spatial") else [1]
    squares = job.step("ReduceSumSquare", [source], "squares", axes=axes, keepdims=1)
    raised = job.step("Add", [squares, job.floats(params.number("eps"), "eps")], "raised")
    unit = job.step("Div", [source, job.step("Sqrt", [raised], "length")], "unit")
    factor = job.blob(0, ()) if params.flag("channel_shared") else job.blob(0, (shape[1],)).reshape(-1, 1, 1)
    job.top("Mul", [unit, job.floats(factor, "scale")], shape)
