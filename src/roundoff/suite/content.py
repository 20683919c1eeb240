"""What files hold, as hashes: a model with its external data, folders, lists with the files they name.

Models and samples at URLs are fetched once per machine into a folder that is kept within bounds.
"""

import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from roundoff.core.claims import staged_file
from roundoff.core.files import is_caffe, model_files, reading
from roundoff.errors import BadInput, MissingExtra
from roundoff.messages.message import english

_LISTS = (".txt", ".lst", ".list")
# A list of samples has short lines; other texts, such as a net of Caffe, are not walked word by word.
_MOST_LINES = 2_000_000


class ContentHashes:
    """Hashes of files and folders; a file is read again only where its size or its date changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], str] = {}

    def of(self, path: Path) -> str:
        """The hash of all that a path stands for.

        Raises:
            BadInput: It cannot be read.
        """
        with reading(path, what=english("The input")):
            if path.is_dir():
                return _joined(f"{self._file(file)} {name}" for name, file in _inside(path))
            if is_caffe(path):
                return _joined(f"{self._file(file)} {file.suffix}" for file in model_files(path))
            own = self._file(path)
            more = [f"{self._file(file)} {file.name}" for file in sorted(set(_named_by(path)))]
        return own if not more else _joined([own, *more])

    def _file(self, path: Path) -> str:
        status = path.stat()
        key = (str(path.absolute()), status.st_size, status.st_mtime_ns)
        if key not in self._known:
            with path.open("rb") as file:
                self._known[key] = hashlib.file_digest(file, "sha256").hexdigest()
        return self._known[key]


def _joined(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _inside(folder: Path) -> Iterator[tuple[str, Path]]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            file = Path(place, name)
            if file.is_file():
                yield file.relative_to(folder).as_posix(), file


def _named_by(path: Path) -> Iterator[Path]:
    """Files that a file names and cannot be used without: external data, samples in a list."""
    if path.suffix.lower() == ".onnx":
        from roundoff.graph.load import external_files

        yield from external_files(path)
    elif path.suffix.lower() in _LISTS:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines):
                if number >= _MOST_LINES:
                    return
                words = line.strip()
                parts = {words, *words.split(), *(each.partition(":")[2] for each in words.split())}
                yield from (file for each in parts if each and (file := path.parent / each).is_file())


# What lies at a URL ----------------------------------------------------------------------------------------------


def is_url(text: str) -> bool:
    """Whether it names something that is not on this machine."""
    return "://" in text and not text.startswith("file://")


class FetchedFiles:
    """Files of URLs in a folder of this machine, the least recently used of which go when it is full.

    Args:
        folder: Where.
        limit: Bytes it may hold; what was fetched last stays, even where it is more.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self._limit = folder, limit

    def path(self, url: str) -> Path:
        """The file of a URL, fetched where it is not there in its present version.

        Raises:
            MissingExtra: fsspec is not installed.
            BadInput: It cannot be fetched.
        """
        try:
            import fsspec
        except ImportError as error:
            raise MissingExtra(english("A file at a URL"), package="fsspec", extra="suite") from error
        try:
            system, remote = fsspec.core.url_to_fs(url)
            about = system.info(remote)
            version = about.get("ETag") or about.get("mtime") or about.get("LastModified") or system.ukey(remote)
            name = hashlib.sha256(f"{url} {about.get('size')} {version}".encode()).hexdigest()[:24]
            place = self._folder / name / Path(remote).name
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                with staged_file(place) as staged:
                    system.get_file(remote, str(staged))
                    staged.replace(place)
        except (OSError, ImportError, ValueError) as error:
            what = english("{url} cannot be fetched: {error}.", url=url, error=error)
            raise BadInput(what, fix=english("check the address and who may read it")) from error
        os.utime(place.parent, (time.time(), time.time()))
        self._trim(place)
        return place

    def _trim(self, latest: Path) -> None:
        held = []
        for folder in self._folder.iterdir():
            files = [file for file in folder.iterdir() if file.is_file()] if folder.is_dir() else []
            held.append((folder.stat().st_mtime, sum(file.stat().st_size for file in files), folder, files))
        total = sum(size for _, size, _, _ in held)
        for _, size, folder, files in sorted(held, key=lambda each: each[0]):
            if total <= self._limit:
                return
            if folder != latest.parent:
                for file in files:
                    file.unlink(missing_ok=True)
                folder.rmdir()
                total -= size
