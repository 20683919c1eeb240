"""Convolution and its transpose, with groups, holes and any number of spatial axes."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from roundoff.core.tensors import Array
from roundoff.core.text_proto import TextMessage
from roundoff.graph.caffe.conversion import LayerJob, Params, converts
from roundoff.graph.caffe.net import CaffeLayer, Net
from roundoff.messages.message import english

# The weights of layers that multiply: as floats, or as codes where a quantization tool rounded them.


def add_weights(job: LayerJob, weights: Array, bias: Array | None, *, axis: int) -> list[str]:
    """Add the weights and the bias of a layer; gives their names.

    In a net that a quantization tool wrote they are rounded already. Stored as codes they are the same numbers,
    and can be told from weights in float.

    Args:
        job: The layer.
        weights: Its weights.
        bias: Its bias, if it has one.
        axis: The axis of the outputs.
    """
    steps = weight_steps(job.layer, job.net)
    of_weights, of_bias = (None, None) if steps is None else steps
    if of_weights is not None and of_weights.size > weights.shape[axis]:
        of_weights = of_weights[: weights.shape[axis]]  # of a transposed convolution: all groups have the same
    names = [_add(job, weights, of_weights, name="weight", axis=axis, dtype="int8")]
    if bias is not None:
        names.append(_add(job, bias, of_bias, name="bias", axis=0, dtype="int32"))
    return names


def _add(job: LayerJob, values: Array, steps: Array | None, *, name: str, axis: int, dtype: str) -> str:
    codes = None if steps is None else find_codes(values, steps, axis=axis, dtype=dtype)
    if codes is None:
        return job.floats(values, name)
    zero = np.zeros(codes.scale.shape, codes.values.dtype)
    stored = [job.constant(codes.values, f"{name}_codes"), job.floats(codes.scale, f"{name}_scale")]
    attributes = {"axis": axis} if codes.scale.ndim else {}
    return job.step("DequantizeLinear", [*stored, job.constant(zero, f"{name}_zero")], name, **attributes)


_PLANE = 2
_ALONG_TIME = {
    "kernel_size": ("kernel_depth", "kernel_l"),
    "stride": ("temporal_stride", "stride_l"),
    "pad": ("temporal_pad", "pad_l"),
}


def volume_params(job: LayerJob, name: str) -> Params:
    """The parameters of a layer, or those under the name that some forks give them for videos."""
    deep = name.replace("_param", "3d_param")
    return job.params(deep if job.given(deep) else name)


@dataclass(frozen=True, slots=True)
class Window:
    """How a window moves over the spatial axes, one value per axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]

    def attributes(self) -> dict[str, Any]:
        """The same in ONNX's words."""
        return {
            "kernel_shape": list(self.kernel),
            "strides": list(self.stride),
            "pads": [*self.pad, *self.pad],
            "dilations": list(self.dilation),
        }

    def extent(self) -> tuple[int, ...]:
        """How far the window reaches, with its holes."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))


def spatial(job: LayerJob, params: Params, name: str, *, default: int | None, count: int) -> tuple[int, ...]:
    """A size per spatial axis: ``<name>_h`` and ``<name>_w``, or ``<name>`` once or once per axis.

    Layers of videos have the one along time by itself (``kernel_depth``, ``temporal_stride``, ``temporal_pad``, or
    ``kernel_l`` and so on), or all of them as a shape (``kernel_shape``).

    Args:
        job: The layer.
        params: Its parameters.
        name: ``pad``, ``stride``, ``dilation`` or ``kernel_size``.
        default: What it is when it is not given; None when it must be.
        count: How many spatial axes there are.
    """
    stem = name.removesuffix("_size")
    if job.layer.type.endswith("3D") or any(params.has(word) for words in _ALONG_TIME.values() for word in words):
        word = next((word for word in _ALONG_TIME.get(name, ()) if params.has(word)), "")
        if count != _PLANE + 1 or not (word or default is not None):
            raise job.refuse(english("needs kernel_depth, and an input with 5 axes"))
        along = params.integer(word) if word else default or 0
        return (along, *_across(job, params, name, default=default, count=_PLANE))
    if params.has(f"{stem}_shape"):
        return _for_each(job, params.inner(f"{stem}_shape").integers("dim"), f"{stem}_shape", count)
    return _across(job, params, name, default=default, count=count)


def _across(job: LayerJob, params: Params, name: str, *, default: int | None, count: int) -> tuple[int, ...]:
    stem = name.removesuffix("_size")
    pair = (f"{stem}_h", f"{stem}_w")
    sides = [params.has(side) for side in pair] if pair[0] in params.spec.by_name else [False]
    given = params.integers(name)
    if any(sides):
        if count != _PLANE or given or not (all(sides) or default is not None):
            raise job.refuse(
                english(
                    "has {pair}, which go together, without {name}, for two spatial axes",
                    pair=" and ".join(pair),
                    name=name,
                )
            )
        return tuple(params.integer(side) if params.has(side) else default or 0 for side in pair)
    if not given and default is not None:
        return (default,) * count
    return _for_each(job, given, name, count)


def _for_each(job: LayerJob, given: tuple[int, ...], name: str, count: int) -> tuple[int, ...]:
    """One value for each axis, where there may be one for all."""
    if len(given) not in (1, count):
        raise job.refuse(
            english(
                "has {count} values of {name} for {count2} spatial axes", count=len(given), name=name, count2=count
            )
        )
    return given * count if len(given) == 1 else given


def _window(job: LayerJob, params: Params, count: int) -> Window:
    # The first DeepLab nets say `hole`, before Caffe had the word.
    holes = "hole" if any(map(params.has, ("hole", "hole_h", "hole_w"))) else "dilation"
    window = Window(
        kernel=spatial(job, params, "kernel_size", default=None, count=count),
        stride=spatial(job, params, "stride", default=1, count=count),
        pad=spatial(job, params, "pad", default=0, count=count),
        dilation=spatial(job, params, holes, default=1, count=count),
    )
    if min(*window.kernel, *window.stride, *window.dilation) < 1:
        raise job.refuse(english("has a kernel, stride or dilation of zero"))
    return window


def _channels(job: LayerJob, params: Params, group: int) -> tuple[int, int]:
    """Channels of the input, and of the output."""
    job.check_counts((1,))
    shape = job.bottoms[0].shape
    if len(shape) < 3 or job.axis(params.integer("axis"), len(shape)) != 1:
        raise job.refuse(english("convolves along other axes than those behind the channels; axis must be 1"))
    channels, out = shape[1], params.integer("num_output")
    if group < 1 or out < 1 or channels % group or out % group:
        raise job.refuse(
            english(
                "has {group} groups, which do not divide {channels} channels and {out} outputs",
                group=group,
                channels=channels,
                out=out,
            )
        )
    return channels, out


def _inputs(job: LayerJob, params: Params, weights: Array, *, axis: int) -> list[str]:
    bias = job.blob(1, (params.integer("num_output"),)) if params.flag("bias_term") else None
    return [job.bottoms[0].name, *add_weights(job, weights, bias, axis=axis)]


def _convolve(job: LayerJob, group: int) -> None:
    params = volume_params(job, "convolution_param")
    channels, out = _channels(job, params, group)
    (batch, _, *sizes) = job.bottoms[0].shape
    window = _window(job, params, len(sizes))
    weights = job.blob(0, (out, channels // group, *window.kernel))
    inputs = _inputs(job, params, weights, axis=0)
    placed = zip(sizes, window.pad, window.extent(), window.stride, strict=True)
    outputs = [(size + 2 * pad - extent) // stride + 1 for size, pad, extent, stride in placed]
    job.top("Conv", inputs, (batch, out, *outputs), group=group, **window.attributes())


@converts("Convolution", "Convolution3D", "NdConvolution")
def convolution(job: LayerJob) -> None:
    """A convolution."""
    _convolve(job, volume_params(job, "convolution_param").integer("group"))


@converts("ConvolutionDepthwise", "DepthwiseConvolution")
def depthwise(job: LayerJob) -> None:
    """A convolution of each channel by itself, whatever it says of groups."""
    job.check_counts((1,))
    shape = job.bottoms[0].shape
    _convolve(job, shape[1] if len(shape) > 1 else 1)


@converts("Im2col")
def im2col(job: LayerJob) -> None:
    """The values under each place of a window as channels: a convolution by ones."""
    job.check_counts((1,))
    params, (batch, channels, *sizes) = job.params("convolution_param"), job.bottoms[0].shape
    window = _window(job, params, len(sizes))
    count = math.prod(window.kernel)
    ones = np.tile(np.eye(count, dtype=np.float32), (channels, 1)).reshape(-1, 1, *window.kernel)
    placed = zip(sizes, window.pad, window.extent(), window.stride, strict=True)
    outputs = [(size + 2 * pad - extent) // stride + 1 for size, pad, extent, stride in placed]
    inputs = [job.bottoms[0].name, job.floats(ones, "ones")]
    job.top("Conv", inputs, (batch, channels * count, *outputs), group=channels, **window.attributes())


@converts("Deconvolution", "Deconvolution3D")
def deconvolution(job: LayerJob) -> None:
    """The transpose of a convolution."""
    params = volume_params(job, "convolution_param")
    group = params.integer("group")
    channels, out = _channels(job, params, group)
    (batch, _, *sizes) = job.bottoms[0].shape
    window = _window(job, params, len(sizes))
    weights = job.blob(0, (channels, out // group, *window.kernel))
    inputs = _inputs(job, params, weights, axis=1)
    placed = zip(sizes, window.pad, window.extent(), window.stride, strict=True)
    outputs = [stride * (size - 1) + extent - 2 * pad for size, pad, extent, stride in placed]
    job.top("ConvTranspose", inputs, (batch, out, *outputs), group=group, **window.attributes())


# Products with stored matrices: fully connected layers and look-up tables.

_FLOAT, _INT64 = 1, 7


@converts("InnerProduct")
def inner_product(job: LayerJob) -> None:
    """Every output is a weighted sum of all values behind an axis."""
    job.check_counts((1,))
    params, shape = job.params("inner_product_param"), job.bottoms[0].shape
    axis = job.axis(params.integer("axis"), len(shape))
    count, out = math.prod(shape[axis:]), params.integer("num_output")
    transposed = params.flag("transpose")
    weights = job.blob(0, (count, out) if transposed else (out, count))
    bias = job.blob(1, (out,)) if params.flag("bias_term") else None
    source = job.bottoms[0].name
    top = (*shape[:axis], out)
    if axis == 1:
        if len(shape) != 2:
            source = job.step("Flatten", [source], "flat", axis=1)
        numbers = add_weights(job, weights, bias, axis=1 if transposed else 0)
        job.top("Gemm", [source, *numbers], top, transB=int(not transposed))
        return
    if axis == 0:
        job.fix_batch(f"layer {job.layer.name!r} sums over the samples")
    if len(shape) - axis != 1:
        rows = [0] * axis + [count]
        source = job.step("Reshape", [source, job.integers(rows, "rows")], "flat")
    matrix = job.floats(weights if transposed else weights.T, "weight")
    if bias is None:
        job.top("MatMul", [source, matrix], top)
        return
    product = job.step("MatMul", [source, matrix], "product")
    job.top("Add", [product, job.floats(bias, "bias")], top)


@converts("Embed")
def embed(job: LayerJob) -> None:
    """Rows of a table, chosen by number."""
    job.check_counts((1,))
    params = job.params("embed_param")
    rows, out = params.integer("input_dim"), params.integer("num_output")
    table = job.floats(job.blob(0, (rows, out)), "weight")
    numbers = job.step("Cast", [job.bottoms[0].name], "numbers", to=_INT64)
    top = (*job.bottoms[0].shape, out)
    if not params.flag("bias_term"):
        job.top("Gather", [table, numbers], top)
        return
    chosen = job.step("Gather", [table, numbers], "chosen")
    job.top("Add", [chosen, job.floats(job.blob(1, (out,)), "bias")], top)


# Layers that vendors' quantizers add.


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
