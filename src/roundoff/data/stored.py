"""Arrays in .npy and raw files: their type and shape at once, their values when asked."""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from roundoff.core.dtypes import is_extended, parse_dtype
from roundoff.core.files import reading
from roundoff.core.mapped import map_array
from roundoff.core.names import shown
from roundoff.core.npy_header import read_header
from roundoff.core.tensors import Array, DType, InputSpec
from roundoff.core.unreadable import Unreadable
from roundoff.data.casting import input_dtype
from roundoff.data.options import SampleOptions
from roundoff.errors import BadInput

__all__ = ["Stored", "intact", "open_npy", "open_raw"]


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
    dtype: DType
    shape: tuple[int, ...]
    load: Callable[[slice | None], Array]


@contextlib.contextmanager
def intact(where: str, spec: InputSpec, *, fix: str) -> Iterator[None]:
    """Turn what is wrong with a file into an error that names it, the input, and what it expects.

    Args:
        where: File and member for messages.
        spec: The input it is read for.
        fix: How to make a file that can be read.
    """
    what = f"{where} cannot be read for the input {spec.name!r} (expected {spec.describe()})"
    try:
        yield
    except Unreadable as error:
        found = f" of {error.dtype} {list(error.shape)}" if error.dtype else ""
        raise BadInput(f"{what}: {error.problem}{found}.", fix=fix) from error
    except MemoryError as error:
        uncompressed = "store it uncompressed, so that it can be mapped"
        raise BadInput(f"{what}: it does not fit into memory.", fix=uncompressed) from error


def open_npy(path: Path, spec: InputSpec) -> Stored:
    """Open an .npy file; it is mapped into memory when values are asked for.

    Raises:
        BadInput: It is no .npy file, is damaged, or holds something that is not plain numbers.
    """
    with _sample_file(path, spec):
        header = read_header(path)
    dtype, shape = header.dtype, header.shape
    return _on_disk(path, spec, dtype=dtype, shape=shape, offset=header.offset, fortran=header.fortran)


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
    return _on_disk(path, spec, dtype=dtype, shape=full)


def _on_disk(
    path: Path,
    spec: InputSpec,
    *,
    dtype: DType,
    shape: tuple[int, ...],
    offset: int = 0,
    fortran: bool = False,
) -> Stored:
    """Values that are mapped into memory only when they are asked for."""

    def load(rows: slice | None) -> Array:
        with _sample_file(path, spec):
            array = map_array(path, offset=offset, dtype=dtype, shape=shape, fortran=fortran)
        return array if rows is None else array[rows]

    return Stored(shown(path), dtype, shape, load)


@contextlib.contextmanager
def _sample_file(path: Path, spec: InputSpec) -> Iterator[None]:
    fix = f"save it again with numpy.save(path, array.astype('{spec.dtype}'), allow_pickle=False)"
    with reading(path, what="The sample file"), intact(shown(path), spec, fix=fix):
        yield


def _raw_layout(spec: InputSpec, options: SampleOptions, *, where: str) -> tuple[DType, tuple[int, ...], bool]:
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


def _raw_dtype(spec: InputSpec, options: SampleOptions) -> DType:
    if options.raw_dtype is None:
        return input_dtype(spec).newbyteorder("<")
    try:
        dtype = parse_dtype(options.raw_dtype)
    except ValueError as error:
        raise BadInput(
            f"{options.raw_dtype!r} is not a numeric type.",
            fix=f"give --raw-dtype float32, int8, uint8 or the like; {error}",
        ) from error
    if is_extended(dtype):
        raise BadInput(
            f"Samples cannot be read from raw files of {dtype.name}.", fix="save them as float32, which holds them"
        )
    return dtype.newbyteorder("<") if dtype.byteorder == "=" else dtype
