"""From a tensor's place in a dump file to its values, in the device's layout or in the original one."""

import functools
import math
from pathlib import Path

import numpy as np

from roundoff.core.mapped import check_shape, map_bytes, stat_file
from roundoff.core.tensors import Array
from roundoff.core.unreadable import Unreadable
from roundoff.formats.ascend_dump.element_types import ElementType, element_type, values_of
from roundoff.formats.ascend_dump.layouts import Laid, Way, restore, way_back
from roundoff.formats.ascend_dump.schema import NOWHERE, DumpTensor
from roundoff.formats.stored import Content

__all__ = ["content_of", "device_shape", "map_tensor", "original_values"]

_DECODED_BYTES = 8
_AGAIN = "copy the dump from the device again, or leave this tensor out"


def device_shape(tensor: DumpTensor) -> tuple[int, ...]:
    """The shape of its values in the file: as declared, or as many as there are bytes when nothing is declared."""
    if tensor.element_type == "UNDEFINED" or (not tensor.shape and tensor.size > 0):
        kind = element_type(tensor.element_type)
        count = tensor.size * 8 // kind.bits
        return () if count == 1 and not tensor.shape else (count,)
    return tensor.shape


def map_tensor(path: Path, tensor: DumpTensor) -> Array:
    """Map the values of a tensor as the device laid them out; converted only where numpy has no such type.

    Raises:
        Unreadable: The file is too short for it, its type holds no numbers, or its shape is impossible.
    """
    kind, shape = _checked(path, tensor)
    count = math.prod(shape)
    raw = map_bytes(path, offset=tensor.offset, length=min(tensor.size, max(kind.bytes_for(count), count)))
    return values_of(kind, raw, count).reshape(shape)


def original_values(path: Path, tensor: DumpTensor) -> Laid:
    """The values of a tensor with the device's format undone."""
    return restore(map_tensor(path, tensor), _way(tensor))


def content_of(path: Path, tensor: DumpTensor) -> Content:
    """What is known of a tensor without reading its values, and how to read them.

    Raises:
        Unreadable: It cannot be read; see `map_tensor`.
    """
    kind, _ = _checked(path, tensor)
    return Content(kind.name, _way(tensor).shape, functools.partial(_load, path, tensor))


def _load(path: Path, tensor: DumpTensor) -> Array:
    return original_values(path, tensor).array


def _way(tensor: DumpTensor) -> Way:
    return way_back(tensor.format, device_shape(tensor), original=tensor.original_shape, groups=tensor.groups)


def _checked(path: Path, tensor: DumpTensor) -> tuple[ElementType, tuple[int, ...]]:
    kind = element_type(tensor.element_type)
    shape = device_shape(tensor)
    refuse = functools.partial(Unreadable, dtype=kind.name, shape=shape)
    if tensor.offset == NOWHERE:
        raise refuse("the device left it out of the dump", fix="dump this operator again")
    # Small types are decoded into wider ones.
    check_shape(np.dtype((np.void, max(_DECODED_BYTES, kind.bits // 8))), shape)
    needed = kind.bytes_for(math.prod(shape))
    if needed > tensor.size:
        what = f"its header gives it {tensor.size} bytes, but {kind.name} {list(shape)} takes {needed}"
        raise refuse(what, fix=_AGAIN)
    there = stat_file(path) - tensor.offset
    if there < tensor.size:
        raise refuse(f"truncated: {max(0, there)} of {tensor.size} bytes", fix=_AGAIN)
    return kind, shape
