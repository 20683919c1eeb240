"""Convolution: gradients of its input by the reverse convolution, of its weight by products with its windows."""

import math

from roundoff.graph.backward.operations import flip, product, reduce_sum, reshape, transpose
from roundoff.graph.backward.registry import rule
from roundoff.graph.backward.step import Step
from roundoff.graph.backward.windows import Windows, attributes_of, patches, spread, windows_of

__all__ = ()


@rule("Conv")
def _conv(at: Step, index: int) -> str:
    if index == 2:
        return _bias(at)
    kernel = at.shape(1)[2:]
    windows = windows_of(at, kernel, at.shape(0)[2:], at.output_shape()[2:])
    group = at.attribute("group", 1)
    if index == 1:
        return _weight(at, at.inputs[0], at.gradient, windows, group=group)
    mirrored = _mirrored(windows)
    if mirrored is None:
        return spread(at, at.gradient, at.inputs[1], windows, group=group)
    return at.op("Conv", at.gradient, _mirrored_weight(at, group), **attributes_of(mirrored), group=group)


def _bias(at: Step) -> str:
    rank = len(at.output_shape())
    return reduce_sum(at, at.gradient, [axis for axis in range(rank) if axis != 1], keepdims=False)


def _mirrored(windows: Windows) -> Windows | None:
    """The windows over the gradient whose sums are the input's gradient, if a plain Conv can compute it.

    That is the faster way, above all with many groups.
    """
    if any(stride != 1 for stride in windows.strides):
        return None
    axes = zip(windows.kernel, windows.dilations, windows.begins, strict=True)
    begins = tuple((kernel - 1) * dilation - begin for kernel, dilation, begin in axes)
    mirrored = Windows(windows.kernel, windows.strides, windows.dilations, begins, windows.counts, windows.sizes)
    return mirrored if min((*begins, *mirrored.ends)) >= 0 else None


def _mirrored_weight(at: Step, group: int) -> str:
    """The weight with its channels exchanged and its elements in reverse order."""
    outputs, inputs, *kernel = at.shape(1)
    weight: str = at.inputs[1]
    rank = len(kernel)
    if group == 1:
        weight = transpose(at, weight, [1, 0, *range(2, rank + 2)])
    elif outputs != group or inputs != 1:
        split = reshape(at, weight, [group, outputs // group, inputs, *kernel])
        swapped = transpose(at, split, [0, 2, 1, *range(3, rank + 3)])
        weight = reshape(at, swapped, [group * inputs, outputs // group, *kernel])
    for axis, size in enumerate(kernel):
        weight = flip(at, weight, axis=axis + 2, size=size)
    return weight


def _weight(at: Step, x: str, gradient: str, windows: Windows, *, group: int) -> str:
    """The gradient of a weight: each window of x times the gradient of what was computed from it, summed up.

    For ConvTranspose the other way round: its windows lie on what it computes, its weight lists its inputs first.
    """
    outputs, inputs, *_ = shape = at.shape(1)
    batch, elements, places = at.shape(0)[0], math.prod(windows.kernel), math.prod(windows.counts)
    seen = patches(at, x, windows, images=batch * group * inputs)
    if group == 1:
        rows = _rows(at, gradient, batch, outputs, places)
        columns = _rows(at, seen, batch, inputs * elements, places)
        return reshape(at, product(at, rows, columns, transposed=(False, True)), shape)
    split = reshape(at, seen, [batch, group, inputs * elements, places])
    other = transpose(at, reshape(at, gradient, [batch, group, outputs // group, places]), [0, 1, 3, 2])
    summed = reduce_sum(at, at.op("MatMul", split, other), [0], keepdims=False)
    return reshape(at, transpose(at, summed, [0, 2, 1]), shape)


def _rows(at: Step, x: str, batch: int, rows: int, places: int) -> str:
    """A matrix with a row for each channel, from a tensor of shape [batch, channel, place]."""
    if batch > 1:
        x = transpose(at, reshape(at, x, [batch, rows, places]), [1, 0, 2])
    return reshape(at, x, [rows, batch * places])


@rule("ConvTranspose")
def _conv_transpose(at: Step, index: int) -> str:
    if index == 2:
        return _bias(at)
    windows = _transposed_windows(at)
    group = at.attribute("group", 1)
    if index == 1:
        return _weight(at, at.gradient, at.inputs[0], windows, group=group)
    return at.op("Conv", at.gradient, at.inputs[1], **attributes_of(windows), group=group)


def _transposed_windows(at: Step) -> Windows:
    """The windows on what a ConvTranspose computes."""
    sizes, counts = at.output_shape()[2:], at.shape(0)[2:]
    windows = windows_of(at, at.shape(1)[2:], sizes, counts)
    automatic = at.attribute("auto_pad", "NOTSET")
    if at.attribute("output_shape") is None and automatic not in ("SAME_UPPER", "SAME_LOWER"):
        return windows
    # The padding is whatever makes the size come out right.
    extra = at.attribute("output_padding") or [0] * len(sizes)
    spans = zip(windows.reaches, sizes, extra, strict=True)
    totals = [max(reach + more - size, 0) for reach, size, more in spans]
    begins = tuple(total // 2 if automatic == "SAME_UPPER" else total - total // 2 for total in totals)
    return Windows(windows.kernel, windows.strides, windows.dilations, begins, sizes, counts)
