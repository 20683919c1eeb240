"""What files hold, as hashes: a model with its external data, folders, lists with the files they name."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from roundoff.core.files import is_caffe, is_there, model_files, reading
from roundoff.messages.message import english

_LISTS = (".txt", ".lst", ".list")
# A list of samples has short lines; other texts, such as a net of Caffe, are not walked word by word.
_MOST_LINES = 2_000_000


class ContentHashes:
    """Hashes of files and folders; a file is read again only where its size or its date changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], str] = {}
        self._beside: dict[tuple[str, int, int], tuple[Path, ...]] = {}

    def of(self, path: Path) -> str:
        """The hash of all that a path stands for.

        Raises:
            BadInput: It cannot be read.
        """
        with reading(path, what=english("The input")):
            lines = [(self._file(file), name) for name, file in self._parts(path)]
        # A file alone is known by its own hash, whatever it is called.
        return (
            lines[0][0]
            if [name for _, name in lines] == [""]
            else _joined(" ".join(filter(None, e)) for e in lines)
        )

    def mark(self, path: Path) -> str:
        """Sizes and dates of all that a path stands for: while they are the same, so is the hash.

        Raises:
            BadInput: It cannot be looked at.
        """
        with reading(path, what=english("The input")):
            return _joined(
                f"{name} {size} {date}" for name, file in self._parts(path) for _, size, date in [_state(file)]
            )

    def _parts(self, path: Path) -> Iterator[tuple[str, Path]]:
        """The files that a path stands for, with what tells one from another."""
        if path.is_dir():
            yield from _inside(path)
        elif is_caffe(path):
            yield from ((file.suffix, file) for file in model_files(path))
        else:
            yield "", path
            state = _state(path)
            if state not in self._beside:
                there = {file for _, file in beside(path) if is_there(file, file=True)}
                self._beside[state] = tuple(sorted(there))
            yield from ((file.name, file) for file in self._beside[state])

    def _file(self, path: Path) -> str:
        key = _state(path)
        if key not in self._known:
            with path.open("rb") as file:
                self._known[key] = hashlib.file_digest(file, "sha256").hexdigest()
        return self._known[key]


def _state(path: Path) -> tuple[str, int, int]:
    """A file, and what changes with its content."""
    status = path.stat()
    return str(path.absolute()), status.st_size, status.st_mtime_ns


def _joined(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _inside(folder: Path) -> Iterator[tuple[str, Path]]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            file = Path(place, name)
            if file.is_file():
                yield file.relative_to(folder).as_posix(), file


def beside(path: Path) -> Iterator[tuple[str, Path]]:
    """What a file names and cannot be used without: external data, samples in a list; some of it may not be there.

    Returns:
        Names as written there, and the files.
    """
    if path.suffix.lower() == ".onnx":
        from roundoff.graph.load import external_names

        yield from ((name, path.parent / name) for name in external_names(path))
    elif path.suffix.lower() in _LISTS:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines):
                if number >= _MOST_LINES:
                    return
                words = line.strip()
                parts = {words, *words.split(), *(each.partition(":")[2] for each in words.split())}
                yield from ((each, path.parent / each) for each in sorted(parts) if each)


def is_url(text: str) -> bool:
    """Whether it names something that is not on this machine."""
    return "://" in text and not text.startswith("file://")
