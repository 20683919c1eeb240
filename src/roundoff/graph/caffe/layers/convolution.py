"""Convolution and its transpose, with groups, holes and any number of spatial axes."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.caffe.conversion import LayerJob, Params, converts
from roundoff.graph.caffe.layers.quantization import find_codes, weight_steps
from roundoff.messages.message import english

__all__ = [
    "Window",
    "add_weights",
    "embed",
    "inner_product",
    "spatial",
]


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

    Args:
        job: The layer.
        params: Its parameters.
        name: ``pad``, ``stride``, ``dilation`` or ``kernel_size``.
        default: What it is when it is not given; None when it must be.
        count: How many spatial axes there are.
    """
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
    if len(given) not in (1, count):
        raise job.refuse(
            english(
                "has {count} values of {name} for {count2} spatial axes", count=len(given), name=name, count2=count
            )
        )
    return given * count if len(given) == 1 else given


def _window(job: LayerJob, params: Params, count: int) -> Window:
    window = Window(
        kernel=spatial(job, params, "kernel_size", default=None, count=count),
        stride=spatial(job, params, "stride", default=1, count=count),
        pad=spatial(job, params, "pad", default=0, count=count),
        dilation=spatial(job, params, "dilation", default=1, count=count),
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
    params = job.params("convolution_param")
    channels, out = _channels(job, params, group)
    (batch, _, *sizes) = job.bottoms[0].shape
    window = _window(job, params, len(sizes))
    weights = job.blob(0, (out, channels // group, *window.kernel))
    inputs = _inputs(job, params, weights, axis=0)
    placed = zip(sizes, window.pad, window.extent(), window.stride, strict=True)
    outputs = [(size + 2 * pad - extent) // stride + 1 for size, pad, extent, stride in placed]
    job.top("Conv", inputs, (batch, out, *outputs), group=group, **window.attributes())


@converts("Convolution")
def convolution(job: LayerJob) -> None:
    """A convolution."""
    _convolve(job, job.params("convolution_param").integer("group"))


@converts("ConvolutionDepthwise", "DepthwiseConvolution")
def depthwise(job: LayerJob) -> None:
    """A convolution of each channel by itself, whatever it says of groups."""
    job.check_counts((1,))
    shape = job.bottoms[0].shape
    _convolve(job, shape[1] if len(shape) > 1 else 1)


@converts("Deconvolution")
def deconvolution(job: LayerJob) -> None:
    """The transpose of a convolution."""
    params = job.params("convolution_param")
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
