"""What the values of a file are when the file says one thing and a manifest another."""

from collections.abc import Callable

import numpy as np

from roundoff.core.dtypes import as_values, is_extended, parse_dtype
from roundoff.core.tensors import Array, DType
from roundoff.core.unreadable import Unreadable
from roundoff.formats.stored import Content, Declared

__all__ = ["settle"]


def settle(
    dtype: DType, shape: tuple[int, ...], *, load: Callable[[], Array], declared: Declared | None
) -> Content:
    """Combine a file's own header with what is declared about it.

    Types that numpy does not know by itself (bfloat16 and its kin) come as float32 with the true type declared,
    or as raw values of the right width; both are understood.

    Args:
        dtype: Type in the header; void when the file holds raw values.
        shape: Shape in the header.
        load: Gets the array that the header describes.
        declared: What a manifest says, None without one.

    Raises:
        Unreadable: The two contradict each other, or neither says what the values are.
    """
    if declared is None:
        if _is_raw(dtype):
            raise Unreadable(
                f"holds raw values of {dtype.itemsize} bytes without saying of which type",
                fix='name the type in tensors.json beside it, as in "dtype": "bfloat16"',
                shape=shape,
            )
        return Content(dtype.name, shape, lambda: as_values(load()))
    wanted = parse_dtype(declared.dtype)
    if shape == declared.shape:
        if _holds_bits_of(wanted, dtype):
            return Content(wanted.name, shape, lambda: as_values(load().view(wanted)))
        if dtype.newbyteorder("=") == wanted.newbyteorder("=") or _holds_upcast_of(wanted, dtype):
            return Content(wanted.name, shape, lambda: as_values(load()))
    raise Unreadable(
        f"{declared.source} says {wanted.name} {list(declared.shape)}, the file holds {dtype.name} {list(shape)}",
        fix=f"correct {declared.source}, or write the file again",
        dtype=dtype.name,
        shape=shape,
    )


def _is_raw(dtype: DType) -> bool:
    # Not by its kind: bfloat16 and its kin have the same one.
    return dtype.type is np.void


def _holds_bits_of(wanted: DType, stored: DType) -> bool:
    raw = _is_raw(stored) or (stored.kind == "u" and is_extended(wanted))
    return raw and stored.itemsize == wanted.itemsize


def _holds_upcast_of(wanted: DType, stored: DType) -> bool:
    return is_extended(wanted) and stored.name == "float32"
