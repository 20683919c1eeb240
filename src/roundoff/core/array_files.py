"""The one way in which reading stored values says why it cannot, without knowing whose values they are."""

import contextlib
import functools
import io
import math
import mmap
import re
import stat
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError

import numpy as np
from numpy.lib import format as npy_format

from roundoff.core.tensors import Array, DType
from roundoff.messages.message import english


class Unreadable(Exception):
    """One array cannot be read; who reads it turns this into a row with a problem or a `BadInput`.

    Args:
        problem: Why, in a few words without the file's name.
        fix: What to do about it.
        dtype: The type it should have, when that much is known.
        shape: The shape it should have, likewise.
    """

    def __init__(
        self,
        problem: str,
        /,
        *,
        fix: str = english("write the file again, or leave this tensor out"),
        dtype: str = "",
        shape: tuple[int, ...] = (),
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.fix = fix
        self.dtype = dtype
        self.shape = shape


# Values straight from the disk: arrays that are a window on a file instead of a copy of it.

MAX_AXES = 64
"""numpy's own limit."""

_MAX_BYTES = 2**63 - 1


def size_bytes(dtype: DType, shape: tuple[int, ...]) -> int:
    """Bytes that so many values take; exact however absurd the shape."""
    return math.prod(shape) * dtype.itemsize


def check_shape(dtype: DType, shape: tuple[int, ...]) -> None:
    """Refuse shapes that no array can have."""
    if len(shape) > MAX_AXES:
        raise Unreadable(
            english(
                "has {count} axes, more than the {max_axes} that numpy allows", count=len(shape), max_axes=MAX_AXES
            )
        )
    # Zeros do not excuse the other axes: numpy computes strides of them all.
    if size_bytes(dtype, tuple(axis for axis in shape if axis)) > _MAX_BYTES:
        raise Unreadable(english("its header claims the impossible shape {shape}", shape=list(shape)))


def stat_file(path: Path) -> int:
    """Size of a regular file in bytes; anything else (a pipe, a device) is refused before it can block."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable(english("is not a regular file"))
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
            raise Unreadable(english("the file is shorter than it was a moment ago")) from error
    return np.frombuffer(window, np.uint8, count=length, offset=offset - start)


def map_array(path: Path, *, offset: int, dtype: DType, shape: tuple[int, ...], fortran: bool = False) -> Array:
    """Map values of a file as a read-only array of the given type and shape."""
    raw = map_bytes(path, offset=offset, length=size_bytes(dtype, shape))
    return raw.view(dtype).reshape(shape, order="F" if fortran else "C")


# The header of the .npy format, by numpy's reader of headers: values are mapped later, nothing is ever unpickled.
#
# Layout: the magic bytes, two bytes of version, the header's length (two bytes in version 1, four later), the
# header itself as a Python literal ``{'descr': ..., 'fortran_order': ..., 'shape': ...}``, then the values.

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


def map_npy(path: Path) -> Array:
    """Map the values of an .npy file.

    Raises:
        Unreadable: It is none, or is damaged.
    """
    header = read_header(path)
    return map_array(path, offset=header.offset, dtype=header.dtype, shape=header.shape, fortran=header.fortran)


def read_header(path: Path) -> NpyHeader:
    """Read the header of a file and check that exactly its values follow.

    Raises:
        Unreadable: As `parse_header` does, or it is no regular file.
    """
    length = stat_file(path)
    if not length:  # not even tried: special files of the system claim so too, and may never answer
        raise Unreadable(english("is empty"))
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
        problem = english("{there} bytes of values where the header says {wanted}", there=there, wanted=wanted)
        if there < wanted:
            problem = english("truncated: {there} of {wanted} bytes", there=there, wanted=wanted)
        raise Unreadable(problem, dtype=header.dtype.name, shape=header.shape)
    return header


def _parse(start: bytes) -> NpyHeader:
    if not start:
        raise Unreadable(english("is empty"))
    if not start.startswith(npy_format.MAGIC_PREFIX):
        raise Unreadable(english("is not a .npy file: it does not begin with the magic bytes"))
    if len(start) < 12 or start[6] not in _LENGTH_BYTES:
        raise Unreadable(english("the .npy header is cut off or of an unknown version"))
    begin = npy_format.MAGIC_LEN + _LENGTH_BYTES[start[6]]
    length = int.from_bytes(start[npy_format.MAGIC_LEN : begin], "little")
    offset = begin + length
    if offset > MAX_HEADER_BYTES:
        raise Unreadable(english("the .npy header claims to be {length} bytes long", length=length))
    if offset > len(start):
        raise Unreadable(
            english(
                "truncated: the header alone needs {offset} bytes, the file has {count}",
                offset=offset,
                count=len(start),
            )
        )
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
        with warnings.catch_warnings():  # of odd letters that numpy takes for the longs of Python 2
            warnings.simplefilter("ignore")
            shape, fortran, dtype = npy_format.read_array_header_2_0(stream, max_header_size=MAX_HEADER_BYTES)
    except _DAMAGE as error:
        raise Unreadable(
            english("the .npy header is damaged: {decode!r:.120}", decode=text.decode("latin-1").strip())
        ) from error
    if not all(type(axis) is int and axis >= 0 for axis in shape):
        raise Unreadable(english("the .npy header is damaged: its shape is {shape!r:.60}", shape=shape))
    _check_type(dtype)
    check_shape(dtype, shape)
    return dtype, shape, fortran


def _check_type(dtype: DType) -> None:
    """Refuse whatever is not plain numbers, or bytes of one size whose type has to be told."""
    if dtype.hasobject:
        problem = english("holds Python objects (a pickle), which are never loaded")
    elif dtype.names is not None or dtype.subdtype is not None:
        problem = english("holds records of several fields, not plain numbers")
    elif dtype.kind not in "biufcV" or not 0 < dtype.itemsize <= _MOST_OPAQUE_BYTES:
        problem = english("holds values of type {str!r:.60}, not numbers", str=dtype.str)
    else:
        return
    raise Unreadable(
        problem, fix=english("save it again as plain numbers: np.save(file, array.astype(np.float32))")
    )


# Members of a zip archive, mapped where they lie when they are stored, unpacked with checks when compressed.

# Local file header: signature, 22 bytes repeated in the directory, lengths of the name and of the extra field.
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_SIGNATURE = b"PK\x03\x04"
_ENCRYPTED = 0x1
# Deflate cannot do better than about 1032 to 1, so a larger claim is a lie told to exhaust memory.
_MAX_RATIO = 1040
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an archive.

    Attributes:
        path: The archive.
        info: The member's entry in the archive's directory.
    """

    path: Path
    info: zipfile.ZipInfo

    @property
    def name(self) -> str:
        """Its name in the archive, suffix included."""
        return self.info.filename

    @property
    def size(self) -> int:
        """Length in bytes, unpacked."""
        return self.info.file_size

    @property
    def is_stored(self) -> bool:
        """Whether it lies in the archive as it is."""
        return self.info.compress_type == zipfile.ZIP_STORED

    def head(self, length: int) -> bytes:
        """Read the first bytes, unpacked."""
        with _unpacking(), self.open() as stream:
            return stream.read(length)

    def content(self) -> Array:
        """Get all bytes as a uint8 array, checked against the archive's checksum."""
        if self.is_stored:
            content = map_bytes(self.path, offset=self._start(), length=self.size)
            if zlib.crc32(content.data) != self.info.CRC:
                raise Unreadable(english("damaged: its checksum does not fit"))
            return content
        with _unpacking(), self.open() as stream:
            return _read(stream, self.size)

    def open(self) -> zipfile.ZipExtFile:
        """Open a stream of the unpacked bytes."""
        start = self._start()
        # Opening the archive itself would read its whole directory again for every member.
        file = self.path.open("rb")
        file.seek(start)
        return zipfile.ZipExtFile(file, "r", self.info, close_fileobj=True)

    def _start(self) -> int:
        """Where the member's data begin; only the header in front of them knows."""
        self._check()
        place, length = self.info.header_offset, stat_file(self.path)
        header = b""
        if 0 <= place < length:
            with self.path.open("rb") as file:
                file.seek(place)
                header = file.read(_LOCAL_HEADER.size)
        if len(header) < _LOCAL_HEADER.size or not header.startswith(_SIGNATURE):
            raise Unreadable(english("damaged: it is not where the archive says"))
        _, name, extra = _LOCAL_HEADER.unpack(header)
        start = place + len(header) + int(name) + int(extra)
        there = length - start
        if there < self.info.compress_size:
            raise Unreadable(
                english(
                    "truncated: {there} of {compress_size} bytes",
                    there=max(there, 0),
                    compress_size=self.info.compress_size,
                )
            )
        return start

    def _check(self) -> None:
        info = self.info
        if info.flag_bits & _ENCRYPTED:
            raise Unreadable(english("is encrypted"), fix=english("write the archive without a password"))
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise Unreadable(
                english("is compressed in an unusual way"),
                fix=english("write it with np.savez or np.savez_compressed"),
            )
        if self.is_stored and info.compress_size != info.file_size:
            raise Unreadable(english("damaged: the archive gives it two different lengths"))
        if info.file_size > _MAX_RATIO * (info.compress_size + 1):
            raise Unreadable(
                english(
                    "claims to unpack to {file_size} bytes, more than its data can hold", file_size=info.file_size
                )
            )


class Pieces:
    """Reads a member piece by piece, without unpacking all of it into memory.

    A stored member is mapped. A compressed one stays open at the place where the last piece ended, so pieces are
    best read in order; going back unpacks it from its beginning again.

    Args:
        member: What to read.
    """

    def __init__(self, member: Member) -> None:
        self._member = member
        self._mapped = member.content() if member.is_stored else None
        self._stream: zipfile.ZipExtFile | None = None

    def read(self, offset: int, length: int) -> Array:
        """Get `length` bytes from `offset` on, as a uint8 array."""
        if self._mapped is not None:
            return self._mapped[offset : offset + length]
        # An error leaves a stream at a place nobody knows: it is kept only when all went well.
        stream, self._stream = self._stream, None
        with _unpacking():
            stream = stream or self._member.open()
            stream.seek(offset)
            piece = _read(stream, length)
        self._stream = stream
        return piece


def list_members(path: Path) -> list[Member]:
    """List the members of an archive, in the order in which they were written.

    Raises:
        Unreadable: It is no zip archive, or its directory is missing, damaged or empty.
    """
    if not stat_file(path):
        raise Unreadable(english("is empty"))
    try:
        with zipfile.ZipFile(path) as archive:
            members = [Member(path, info) for info in archive.infolist() if not info.filename.endswith("/")]
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError, struct.error) as error:
        raise Unreadable(english("is not a complete zip archive ({error})", error=error)) from error
    if not members:
        raise Unreadable(english("holds no tensors"))
    return members


def _read(stream: zipfile.ZipExtFile, length: int) -> Array:
    content = np.empty(length, np.uint8)
    for start in range(0, length, _CHUNK_BYTES):
        wanted = min(_CHUNK_BYTES, length - start)
        piece = stream.read(wanted)
        if len(piece) < wanted:
            raise Unreadable(
                english("damaged: {start} of {length} bytes", start=start + len(piece), length=length)
            )
        content[start : start + wanted] = np.frombuffer(piece, np.uint8)
    return content


@contextlib.contextmanager
def _unpacking() -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise Unreadable(english("damaged: it cannot be unpacked, or its checksum does not fit")) from error
