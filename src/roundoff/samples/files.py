"""What lies in a sample folder: which files hold values, which are notes beside them, in which order."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from roundoff.core.files import reading
from roundoff.core.names import natural_key, shown
from roundoff.errors import BadInput

__all__ = [
    "IMAGE_SUFFIXES",
    "Kind",
    "Listing",
    "is_metadata",
    "kind_of",
    "list_folder",
]

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
    with reading(folder, what="The folder"):
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
                    f"{shown(folder / entry.name)} is neither a file nor a folder (a broken link?).",
                    fix="remove it from the samples",
                )
