"""Members of a zip archive, mapped where they lie when they are stored, unpacked with checks when compressed."""

import contextlib
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roundoff.core.mapped import map_bytes, stat_file
from roundoff.core.tensors import Array
from roundoff.core.unreadable import Unreadable

__all__ = ["Member", "Pieces", "list_members"]

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
                raise Unreadable("damaged: its checksum does not fit")
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
            raise Unreadable("damaged: it is not where the archive says")
        _, name, extra = _LOCAL_HEADER.unpack(header)
        start = place + len(header) + int(name) + int(extra)
        there = length - start
        if there < self.info.compress_size:
            raise Unreadable(f"truncated: {max(there, 0)} of {self.info.compress_size} bytes")
        return start

    def _check(self) -> None:
        info = self.info
        if info.flag_bits & _ENCRYPTED:
            raise Unreadable("is encrypted", fix="write the archive without a password")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise Unreadable(
                "is compressed in an unusual way", fix="write it with np.savez or np.savez_compressed"
            )
        if self.is_stored and info.compress_size != info.file_size:
            raise Unreadable("damaged: the archive gives it two different lengths")
        if info.file_size > _MAX_RATIO * (info.compress_size + 1):
            raise Unreadable(f"claims to unpack to {info.file_size} bytes, more than its data can hold")


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
        raise Unreadable("is empty")
    try:
        with zipfile.ZipFile(path) as archive:
            members = [Member(path, info) for info in archive.infolist() if not info.filename.endswith("/")]
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError, struct.error) as error:
        raise Unreadable(f"is not a complete zip archive ({error})") from error
    if not members:
        raise Unreadable("holds no tensors")
    return members


def _read(stream: zipfile.ZipExtFile, length: int) -> Array:
    content = np.empty(length, np.uint8)
    for start in range(0, length, _CHUNK_BYTES):
        wanted = min(_CHUNK_BYTES, length - start)
        piece = stream.read(wanted)
        if len(piece) < wanted:
            raise Unreadable(f"damaged: {start + len(piece)} of {length} bytes")
        content[start : start + wanted] = np.frombuffer(piece, np.uint8)
    return content


@contextlib.contextmanager
def _unpacking() -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise Unreadable("damaged: it cannot be unpacked, or its checksum does not fit") from error
