"""Where the windows of convolutions and pooling lie."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["Geometry", "conv_geometry", "pad_spatial", "transposed_geometry"]


@dataclass(frozen=True, slots=True)
class Geometry:
    """Windows over the spatial axes of an input.

    Attributes:
        kernel: Size of the window on each axis.
        strides: Distance between windows.
        dilations: Distance between elements of a window.
        begins: Padding before each axis.
        ends: Padding after it.
        out: Number of windows.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    out: tuple[int, ...]

    @property
    def pointwise(self) -> bool:
        """Whether each window is the one element at its place."""
        plain = all(size == 1 for size in (*self.kernel, *self.strides))
        return plain and not any((*self.begins, *self.ends))

    @property
    def positions(self) -> int:
        """Number of windows on all axes together."""
        return prod(self.out)

    def offsets(self) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Each element of the window, and where it lies in the padded input for all windows at once."""
        for offset in product(*map(range, self.kernel)):
            starts = (place * step for place, step in zip(offset, self.dilations, strict=True))
            yield (
                offset,
                tuple(
                    slice(start, start + (count - 1) * stride + 1, stride)
                    for start, count, stride in zip(starts, self.out, self.strides, strict=True)
                ),
            )


def conv_geometry(attributes: Mapping[str, Any], spatial: tuple[int, ...], kernel: tuple[int, ...]) -> Geometry:
    """Windows of Conv on an input of this size."""
    strides, dilations = _steps(attributes, len(spatial))
    reach = tuple((size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True))
    mode = attributes.get("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        out = tuple(-(-size // stride) for size, stride in zip(spatial, strides, strict=True))
        lacking = (
            max(0, (count - 1) * stride + span - size)
            for count, stride, span, size in zip(out, strides, reach, spatial, strict=True)
        )
        begins, ends = _halves(lacking, more_at_end=mode == "SAME_UPPER")
        return Geometry(kernel, strides, dilations, begins, ends, out)
    begins, ends = _pads(attributes, len(spatial))
    out = tuple(
        (size + begin + end - span) // stride + 1
        for size, begin, end, span, stride in zip(spatial, begins, ends, reach, strides, strict=True)
    )
    return Geometry(kernel, strides, dilations, begins, ends, out)


def transposed_geometry(
    attributes: Mapping[str, Any], spatial: tuple[int, ...], kernel: tuple[int, ...]
) -> Geometry:
    """Windows of ConvTranspose, which lie over its output, one for each input element; `out` is its size."""
    rank = len(spatial)
    strides, dilations = _steps(attributes, rank)
    extra = tuple(attributes.get("output_padding") or (0,) * rank)
    full = tuple(
        (size - 1) * stride + (length - 1) * dilation + 1 + more
        for size, stride, length, dilation, more in zip(spatial, strides, kernel, dilations, extra, strict=True)
    )
    mode = attributes.get("auto_pad", "NOTSET")
    same = mode in ("SAME_UPPER", "SAME_LOWER")
    wanted = tuple(attributes.get("output_shape") or ())[-rank:]
    if same and not wanted:
        wanted = tuple(size * stride for size, stride in zip(spatial, strides, strict=True))
    if wanted:
        surplus = (max(0, have - want) for have, want in zip(full, wanted, strict=True))
        begins, ends = _halves(surplus, more_at_end=mode == "SAME_UPPER")
        return Geometry(kernel, strides, dilations, begins, ends, wanted)
    begins, ends = _pads(attributes, rank)
    out = tuple(size - begin - end for size, begin, end in zip(full, begins, ends, strict=True))
    return Geometry(kernel, strides, dilations, begins, ends, out)


def pad_spatial(values: Array, begins: tuple[int, ...], ends: tuple[int, ...]) -> Array:
    """Zeros around the spatial axes of [N, C, ...]."""
    if not any((*begins, *ends)):
        return values
    return np.pad(values, ((0, 0), (0, 0), *zip(begins, ends, strict=True)))


def _steps(attributes: Mapping[str, Any], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    strides = tuple(attributes.get("strides") or (1,) * rank)
    return strides, tuple(attributes.get("dilations") or (1,) * rank)


def _pads(attributes: Mapping[str, Any], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    explicit = attributes.get("auto_pad", "NOTSET") == "NOTSET"
    pads = tuple(attributes.get("pads") or ()) if explicit else ()
    pads = pads or (0,) * (2 * rank)
    return pads[:rank], pads[rank:]


def _halves(totals: Iterator[int], *, more_at_end: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    smaller = [(total // 2, total - total // 2) for total in totals]
    pairs = smaller if more_at_end else [(end, begin) for begin, end in smaller]
    return tuple(begin for begin, _ in pairs), tuple(end for _, end in pairs)
