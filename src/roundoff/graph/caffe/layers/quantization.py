"""The layers that a quantization tool adds to a net."""

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.caffe.conversion import LayerJob
from roundoff.graph.caffe.registry import converts

__all__ = ["anti_quant", "dequant", "quant"]

_INT16 = (-(2.0**15), 2.0**15 - 1)
_SCALE_BITS, _SHIFT_BITS = np.uint64(32), np.uint64(0xFF)


@converts("Quant")
def quant(job: LayerJob) -> None:
    """Values rounded to int8 and back; before integer weights, the integers themselves as float."""
    job.check_counts((1,))
    params, shape = job.params("quant_param"), job.bottoms[0].shape
    stored = params.number("scale")
    if stored <= 0:
        raise job.refuse(f"has the scale {stored:g}; it must be above zero")
    offset = np.frombuffer(params.data("offset")[:1] or b"\0", np.int8)[0]
    zero = job.constant(np.array(offset, np.int8), "offset")
    # The file holds the reciprocal of the step.
    scale = job.floats(1 / stored, "scale")
    codes = job.step("QuantizeLinear", [job.bottoms[0].name, scale, zero], "codes")
    back = job.floats(1.0, "one") if job.feeds_integers() else scale
    job.top("DequantizeLinear", [codes, back, zero], shape)


@converts("DeQuant")
def dequant(job: LayerJob) -> None:
    """The end of a quantized layer: a factor for integers; nothing for rounded floats, unless the chip shifts."""
    job.check_counts((1,))
    shape, source = job.bottoms[0].shape, job.bottoms[0].name
    factor, shift = _stored(job)
    if not shift.any():
        if job.fed_by_integers():
            job.top("Mul", [source, job.floats(_spread(job, factor), "deqscale")], shape)
        else:
            job.top("Identity", [source], shape)
        return
    if not shift.all():
        raise job.refuse("mixes shift bits of zero with others", fix="quantize the net again")
    power = np.exp2(shift)
    if not job.fed_by_integers():
        units = job.step("Div", [source, job.floats(_spread(job, factor), "deqscale")], "units")
        source = job.step("Round", [units], "integers")
    shifted = job.step("Div", [source, job.floats(_spread(job, power), "power")], "shifted")
    rounded = job.step("Round", [shifted], "rounded")
    limits = [job.floats(limit, step) for limit, step in zip(_INT16, ("lowest", "highest"), strict=True)]
    limited = job.step("Clip", [rounded, *limits], "limited")
    job.top("Mul", [limited, job.floats(_spread(job, factor * power), "unit")], shape)


def _stored(job: LayerJob) -> tuple[Array, Array]:
    """Factors and shift bits, from the blobs or from the .prototxt."""
    if not job.layer.blobs:
        params = job.params("dequant_param")
        factor = np.array(params.numbers("deqscale") or [1.0], np.float32)
        shift = np.array(params.numbers("shift_bit") or [0.0], np.float32)
        return factor, np.broadcast_to(shift, np.broadcast_shapes(factor.shape, shift.shape))
    first = job.raw_blob(0).ravel()
    if first.dtype == np.uint64:
        low = (first & np.uint64(2**32 - 1)).astype(np.uint32).view(np.float32)
        return low, (first >> _SCALE_BITS & _SHIFT_BITS).astype(np.float32)
    shift = job.raw_blob(1).ravel() if len(job.layer.blobs) > 1 else np.zeros(1, np.float32)
    return first.astype(np.float32), shift.astype(np.float32)


def _spread(job: LayerJob, values: Array) -> Array:
    """One value, or one for each channel."""
    shape = job.bottoms[0].shape
    if values.size == 1:
        return np.asarray(values.reshape(()))
    if len(shape) < 2 or values.size != shape[1]:
        raise job.refuse(f"has {values.size} factors for a blob of the shape {'x'.join(map(str, shape))}")
    return values.reshape(-1, *[1] * (len(shape) - 2))


@converts("AntiQuant")
def anti_quant(job: LayerJob) -> None:
    """Integers times their step."""
    job.check_counts((1,))
    params = job.params("antiquant_param" if job.given("antiquant_param") else "quant_param")
    scale = job.floats(params.number("scale"), "scale")
    job.top("Mul", [job.bottoms[0].name, scale], job.bottoms[0].shape)
