"""The header of the .npy format, read without numpy's loader so that nothing is ever unpickled.

Layout: the magic bytes, two bytes of version, the header's length (two bytes in version 1, four later), the header
itself as a Python literal ``{'descr': ..., 'fortran_order': ..., 'shape': ...}``, then the values.
"""

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.mapped import check_shape, size_bytes, stat_file
from roundoff.core.tensors import Array, DType
from roundoff.core.unreadable import Unreadable

__all__ = ["MAX_HEADER_BYTES", "NpyHeader", "parse_header", "read_header"]

MAX_HEADER_BYTES = 10_000 + 12
"""numpy's own bound for headers that may be evaluated, plus magic, version and length."""

_MAGIC = b"\x93NUMPY"
_KEYS = {"descr", "fortran_order", "shape"}
_NUMBER = re.compile(r"[<>|=]?(?:[biufc][0-9]{1,2}|\?)")
_OPAQUE = re.compile(r"[<>|=]?V([1-9][0-9]{0,5})|<f1")
_PYTHON2_LONG = re.compile(r"(?<=[0-9])L")


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What a .npy header says.

    Attributes:
        dtype: Type of the values; void for values of a type numpy does not know by itself.
        shape: Shape of the array.
        fortran: Whether the first axis varies fastest.
        offset: Where the values start.
    """

    dtype: DType
    shape: tuple[int, ...]
    fortran: bool
    offset: int

    @property
    def size_bytes(self) -> int:
        """Bytes that the values take."""
        return size_bytes(self.dtype, self.shape)

    def values(self, content: Array) -> Array:
        """View the whole file, as uint8, as the array it holds."""
        return content[self.offset :].view(self.dtype).reshape(self.shape, order="F" if self.fortran else "C")


def read_header(path: Path) -> NpyHeader:
    """Read the header of a file and check that exactly its values follow.

    Raises:
        Unreadable: As `parse_header` does, or it is no regular file.
    """
    length = stat_file(path)
    if not length:  # not even tried: special files of the system claim so too, and may never answer
        raise Unreadable("is empty")
    with path.open("rb") as file:
        return parse_header(file.read(MAX_HEADER_BYTES), length=length)


def parse_header(start: bytes, *, length: int) -> NpyHeader:
    """Read the header from the first bytes of a file, and check that exactly its values follow.

    Args:
        start: The first `MAX_HEADER_BYTES`, or all when the file is shorter.
        length: Bytes of the whole file.

    Raises:
        Unreadable: It is no .npy header, is damaged, or describes something that is not plain numbers; or the
            file is too short or too long for its values.
    """
    header = _parse(start)
    there, wanted = length - header.offset, header.size_bytes
    if there != wanted:
        problem = f"{there} bytes of values where the header says {wanted}"
        if there < wanted:
            problem = f"truncated: {there} of {wanted} bytes"
        raise Unreadable(problem, dtype=header.dtype.name, shape=header.shape)
    return header


def _parse(start: bytes) -> NpyHeader:
    if not start:
        raise Unreadable("is empty")
    if not start.startswith(_MAGIC):
        raise Unreadable("is not a .npy file: it does not begin with the magic bytes")
    if len(start) < 12 or start[6] not in (1, 2, 3):
        raise Unreadable("the .npy header is cut off or of an unknown version")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(start[8 : 8 + width], "little")
    offset = 8 + width + length
    if offset > MAX_HEADER_BYTES:
        raise Unreadable(f"the .npy header claims to be {length} bytes long")
    if offset > len(start):
        raise Unreadable(f"truncated: the header alone needs {offset} bytes, the file has {len(start)}")
    dtype, shape, fortran = _parse_text(start[8 + width : offset])
    return NpyHeader(dtype, shape, fortran, offset)


@functools.lru_cache(maxsize=1024)  # the tensors of a dump share few distinct headers
def _parse_text(text: bytes) -> tuple[DType, tuple[int, ...], bool]:
    fields = _literal(text.decode("latin-1"))
    if not isinstance(fields, dict) or set(fields) != _KEYS:
        raise Unreadable("the .npy header is damaged: it is not the expected three fields")
    shape, fortran = fields["shape"], fields["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(axis) is int and axis >= 0 for axis in shape):
        raise Unreadable(f"the .npy header is damaged: its shape is {shape!r:.60}")
    if not isinstance(fortran, bool):
        raise Unreadable("the .npy header is damaged: fortran_order is neither True nor False")
    dtype = _parse_descr(fields["descr"])
    check_shape(dtype, shape)
    return dtype, shape, fortran


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass
    try:  # written by Python 2, whose long integers end in L
        return ast.literal_eval(_PYTHON2_LONG.sub("", text.strip()))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise Unreadable("the .npy header is damaged: it cannot be parsed") from error


def _parse_descr(descr: Any) -> DType:
    problem = ""
    if not isinstance(descr, str):
        problem = "holds records of several fields, not plain numbers"
    elif opaque := _OPAQUE.fullmatch(descr):
        # ml_dtypes saves float8_e5m2 as <f1, which numpy cannot read.
        return np.dtype((np.void, int(opaque[1] or 1)))
    elif descr.lstrip("<>|=").startswith("O"):
        problem = "holds Python objects (a pickle), which are never loaded"
    elif not _NUMBER.fullmatch(descr):
        problem = f"holds values of type {descr!r:.60}, not numbers"
    if not problem:
        try:
            dtype: DType = np.dtype(descr)
            return dtype
        except TypeError:
            problem = f"holds values of type {descr!r}, which this machine does not know"
    raise Unreadable(problem, fix="save it again as plain numbers: np.save(file, array.astype(np.float32))")
