"""What lies in a sample folder: which files hold values, which are notes beside them, in which order."""

import contextlib
import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from roundoff.core.array_files import Member, Unreadable, list_members
from roundoff.core.files import reading, regular_file, writing
from roundoff.core.names import natural_key, shown
from roundoff.errors import BadInput
from roundoff.messages.message import english

Kind = Literal["npy", "npz", "bin", "images"]

IMAGE_SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".webp", ".tif", ".tiff"),
    *(".gif", ".ppm", ".pgm", ".pnm", ".avif"),
)
_KINDS: dict[str, Kind] = {
    ".npy": "npy",
    ".npz": "npz",
    ".bin": "bin",
    ".raw": "bin",
    **dict.fromkeys(IMAGE_SUFFIXES, "images"),
}
# Labels, annotations and notes that people keep beside their samples.
_METADATA_SUFFIXES = frozenset(
    (
        *(".csv", ".tsv", ".txt", ".lst", ".list", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".toml"),
        *(".md", ".rst", ".log", ".html"),
    )
)
_METADATA_NAMES = frozenset(("readme", "license", "licence", "thumbs.db", "desktop.ini"))


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a folder and of the folders in it.

    Attributes:
        folder: The folder.
        files: Paths relative to it, with ``/``, in natural order.
        skipped: Notes and hidden entries that are left alone, for messages.
    """

    folder: Path
    files: tuple[str, ...]
    skipped: tuple[str, ...]


def kind_of(file: str) -> Kind | None:
    """What a file holds, by its suffix; None when the suffix says nothing."""
    return _KINDS.get(PurePosixPath(file).suffix.lower())


def is_metadata(file: str) -> bool:
    """Whether a file is a note, a list or a hidden file rather than a sample."""
    path = PurePosixPath(file)
    return (
        path.name.startswith(".")
        or path.name.lower() in _METADATA_NAMES
        or path.suffix.lower() in _METADATA_SUFFIXES
    )


def list_folder(folder: Path) -> Listing:
    """Find all files in and below `folder`.

    Raises:
        BadInput: A folder cannot be read, or something in it is neither a file nor a folder.
    """
    files: list[str] = []
    skipped: list[str] = []
    with reading(folder, what=english("The folder")):
        for name, is_sample in _walk(folder, "", seen=frozenset()):
            (files if is_sample else skipped).append(name)
    files.sort(key=natural_key)
    skipped.sort(key=natural_key)
    return Listing(folder, tuple(files), tuple(shown(folder / name) for name in skipped))


def _walk(folder: Path, prefix: str, *, seen: frozenset[tuple[int, int]]) -> Iterator[tuple[str, bool]]:
    status = folder.stat()
    here = (status.st_dev, status.st_ino)
    if here in seen:  # a link to a folder above: everything in it has been seen
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + entry.name
            if entry.name.startswith("."):
                yield name, False
            elif entry.is_dir():
                yield from _walk(folder / entry.name, f"{name}/", seen=seen | {here})
            elif entry.is_file():
                yield name, not is_metadata(entry.name)
            else:
                raise BadInput(
                    "{folder} is neither a file nor a folder (a broken link?).",
                    fix=english("remove it from the samples"),
                    folder=shown(folder / entry.name),
                )


ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".zip")
_GZIP, _ZIP = b"\x1f\x8b", (b"PK\x03\x04", b"PK\x05\x06")
_CHUNK_BYTES = 1 << 20
_REPACK = english("pack the sample files alone: tar czf samples.tar.gz -C FOLDER .")
_LONGEST_PART = 255


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """What an archive may unpack to.

    Attributes:
        files: Most files.
        free_bytes: So much is unpacked without asking how well it was compressed.
        ratio: Beyond that, most bytes for each byte of the archive; samples compress far less than this.
    """

    files: int = 1_000_000
    free_bytes: int = 1 << 28
    ratio: int = 200


_LIMITS = ArchiveLimits()


def unpack(archive: Path, folder: Path, limits: ArchiveLimits = _LIMITS) -> int:
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
    size = regular_file(archive, what=english("The archive"))
    members = _members(archive)
    with writing(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise BadInput(
                english("{folder} exists and is not an empty folder.", folder=shown(folder)),
                fix=english("remove it, or unpack elsewhere"),
            )
        folder.mkdir(parents=True, exist_ok=True)
    job = _UnpackJob(archive, folder, size, limits)
    try:
        with _intact(archive):
            for member in members:
                job.take(member)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if not job.files:
        shutil.rmtree(folder, ignore_errors=True)
        raise BadInput(english("The archive {archive} holds no files.", archive=shown(archive)), fix=_REPACK)
    return job.files


@dataclass(frozen=True, slots=True)
class _ArchiveEntry:
    """One file of an archive."""

    name: str
    size: int
    refused: str
    content: IO[bytes] | Member | None


@dataclass(slots=True)
class _UnpackJob:
    archive: Path
    folder: Path
    size: int
    limits: ArchiveLimits
    files: int = 0
    total: int = 0

    def take(self, entry: _ArchiveEntry) -> None:
        target = self._target(entry)
        self.files += 1
        self.total += entry.size
        self._check_limits()
        with writing(self.folder):
            if target.exists():
                raise self._refused(entry, english("is there twice"))
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise self._refused(entry, english("lies below a file")) from None
            with target.open("xb") as file:
                self._copy(entry, file)

    def _copy(self, entry: _ArchiveEntry, file: IO[bytes]) -> None:
        stream = entry.content.open() if isinstance(entry.content, Member) else entry.content
        left = entry.size
        while stream is not None and left and (piece := stream.read(min(_CHUNK_BYTES, left))):
            file.write(piece)
            left -= len(piece)
        if left:
            raise Unreadable(
                english(
                    "{name!r:.100} is truncated: {number} of {size} bytes",
                    name=entry.name,
                    number=entry.size - left,
                    size=entry.size,
                )
            )
        # A stream checks its checksum when it is read to its end.
        if isinstance(entry.content, Member) and stream is not None and stream.read(1):
            raise Unreadable(english("{name!r:.100} holds more bytes than it says", name=entry.name))

    def _target(self, entry: _ArchiveEntry) -> Path:
        name = entry.name
        if entry.refused:
            raise self._refused(entry, entry.refused)
        parts = PurePosixPath(name).parts
        if name.startswith("/") or "\\" in name or ":" in name.split("/", 1)[0][1:2]:
            raise self._refused(entry, english("is an absolute path, or one of another system"))
        if ".." in parts or not parts:
            raise self._refused(entry, english("leads out of the folder"))
        if "\0" in name or any(len(part.encode("utf-8", "surrogateescape")) > _LONGEST_PART for part in parts):
            raise self._refused(entry, english("has a name that no disk takes"))
        return self.folder.joinpath(*parts)

    def _check_limits(self) -> None:
        limits = self.limits
        if self.files > limits.files:
            what = english(
                "The archive {archive} holds more than {files} files.",
                archive=shown(self.archive),
                files=limits.files,
            )
            raise BadInput(what, fix=english("unpack it yourself and give the folder, if it is meant"))
        if self.total > max(limits.free_bytes, limits.ratio * self.size):
            what = english(
                "The archive {archive} has {size} bytes and claims to unpack to more than {total}, "
                "as archives made to fill disks do.",
                archive=shown(self.archive),
                size=self.size,
                total=self.total,
            )
            raise BadInput(what, fix=english("unpack it yourself and give the folder, if it is meant"))

    def _refused(self, entry: _ArchiveEntry, why: str) -> BadInput:
        return BadInput(
            "The archive {archive} is refused: {name!r:.100} {why}.",
            fix=_REPACK,
            archive=shown(self.archive),
            name=entry.name,
            why=why,
        )


def _members(archive: Path) -> Iterator[_ArchiveEntry]:
    with reading(archive, what=english("The archive")), archive.open("rb") as file:
        start = file.read(len(_ZIP[0]))
    if start.startswith(_ZIP):
        return _zip_members(archive)
    if start.startswith(_GZIP) or _is_tar(archive):
        return _tar_members(archive)
    raise BadInput(
        "{archive} is no archive: it does not begin as a tar, tar.gz or zip does.",
        fix=english("give one of {archive_suffixes}, or a folder", archive_suffixes=", ".join(ARCHIVE_SUFFIXES)),
        archive=shown(archive),
    )


def _is_tar(archive: Path) -> bool:
    try:
        tarfile.open(archive, "r:").close()
    except (tarfile.TarError, ValueError):
        return False
    return True


def _zip_members(archive: Path) -> Iterator[_ArchiveEntry]:
    for member in list_members(archive):
        kind = stat.S_IFMT(member.info.external_attr >> 16)
        refused = "" if kind in (0, stat.S_IFREG) else "is neither a file nor a folder (a link or a device)"
        yield _ArchiveEntry(member.name, member.size, refused, member)


def _tar_members(archive: Path) -> Iterator[_ArchiveEntry]:
    # As a stream: nothing is read twice, and a member is checked before the next one is looked for.
    with tarfile.open(archive, "r|*") as tar:
        for info in tar:
            if info.isdir():
                continue
            refused = "" if info.isreg() and not info.issparse() else "is a link, a device or the like"
            yield _ArchiveEntry(info.name, info.size, refused, tar.extractfile(info) if not refused else None)


@contextlib.contextmanager
def _intact(archive: Path) -> Iterator[None]:
    try:
        with reading(archive, what=english("The archive")):
            yield
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        EOFError,
        zlib.error,
        lzma.LZMAError,
        ValueError,
        RuntimeError,
        # What Python's reader of tar says of streams that end within a header, or of numbers that are none.
        TypeError,
        IndexError,
        OverflowError,
    ) as error:
        raise BadInput(
            english("The archive {archive} is damaged: {error}.", archive=shown(archive), error=error),
            fix=english("make it again"),
        ) from error
    except Unreadable as error:
        raise BadInput(
            english(
                "The archive {archive} cannot be read: {problem}.", archive=shown(archive), problem=error.problem
            ),
            fix=_REPACK,
        ) from error
