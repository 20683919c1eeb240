"""Pooling, resizing and rearrangement of pixels, computed wrongly."""

from collections.abc import Iterator

import numpy as np

from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.kernels.kernel import DeviceKernel, KernelNode, wrong
from roundoff.messages.message import Message, message

Ways = Iterator[tuple[Message, DeviceKernel]]


@wrong("MaxPool", "AveragePool")
def pooled(at: KernelNode) -> Ways:
    """The other pooling, pads counted or not, pads elsewhere, pads of zero for the largest value."""
    named = at.attributes
    shared = {
        key: named[key] for key in ("kernel_shape", "pads", "strides", "auto_pad", "ceil_mode") if key in named
    }
    if at.op == "AveragePool":
        counted = 1 - int(named.get("count_include_pad", 0))
        yield (
            message(f"diagnosis.way_pads_counted_{counted}", op=at.op),
            at.with_attributes(count_include_pad=counted),
        )
        yield (
            message("diagnosis.way_instead", op=at.op, other="MaxPool"),
            at.kernel.with_type(at.name, "MaxPool", **shared),
        )
    else:
        for counted in (0, 1):
            average = at.kernel.with_type(at.name, "AveragePool", **shared, count_include_pad=counted)
            yield message("diagnosis.way_instead", op=at.op, other="AveragePool"), average
    yield (
        message("diagnosis.way_ceil_mode", op=at.op),
        at.with_attributes(ceil_mode=1 - int(named.get("ceil_mode", 0))),
    )
    pads = list(named.get("pads", []))
    count = len(pads) // 2
    if any(pads):
        both = [pads[axis] + pads[count + axis] for axis in range(count)]
        for side, moved in (("begin", [*both, *[0] * count]), ("end", [*[0] * count, *both])):
            # Pads as wide as the window are refused: then they are pixels of their own.
            yield message(f"diagnosis.way_pads_{side}", op=at.op), at.with_attributes(pads=moved)
            fill = -np.inf if at.op == "MaxPool" else 0.0
            yield message(f"diagnosis.way_pads_{side}", op=at.op), _wide(at, moved, fill)
        if at.op == "MaxPool":
            yield message("diagnosis.way_pads_value", op=at.op, value=0), _wide(at, pads, 0.0)
    strides = list(named.get("strides", [1]))
    given = at.value(0)
    if max(strides) > 1 and not any(pads) and given is not None:
        # The window begins one pixel later; what is then beyond the end repeats the edge.
        yield message("diagnosis.way_window_moved", op=at.op), _shifted(at, given.shape[2:])


def _wide(at: KernelNode, pads: list[int], value: float) -> DeviceKernel:
    count = len(pads) // 2
    sizes, fill = f"{at.name}/pads", f"{at.name}/pad"
    kernel = at.kernel.with_constant(sizes, np.array([0, 0, *pads[:count], 0, 0, *pads[count:]], np.int64))
    kernel = kernel.with_constant(fill, np.asarray(value, np.float32))
    kernel = kernel.before(at.name, 0, "Pad", [sizes, fill], mode="constant")
    return kernel.with_attributes(at.name, pads=[0] * len(pads))


def _shifted(at: KernelNode, sizes: tuple[int, ...]) -> DeviceKernel:
    kernel = at.kernel
    for axis, size in enumerate(sizes, start=2):
        name = f"{at.name}/pixels{axis}"
        places = np.minimum(np.arange(size) + 1, size - 1).astype(np.int64)
        kernel = kernel.with_constant(name, places).before(at.name, 0, "Gather", [name], axis=axis)
    return kernel


@wrong("GlobalAveragePool", "GlobalMaxPool")
def pooled_whole(at: KernelNode) -> Ways:
    """The largest value for the mean, the sum for the mean, or a mean without the last row and column."""
    other = "GlobalMaxPool" if at.op == "GlobalAveragePool" else "GlobalAveragePool"
    yield message("diagnosis.way_instead", op=at.op, other=other), at.kernel.with_type(at.name, other)
    given = at.value(0)
    if at.op != "GlobalAveragePool" or given is None:
        return
    count = int(np.prod(given.shape[2:]))
    name = f"{at.name}/count"
    kernel = at.kernel.with_constant(name, np.asarray(count, np.float32))
    summed = kernel.behind(at.name, [("Mul", ["$", name], {})])
    yield message("diagnosis.way_instead", op=at.op, other="ReduceSum"), summed


_CONVENTIONS = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@wrong("Resize")
def resized(at: KernelNode) -> Ways:
    """Another interpolation, convention of coordinates or rounding."""
    named = at.attributes
    mode, convention, nearest = (
        named.get(key, usual).decode()
        for key, usual in (
            ("mode", b"nearest"),
            ("coordinate_transformation_mode", b"half_pixel"),
            ("nearest_mode", b"round_prefer_floor"),
        )
    )
    if convention == "tf_crop_and_resize":
        return
    for way in ("nearest", "linear", "cubic"):
        for place in _CONVENTIONS:
            for rounding in _NEAREST if way == "nearest" else (nearest,):
                if (way, place) == (mode, convention) and (way != "nearest" or rounding == nearest):
                    continue
                changes = {"mode": way, "coordinate_transformation_mode": place, "nearest_mode": rounding}
                how = f"{way}, {place}" + (f", {rounding}" if way == "nearest" else "")
                yield message("diagnosis.way_resize", op=at.op, how=how), at.with_attributes(**changes)


@wrong("Upsample")
def upsampled(at: KernelNode) -> Ways:
    """The other interpolation."""
    other = "linear" if at.attributes.get("mode", b"nearest") == b"nearest" else "nearest"
    yield message("diagnosis.way_resize", op=at.op, how=other), at.with_attributes(mode=other)


@wrong("DepthToSpace", "PixelShuffle")
def shuffled(at: KernelNode) -> Ways:
    """Depth in the other order."""
    other = "CRD" if at.attributes.get("mode", b"DCR") == b"DCR" else "DCR"
    yield message("diagnosis.way_depth_mode", op=at.op, mode=other), at.with_attributes(mode=other)


@wrong("SpaceToDepth")
def unshuffled(at: KernelNode) -> Ways:
    """Channels of depth in the other order."""
    size = int(at.attributes.get("blocksize", 1)) ** 2
    places: Array = np.arange(at.result.shape[1]).reshape(size, -1).T.ravel().astype(np.int64)
    kernel = at.kernel.with_constant(f"{at.name}/order", places)
    other = kernel.behind(at.name, [("Gather", ["$", f"{at.name}/order"], {"axis": 1})])
    yield message("diagnosis.way_depth_mode", op=at.op, mode="CRD"), other


@wrong("ConvTranspose")
def transposed_padding(at: KernelNode) -> Ways:
    """Pads moved by one."""
    pads = list(at.attributes.get("pads", []))
    count = len(pads) // 2
    for step in (1, -1):
        moved = [*(each + step for each in pads[:count]), *(each - step for each in pads[count:])]
        if moved and min(moved) >= 0:
            yield message("diagnosis.way_pads_moved", op=at.op), at.with_attributes(pads=moved)
