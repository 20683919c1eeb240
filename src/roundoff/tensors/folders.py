"""What lies in a folder: its files in the order people expect, its manifest, and which format it looks like."""

import os
from collections.abc import Iterator
from pathlib import Path

from roundoff.core.files import reading
from roundoff.core.names import natural_key
from roundoff.errors import BadInput
from roundoff.tensors.manifest import find_manifest, read_manifest

__all__ = [
    "ARCHIVES",
    "CERTAIN",
    "LIKELY",
    "POSSIBLE",
    "files_with",
    "is_tensor_file",
    "list_files",
    "locate",
    "sniff_files",
]

CERTAIN = 95
"""Score of a file with the format's suffix, and of a folder whose manifest lists only such files."""
LIKELY = 80
"""Score of a folder that holds files of the format."""
POSSIBLE = 50
"""Score of files that could be the format's, by a suffix that many programs use."""

ARCHIVES = (".npz", ".safetensors")
_MANIFEST_SUFFIXES = (".json", ".csv")


def is_tensor_file(path: Path) -> bool:
    """Whether a path is one file that is to be read by itself, not a folder or the manifest of one."""
    return path.is_file() and path.suffix.lower() not in _MANIFEST_SUFFIXES


def locate(path: Path) -> tuple[Path, Path | None]:
    """Tell the folder that is meant and its manifest; `path` may be either."""
    if path.is_dir():
        return path, find_manifest(path)
    return path.parent, path


def list_files(folder: Path) -> list[str]:
    """List the files of a folder and its sub-folders, in natural order; see `walk_files`."""
    return sorted(walk_files(folder), key=lambda file: (natural_key(without_suffix(file)), file))


def files_with(folder: Path, suffixes: tuple[str, ...]) -> list[str]:
    """List the files that have one of the suffixes, in natural order."""
    return [file for file in list_files(folder) if suffix_of(file) in suffixes]


def walk_files(folder: Path) -> Iterator[str]:
    """Walk through the files of a folder and its sub-folders.

    Hidden files and folders (names that begin with a dot) are left alone: they are bookkeeping of file managers
    and half-written results. Links are followed, each folder once.

    Yields:
        Paths relative to `folder`, with ``/``.
    """
    yield from _walk(str(folder), "", {os.path.realpath(folder)})


def _walk(folder: str, below: str, visited: set[str]) -> Iterator[str]:
    with reading(Path(folder), what="The folder"), os.scandir(folder) as entries:
        found = [entry for entry in entries if not entry.name.startswith(".")]
    for entry in found:
        if not _is_folder(entry):
            yield f"{below}{entry.name}"
        elif (real := os.path.realpath(entry.path)) not in visited:
            visited.add(real)
            yield from _walk(entry.path, f"{below}{entry.name}/", visited)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle: reading it will tell, if it is named like a tensor
        return False


def suffix_of(file: str) -> str:
    """The suffix of a path in lower case, with its dot; plain text because a dump has thousands of paths."""
    stem, dot, suffix = file.rpartition("/")[2].rpartition(".")
    return f".{suffix.lower()}" if stem and dot else ""


def without_suffix(file: str) -> str:
    """The path without its suffix."""
    return file[: len(file) - len(suffix_of(file))]


def sniff_files(path: Path, *, suffixes: tuple[str, ...], bare: int = LIKELY) -> int:
    """Score how well a path fits a format that is known by its suffixes.

    Args:
        path: A file, a folder, or a manifest.
        suffixes: The suffixes of the format.
        bare: Score of a folder that holds such files but has no manifest.
    """
    if is_tensor_file(path):
        return CERTAIN if path.suffix.lower() in suffixes else 0
    if not path.exists():
        return 0
    folder, manifest = locate(path)
    listed = _listed_suffixes(manifest)
    if listed:
        return CERTAIN if listed <= set(suffixes) else LIKELY if listed & set(suffixes) else 0
    if not any(suffix_of(file) in suffixes for file in walk_files(folder)):
        return 0
    return LIKELY if manifest else bare


def _listed_suffixes(manifest: Path | None) -> set[str]:
    """The kinds of files a manifest names; empty when it names none or is broken, which opening it will tell."""
    if manifest is None:
        return set()
    try:
        entries = read_manifest(manifest).tensors
    except BadInput:
        return set()
    return {_kind(entry.file) for entry in entries if entry.file}


def _kind(file: str) -> str:
    containers = (suffix_of(part) for part in file.split("/")[:-1])
    return next((suffix for suffix in containers if suffix in ARCHIVES), suffix_of(file))
