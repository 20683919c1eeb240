"""The header of the .npy format, by numpy's reader of headers: values are mapped later, nothing is ever unpickled.

Layout: the magic bytes, two bytes of version, the header's length (two bytes in version 1, four later), the header
itself as a Python literal ``{'descr': ..., 'fortran_order': ..., 'shape': ...}``, then the values.
"""

import functools
import io
import re
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError

from numpy.lib import format as npy_format

from roundoff.core.mapped import check_shape, size_bytes, stat_file
from roundoff.core.tensors import Array, DType
from roundoff.core.unreadable import Unreadable

__all__ = ["MAX_HEADER_BYTES", "NpyHeader", "parse_header", "read_header"]

MAX_HEADER_BYTES = 10_000 + 12
"""numpy's own bound for headers that may be evaluated, plus magic, version and length."""

_LENGTH_BYTES = {1: 2, 2: 4, 3: 4}
# What numpy's reader raises for literals and types that make no sense, deep nesting included.
_DAMAGE = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError),
    *(SyntaxError, TokenError, MemoryError, RecursionError),
)
_MOST_OPAQUE_BYTES = 999_999
_PYTHON2_LONG = re.compile(rb"(?<=[0-9])L")
# ml_dtypes saves float8_e5m2 under a name that numpy refuses: bytes of a type that has to be told.
_FLOAT8, _OPAQUE = b"'<f1'", b"'|V1'"


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
    if not start.startswith(npy_format.MAGIC_PREFIX):
        raise Unreadable("is not a .npy file: it does not begin with the magic bytes")
    if len(start) < 12 or start[6] not in _LENGTH_BYTES:
        raise Unreadable("the .npy header is cut off or of an unknown version")
    begin = npy_format.MAGIC_LEN + _LENGTH_BYTES[start[6]]
    length = int.from_bytes(start[npy_format.MAGIC_LEN : begin], "little")
    offset = begin + length
    if offset > MAX_HEADER_BYTES:
        raise Unreadable(f"the .npy header claims to be {length} bytes long")
    if offset > len(start):
        raise Unreadable(f"truncated: the header alone needs {offset} bytes, the file has {len(start)}")
    dtype, shape, fortran = _parse_text(start[begin:offset])
    return NpyHeader(dtype, shape, fortran, offset)


@functools.lru_cache(maxsize=1024)  # the tensors of a dump share few distinct headers
def _parse_text(text: bytes) -> tuple[DType, tuple[int, ...], bool]:
    """What the literal says.

    All versions are read as version 2: version 1 has a shorter length in front, and version 3, for which numpy has
    no public function, differs in how names of records are stored, which are refused anyway.
    """
    plain = _PYTHON2_LONG.sub(b"", text).replace(_FLOAT8, _OPAQUE)
    try:
        stream = io.BytesIO(len(plain).to_bytes(4, "little") + plain)
        shape, fortran, dtype = npy_format.read_array_header_2_0(stream, max_header_size=MAX_HEADER_BYTES)
    except _DAMAGE as error:
        raise Unreadable(f"the .npy header is damaged: {text.decode('latin-1').strip()!r:.120}") from error
    if not all(type(axis) is int and axis >= 0 for axis in shape):
        raise Unreadable(f"the .npy header is damaged: its shape is {shape!r:.60}")
    _check_type(dtype)
    check_shape(dtype, shape)
    return dtype, shape, fortran


def _check_type(dtype: DType) -> None:
    """Refuse whatever is not plain numbers, or bytes of one size whose type has to be told."""
    if dtype.hasobject:
        problem = "holds Python objects (a pickle), which are never loaded"
    elif dtype.names is not None or dtype.subdtype is not None:
        problem = "holds records of several fields, not plain numbers"
    elif dtype.kind not in "biufcV" or not 0 < dtype.itemsize <= _MOST_OPAQUE_BYTES:
        problem = f"holds values of type {dtype.str!r:.60}, not numbers"
    else:
        return
    raise Unreadable(problem, fix="save it again as plain numbers: np.save(file, array.astype(np.float32))")
