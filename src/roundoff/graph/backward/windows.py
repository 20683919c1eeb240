"""Windows that slide over a tensor, as in convolution and pooling: where they lie, and sums both ways."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.backward.operations import reshape
from roundoff.graph.backward.step import NoRule, Step

__all__ = ["Windows", "attributes_of", "patches", "spread", "windows_of"]


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows along the spatial axes: window p holds the elements ``p * stride + k * dilation - begin``.

    What lies outside of the tensor is padding. How much padding there is at the end follows from the sizes.

    Attributes:
        kernel: Elements of a window.
        strides: From one window to the next.
        dilations: From one element of a window to the next.
        begins: How far the first window reaches out before the tensor.
        sizes: Elements of the tensor.
        counts: Windows.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    sizes: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def reaches(self) -> tuple[int, ...]:
        """How far all windows together reach, from the first element of the first to the last of the last."""
        axes = zip(self.kernel, self.strides, self.dilations, self.counts, strict=True)
        return tuple(
            (count - 1) * stride + (kernel - 1) * dilation + 1 for kernel, stride, dilation, count in axes
        )

    @property
    def ends(self) -> tuple[int, ...]:
        """Padding needed at the end; negative where elements at the end are in no window."""
        axes = zip(self.reaches, self.sizes, self.begins, strict=True)
        return tuple(reach - size - begin for reach, size, begin in axes)

    @property
    def overlap(self) -> bool:
        """Whether an element can be in more than one window."""
        axes = zip(self.kernel, self.strides, self.dilations, strict=True)
        return any((kernel - 1) * dilation + 1 > stride for kernel, stride, dilation in axes)

    def inside(self) -> Array:
        """Which elements of each window are not padding: bool of shape [elements of a window, *counts]."""
        grid = np.ones((), bool)
        axes = zip(self.kernel, self.strides, self.dilations, self.begins, self.sizes, self.counts, strict=True)
        for kernel, stride, dilation, begin, size, count in axes:
            place = np.arange(kernel)[:, None] * dilation + np.arange(count)[None, :] * stride - begin
            grid = np.logical_and.outer(grid, (place >= 0) & (place < size))
        rank = len(self.kernel)
        ordered = grid.transpose(*range(0, 2 * rank, 2), *range(1, 2 * rank, 2))
        return ordered.reshape(-1, *self.counts)


def windows_of(at: Step, kernel: Sequence[int], sizes: Sequence[int], counts: Sequence[int]) -> Windows:
    """The windows of a node with the attributes of a convolution or a pooling."""
    rank = len(kernel)
    strides = tuple(at.attribute("strides") or [1] * rank)
    dilations = tuple(at.attribute("dilations") or [1] * rank)
    pads = at.attribute("pads") or [0] * (2 * rank)
    automatic = at.attribute("auto_pad", "NOTSET")
    if min(pads, default=0) < 0:
        raise NoRule("its padding is negative")
    begins = tuple(pads[:rank])
    free = Windows(tuple(kernel), strides, dilations, (0,) * rank, tuple(sizes), tuple(counts))
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        totals = [max(end, 0) for end in free.ends]
        begins = tuple(total // 2 if automatic == "SAME_UPPER" else total - total // 2 for total in totals)
    elif automatic == "VALID":
        begins = (0,) * rank
    return Windows(free.kernel, strides, dilations, begins, free.sizes, free.counts)


def attributes_of(windows: Windows) -> dict[str, list[int]]:
    """Attributes of a Conv that sees these windows."""
    ends = [max(end, 0) for end in windows.ends]
    return {
        "kernel_shape": list(windows.kernel),
        "strides": list(windows.strides),
        "dilations": list(windows.dilations),
        "pads": [*windows.begins, *ends],
    }


def patches(at: Step, x: str, windows: Windows, *, images: int) -> str:
    """The elements of all windows, zero where they are padding: of shape [images, elements of a window, *counts].

    Args:
        at: The step.
        x: The tensor; its first axes hold so many images of one channel.
        windows: The windows.
        images: How many images.
    """
    elements = math.prod(windows.kernel)
    flat = reshape(at, x, [images, 1, *windows.sizes])
    still = (windows.counts, windows.strides) == (windows.sizes, (1,) * len(windows.kernel))
    if elements == 1 and still and not any(windows.begins):
        return flat
    pick = at.numbers(np.eye(elements).reshape(elements, 1, *windows.kernel))
    return at.op("Conv", flat, pick, **attributes_of(windows))


def spread(at: Step, x: str, weight: str, windows: Windows, *, group: int = 1) -> str:
    """The reverse of a Conv with these windows: every window's elements are added up where they came from.

    Args:
        at: The step.
        x: Of shape [images, channels, *counts].
        weight: As that of a Conv that made such channels.
        windows: The windows.
        group: As that of the Conv.
    """
    ends = windows.ends
    return at.op(
        "ConvTranspose",
        x,
        weight,
        kernel_shape=list(windows.kernel),
        strides=list(windows.strides),
        dilations=list(windows.dilations),
        pads=[*windows.begins, *(max(end, 0) for end in ends)],
        output_padding=[max(-end, 0) for end in ends],
        group=group,
    )
