"""Arrays in .npy and raw files: their type and shape at once, their values when asked."""

import math
import os
import tokenize
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from roundoff.core.files import reading
from roundoff.core.tensors import Array, InputSpec
from roundoff.data.casting import input_dtype
from roundoff.data.files import shown
from roundoff.data.options import SampleOptions
from roundoff.errors import BadInput

__all__ = ["Header", "Stored", "open_npy", "open_raw", "read_header"]

# What numpy lets through of its parsers when a header is garbage.
_BAD_HEADER = (
    *(ValueError, SyntaxError, TypeError, LookupError, AttributeError, EOFError, MemoryError, RecursionError),
    tokenize.TokenError,
)
_RESAVE = "save it again with numpy.save(path, array, allow_pickle=False)"


@dataclass(frozen=True, slots=True)
class Stored:
    """An array that is on disk.

    Attributes:
        where: File (and member) for messages.
        dtype: Type of its values.
        shape: Its shape.
        load: Reads the rows of a slice along the first axis, or everything for None.
    """

    where: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    load: Callable[[slice | None], Array]


@dataclass(frozen=True, slots=True)
class Header:
    """How values lie in a file or stream, from the byte `offset` on."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool
    offset: int

    @property
    def size_bytes(self) -> int:
        """Bytes that the values take."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(stream: IO[bytes], *, where: str, size_bytes: int) -> Header:
    """Read the header of an .npy stream of `size_bytes` and check that the values behind it are complete.

    Raises:
        BadInput: It is not an .npy stream, is damaged, or holds Python objects.
    """
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        with warnings.catch_warnings():
            # Files written by Python 2 are read all the same; nobody can do anything about the warning.
            warnings.simplefilter("ignore")
            shape, fortran_order, dtype = read(stream)
    except _BAD_HEADER as error:
        reason = str(error).rstrip(".")
        raise BadInput(f"{where} is not a valid .npy array: {reason}.", fix=_RESAVE) from error
    if dtype.hasobject:
        raise BadInput(f"{where} holds Python objects, which are never unpickled.", fix=_RESAVE)
    header = Header(dtype, tuple(shape), fortran_order, stream.tell())
    held = size_bytes - header.offset
    if held != header.size_bytes or min(header.shape, default=0) < 0:
        what = f"{dtype.name} {list(header.shape)} takes {header.size_bytes} bytes"
        raise BadInput(f"{where} is damaged: {what}, the file holds {held}.", fix="copy or save the file again")
    return header


def open_npy(path: Path) -> Stored:
    """Open an .npy file; it is mapped into memory when values are asked for."""
    where = shown(path)
    with reading(path, what="The sample file"), path.open("rb") as stream:
        header = read_header(stream, where=where, size_bytes=os.fstat(stream.fileno()).st_size)
    return _on_disk(path, header)


def open_raw(path: Path, spec: InputSpec, options: SampleOptions) -> Stored:
    """Open a file of bare little-endian values, whose type and shape come from the options or the input.

    A file may hold several samples one after the other; they become a leading axis.

    Raises:
        BadInput: The shape is not known, or the file does not hold whole samples.
    """
    where = shown(path)
    dtype, shape, fixed = _raw_layout(spec, options, where=where)
    with reading(path, what="The sample file"):
        held = path.stat().st_size
    one = dtype.itemsize * math.prod(shape)
    if held == 0 or one == 0 or held % one:
        unit = "sample" if fixed else "row"
        raise BadInput(
            f"{where} does not fit the input {spec.name!r}: expected {spec.describe()}, one {unit} of "
            f"{dtype.name} {list(shape)} takes {one} bytes, got a file of {held} bytes.",
            fix="give the right type and shape of one sample with --raw-dtype and --raw-shape",
        )
    count = held // one
    full = shape if fixed and count == 1 else (count, *shape)
    return _on_disk(path, Header(dtype, full, fortran_order=False, offset=0))


def _on_disk(path: Path, header: Header) -> Stored:
    """Values that are mapped into memory only when they are asked for."""

    def load(rows: slice | None) -> Array:
        with reading(path, what="The sample file"):
            array = _mapped(path, header)
        return array if rows is None else array[rows]

    return Stored(shown(path), header.dtype, header.shape, load)


def _mapped(path: Path, header: Header) -> Array:
    if header.size_bytes == 0:  # nothing to map
        return np.empty(header.shape, header.dtype)
    order: Literal["F", "C"] = "F" if header.fortran_order else "C"
    return np.memmap(path, header.dtype, mode="r", offset=header.offset, shape=header.shape, order=order)


def _raw_layout(
    spec: InputSpec, options: SampleOptions, *, where: str
) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Type, shape, and whether the shape is that of a sample rather than of a row of a free batch."""
    dtype = _raw_dtype(spec, options)
    axes = spec.shape
    if options.raw_shape is not None:
        shape = options.raw_shape
        if axes is not None and len(shape) == len(axes) - 1 and not (isinstance(axes[0], int) and axes[0] != 1):
            shape = (1, *shape)
        return dtype, shape, True
    if axes is not None:
        sizes = tuple(axis for axis in axes if isinstance(axis, int))
        if len(sizes) == len(axes):
            return dtype, sizes, True
        if len(sizes) == len(axes) - 1 and not isinstance(axes[0], int):
            return dtype, sizes, False
    raise BadInput(
        f"{where} says nothing of its shape, and the input {spec.name!r} leaves it open: {spec.describe()}.",
        fix="give the shape of one sample, as in --raw-shape 1x3x224x224, or save the samples as .npy",
    )


def _raw_dtype(spec: InputSpec, options: SampleOptions) -> np.dtype[Any]:
    if options.raw_dtype is None:
        return input_dtype(spec).newbyteorder("<")
    try:
        dtype = np.dtype(options.raw_dtype)
    except (TypeError, ValueError, SyntaxError):
        dtype = np.dtype(object)
    if dtype.kind not in "biufc":
        raise BadInput(
            f"{options.raw_dtype!r} is not a numeric type.",
            fix="give --raw-dtype float32, int8, uint8 or the like",
        )
    return dtype.newbyteorder("<") if dtype.byteorder == "=" else dtype
