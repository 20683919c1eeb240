"""Values straight from the disk: arrays that are a window on a file instead of a copy of it."""

import math
import mmap
import stat
from pathlib import Path

import numpy as np

from roundoff.core.tensors import Array, DType
from roundoff.core.unreadable import Unreadable

__all__ = ["MAX_AXES", "check_shape", "map_array", "map_bytes", "size_bytes", "stat_file"]

MAX_AXES = 64
"""numpy's own limit."""

_MAX_BYTES = 2**63 - 1


def size_bytes(dtype: DType, shape: tuple[int, ...]) -> int:
    """Bytes that so many values take; exact however absurd the shape."""
    return math.prod(shape) * dtype.itemsize


def check_shape(dtype: DType, shape: tuple[int, ...]) -> None:
    """Refuse shapes that no array can have."""
    if len(shape) > MAX_AXES:
        raise Unreadable(f"has {len(shape)} axes, more than the {MAX_AXES} that numpy allows")
    # Zeros do not excuse the other axes: numpy computes strides of them all.
    if size_bytes(dtype, tuple(axis for axis in shape if axis)) > _MAX_BYTES:
        raise Unreadable(f"its header claims the impossible shape {list(shape)}")


def stat_file(path: Path) -> int:
    """Size of a regular file in bytes; anything else (a pipe, a device) is refused before it can block."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable("is not a regular file")
    return status.st_size


def map_bytes(path: Path, *, offset: int, length: int) -> Array:
    """Map `length` bytes of a file as a read-only uint8 array; any offset will do."""
    if length == 0:
        return np.empty(0, np.uint8)
    start = offset - offset % mmap.ALLOCATIONGRANULARITY
    with path.open("rb") as file:
        try:
            window = mmap.mmap(file.fileno(), offset - start + length, access=mmap.ACCESS_READ, offset=start)
        except ValueError as error:  # the file has shrunk since its header was read
            raise Unreadable("the file is shorter than it was a moment ago") from error
    return np.frombuffer(window, np.uint8, count=length, offset=offset - start)


def map_array(path: Path, *, offset: int, dtype: DType, shape: tuple[int, ...], fortran: bool = False) -> Array:
    """Map values of a file as a read-only array of the given type and shape."""
    raw = map_bytes(path, offset=offset, length=size_bytes(dtype, shape))
    return raw.view(dtype).reshape(shape, order="F" if fortran else "C")
