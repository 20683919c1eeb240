"""Archives of samples, unpacked so that nothing lands outside their folder and no disk is filled by a trick."""

import contextlib
import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from roundoff.core.array_files import Member, Unreadable, list_members
from roundoff.core.files import reading, regular_file, writing
from roundoff.core.names import shown
from roundoff.errors import BadInput

__all__ = ["ARCHIVE_SUFFIXES", "Limits", "unpack"]

ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".zip")
_GZIP, _ZIP = b"\x1f\x8b", (b"PK\x03\x04", b"PK\x05\x06")
_CHUNK_BYTES = 1 << 20
_REPACK = "pack the sample files alone: tar czf samples.tar.gz -C FOLDER ."
_LONGEST_PART = 255


@dataclass(frozen=True, slots=True)
class Limits:
    """What an archive may unpack to.

    Attributes:
        files: Most files.
        free_bytes: So much is unpacked without asking how well it was compressed.
        ratio: Beyond that, most bytes for each byte of the archive; samples compress far less than this.
    """

    files: int = 1_000_000
    free_bytes: int = 1 << 28
    ratio: int = 200


_LIMITS = Limits()


def unpack(archive: Path, folder: Path, limits: Limits = _LIMITS) -> int:
    """Unpack a tar, tar.gz or zip archive; what it is, its first bytes say.

    Only files and folders are taken, and only below `folder`: links, devices, absolute paths and ``..`` are
    refused, as is an archive that unpacks to absurdly much. When it is refused nothing is left behind.

    Args:
        archive: The archive.
        folder: Where to put its files; made if it is missing, otherwise it must be empty.
        limits: How much it may be.

    Returns:
        The number of files.

    Raises:
        BadInput: It is no such archive, is damaged or empty, or holds what is refused.
    """
    size = regular_file(archive, what="The archive")
    members = _members(archive)
    with writing(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise BadInput(
                f"{shown(folder)} exists and is not an empty folder.", fix="remove it, or unpack elsewhere"
            )
        folder.mkdir(parents=True, exist_ok=True)
    job = _Job(archive, folder, size, limits)
    try:
        with _intact(archive):
            for member in members:
                job.take(member)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if not job.files:
        shutil.rmtree(folder, ignore_errors=True)
        raise BadInput(f"The archive {shown(archive)} holds no files.", fix=_REPACK)
    return job.files


@dataclass(frozen=True, slots=True)
class _Entry:
    """One file of an archive."""

    name: str
    size: int
    refused: str
    content: IO[bytes] | Member | None


@dataclass(slots=True)
class _Job:
    archive: Path
    folder: Path
    size: int
    limits: Limits
    files: int = 0
    total: int = 0

    def take(self, entry: _Entry) -> None:
        target = self._target(entry)
        self.files += 1
        self.total += entry.size
        self._check_limits()
        with writing(self.folder):
            if target.exists():
                raise self._refused(entry, "is there twice")
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise self._refused(entry, "lies below a file") from None
            with target.open("xb") as file:
                self._copy(entry, file)

    def _copy(self, entry: _Entry, file: IO[bytes]) -> None:
        stream = entry.content.open() if isinstance(entry.content, Member) else entry.content
        left = entry.size
        while stream is not None and left and (piece := stream.read(min(_CHUNK_BYTES, left))):
            file.write(piece)
            left -= len(piece)
        if left:
            raise Unreadable(f"{entry.name!r:.100} is truncated: {entry.size - left} of {entry.size} bytes")
        # A stream checks its checksum when it is read to its end.
        if isinstance(entry.content, Member) and stream is not None and stream.read(1):
            raise Unreadable(f"{entry.name!r:.100} holds more bytes than it says")

    def _target(self, entry: _Entry) -> Path:
        name = entry.name
        if entry.refused:
            raise self._refused(entry, entry.refused)
        parts = PurePosixPath(name).parts
        if name.startswith("/") or "\\" in name or ":" in name.split("/", 1)[0][1:2]:
            raise self._refused(entry, "is an absolute path, or one of another system")
        if ".." in parts or not parts:
            raise self._refused(entry, "leads out of the folder")
        if "\0" in name or any(len(part.encode("utf-8", "surrogateescape")) > _LONGEST_PART for part in parts):
            raise self._refused(entry, "has a name that no disk takes")
        return self.folder.joinpath(*parts)

    def _check_limits(self) -> None:
        limits = self.limits
        if self.files > limits.files:
            what = f"The archive {shown(self.archive)} holds more than {limits.files} files."
            raise BadInput(what, fix="unpack it yourself and give the folder, if it is meant")
        if self.total > max(limits.free_bytes, limits.ratio * self.size):
            what = (
                f"The archive {shown(self.archive)} has {self.size} bytes and claims to unpack to more than "
                f"{self.total}, as archives made to fill disks do."
            )
            raise BadInput(what, fix="unpack it yourself and give the folder, if it is meant")

    def _refused(self, entry: _Entry, why: str) -> BadInput:
        return BadInput(f"The archive {shown(self.archive)} is refused: {entry.name!r:.100} {why}.", fix=_REPACK)


def _members(archive: Path) -> Iterator[_Entry]:
    with reading(archive, what="The archive"), archive.open("rb") as file:
        start = file.read(len(_ZIP[0]))
    if start.startswith(_ZIP):
        return _zip_members(archive)
    if start.startswith(_GZIP) or _is_tar(archive):
        return _tar_members(archive)
    what = f"{shown(archive)} is no archive: it does not begin as a tar, tar.gz or zip does."
    raise BadInput(what, fix=f"give one of {', '.join(ARCHIVE_SUFFIXES)}, or a folder")


def _is_tar(archive: Path) -> bool:
    try:
        tarfile.open(archive, "r:").close()
    except (tarfile.TarError, ValueError):
        return False
    return True


def _zip_members(archive: Path) -> Iterator[_Entry]:
    for member in list_members(archive):
        kind = stat.S_IFMT(member.info.external_attr >> 16)
        refused = "" if kind in (0, stat.S_IFREG) else "is neither a file nor a folder (a link or a device)"
        yield _Entry(member.name, member.size, refused, member)


def _tar_members(archive: Path) -> Iterator[_Entry]:
    # As a stream: nothing is read twice, and a member is checked before the next one is looked for.
    with tarfile.open(archive, "r|*") as tar:
        for info in tar:
            if info.isdir():
                continue
            refused = "" if info.isreg() and not info.issparse() else "is a link, a device or the like"
            yield _Entry(info.name, info.size, refused, tar.extractfile(info) if not refused else None)


@contextlib.contextmanager
def _intact(archive: Path) -> Iterator[None]:
    try:
        with reading(archive, what="The archive"):
            yield
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        EOFError,
        zlib.error,
        lzma.LZMAError,
        ValueError,
        RuntimeError,
    ) as error:
        raise BadInput(f"The archive {shown(archive)} is damaged: {error}.", fix="make it again") from error
    except Unreadable as error:
        raise BadInput(f"The archive {shown(archive)} cannot be read: {error.problem}.", fix=_REPACK) from error
