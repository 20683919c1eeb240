"""Functions of single values."""

import math
from typing import Any

from roundoff.graph.caffe.job import LayerJob
from roundoff.graph.caffe.registry import converts

__all__ = ["elementwise", "identity"]

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


@converts("PReLU")
def prelu(job: LayerJob) -> None:
    """Negative values become a stored fraction of themselves, one for each channel."""
    job.check_counts((1,))
    shape = job.bottoms[0].shape
    if len(shape) < 2:
        raise job.refuse("needs an input with channels")
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
    """A value times its sigmoid."""
    job.check_counts((1,))
    source = job.bottoms[0].name
    gate = job.step("Sigmoid", [source], "sigmoid")
    job.top("Mul", [source, gate], job.bottoms[0].shape)


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
        raise job.refuse(f"has the base {base:g}; it must be positive, or -1 for e")
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
        raise job.refuse("has the base 1, to which there are no logarithms")
    source = _scaled(job, params.number("scale"), params.number("shift"), source=job.bottoms[0].name)
    if natural == 1:
        job.top("Log", [source], shape)
        return
    logs = job.step("Log", [source], "log")
    job.top("Div", [logs, job.floats(natural, "base")], shape)


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
