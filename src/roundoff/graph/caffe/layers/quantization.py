"""What a quantization tool leaves in a net: layers of its own, and weights that are codes stored as floats."""

from typing import NamedTuple

import numpy as np

from roundoff.core.tensors import Array
from roundoff.core.text_proto import TextMessage
from roundoff.graph.caffe.conversion import LayerJob, converts
from roundoff.graph.caffe.net import CaffeLayer, Net
from roundoff.messages.message import english

__all__ = [
    "StoredCodes",
    "anti_quant",
    "dequant",
    "find_codes",
    "quant",
    "weight_steps",
]

_LIMITS = {"int8": (-128, 127), "int32": (-(2**31), 2**31 - 1)}


class StoredCodes(NamedTuple):
    """Codes, and the scale by which they are exactly the stored values."""

    values: Array
    scale: Array


def weight_steps(layer: CaffeLayer, net: Net) -> tuple[Array, Array] | None:
    """The steps of a layer's weights and of its bias, as the Quant and DeQuant layers around it tell them.

    Both are of one value, or of one for each output; None when such layers do not stand around it.
    """
    place = next(index for index, other in enumerate(net.layers) if other is layer)
    before = next((other for other in reversed(net.layers[:place]) if layer.bottoms[0] in other.tops), None)
    behind = next((other for other in net.layers[place + 1 :] if layer.tops[0] in other.bottoms), None)
    if before is None or before.type != "Quant" or behind is None or behind.type != "DeQuant" or not behind.blobs:
        return None
    stored = (before.message.message("quant_param") or TextMessage()).get("scale", 1.0)
    factor = behind.blobs[0].ravel()
    if factor.dtype != np.float32 or not isinstance(stored, int | float) or not (factor > 0).all():
        return None
    # The Quant layer holds the reciprocal of the input's step, the DeQuant layer the product of both steps.
    return np.asarray(factor * np.float32(stored), np.float32), factor


def find_codes(values: Array, steps: Array, *, axis: int, dtype: str = "int8") -> StoredCodes | None:
    """The codes of stored values; None unless they are the values exactly.

    Args:
        values: Floats.
        steps: One step, or one for each slice along the axis, as well as they are known.
        axis: Of the slices.
        dtype: Of the codes.
    """
    if steps.size not in (1, values.shape[axis]) or not values.size or not np.isfinite(values).all():
        return None
    moved = np.moveaxis(values, axis, 0)
    rows = moved.reshape(len(steps), -1)
    with np.errstate(over="ignore"):
        whole = np.rint(rows / steps[:, None])
    low, high = _LIMITS[dtype]
    if whole.min() < low or whole.max() > high:
        return None
    scale = _exact_scale(rows, whole, steps)
    if scale is None:
        return None
    codes = np.moveaxis(whole.astype(dtype).reshape(moved.shape), 0, axis)
    return StoredCodes(np.ascontiguousarray(codes), scale if steps.size > 1 else scale.reshape(()))


def _exact_scale(rows: Array, whole: Array, steps: Array) -> Array | None:
    """The scale of each row by which its codes are exactly its values; the steps may be off in their last bits."""
    largest = np.abs(whole).argmax(axis=1)[:, None]
    top, code = (np.take_along_axis(each, largest, axis=1)[:, 0] for each in (rows, whole))
    ratio = np.where(code == 0, steps, top / np.where(code == 0, 1, code)).astype(np.float32)
    tries = [steps, ratio]
    tries += [np.nextafter(each, np.float32(end)) for each in (steps, ratio) for end in (0, np.inf)]
    scale = np.zeros_like(steps)
    left = np.ones(len(steps), bool)
    for each in tries:
        again = (whole[left] * each[left, None]).astype(np.float32)
        fits = (again == rows[left]).all(axis=1)
        found = np.flatnonzero(left)[fits]
        scale[found] = each[found]
        left[found] = False
        if not left.any():
            return scale
    return None


_INT16 = (-(2.0**15), 2.0**15 - 1)
_SCALE_BITS, _SHIFT_BITS = np.uint64(32), np.uint64(0xFF)


@converts("Quant")
def quant(job: LayerJob) -> None:
    """Values rounded to int8 and back; before integer weights, the integers themselves as float."""
    job.check_counts((1,))
    params, shape = job.params("quant_param"), job.bottoms[0].shape
    stored = params.number("scale")
    if stored <= 0:
        raise job.refuse(english("has the scale {stored:g}; it must be above zero", stored=stored))
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
        raise job.refuse(english("mixes shift bits of zero with others"), fix=english("quantize the net again"))
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
        raise job.refuse(
            english(
                "has {size} factors for a blob of the shape {shape}",
                size=values.size,
                shape="x".join(map(str, shape)),
            )
        )
    return values.reshape(-1, *[1] * (len(shape) - 2))


@converts("AntiQuant")
def anti_quant(job: LayerJob) -> None:
    """Integers times their step."""
    job.check_counts((1,))
    params = job.params("antiquant_param" if job.given("antiquant_param") else "quant_param")
    scale = job.floats(params.number("scale"), "scale")
    job.top("Mul", [job.bottoms[0].name, scale], job.bottoms[0].shape)
