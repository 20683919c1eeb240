"""Models and samples at URLs: fetched once per machine into a folder that is kept within bounds.

What was fetched is known by the hash of its content. A worker that is asked for a unit has that hash, and needs to
ask nobody where the file is there already. Whoever uses a file shares a claim on it, and what is claimed is not
removed to make room.
"""

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from roundoff.core.claims import abandoned, claim, is_taken, make_claimed
from roundoff.core.files import is_caffe, is_there, model_files, reading, write_bytes
from roundoff.core.untrusted import parse_json
from roundoff.errors import BadInput, MissingExtra, RoundoffError, reason
from roundoff.messages.message import english

_FOLDER, _SIZE = "ROUNDOFF_SUITE_CACHE", "ROUNDOFF_SUITE_CACHE_BYTES"
_USUAL_BYTES = 20 << 30
_PASSING = ".fetching-"
_INDEX = "index"
# By these servers tell one version of a file from another.
_VERSIONS = (
    "ETag", "etag", "Content-MD5", "Digest", "md5Hash", "Last-Modified", "LastModified", "last_modified", "mtime",
    "modified", "updated", "created",
)  # fmt: skip
_LOOK_AGAIN_S = 0.1
_NAME_LENGTH = 24


@cache
def default_cache() -> "FetchedFiles":
    """Where files of URLs go on this machine; the environment may say otherwise.

    Raises:
        BadInput: It says no number of bytes.
    """
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    size = os.environ.get(_SIZE) or str(_USUAL_BYTES)
    if not size.isdigit():
        what = english("{name} is {size!r}, which is no number of bytes.", name=_SIZE, size=size)
        raise BadInput(what, fix=english("write it in digits, as {size}", size=_USUAL_BYTES))
    return FetchedFiles(Path(os.environ.get(_FOLDER) or Path(home, "roundoff-suite")), int(size))


class FetchedFiles:
    """Files of URLs in a folder of this machine, the least recently used of which go when it is full.

    Args:
        folder: Where.
        limit: Bytes it may hold. What is in use stays, and what was fetched last, even where it is more.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._hashes = ContentHashes()

    def digest(self, url: str) -> str:
        """The hash of what a URL holds now; it is fetched only where the server tells of another version.

        Raises:
            MissingExtra: fsspec, or what it needs for such a URL, is not installed.
            BadInput: It cannot be fetched.
        """
        known = self._known(url)
        if known is None:
            return self._fetched(url)
        with _fetching(url):
            there = _Place(url).versions(known["parts"])
        return str(known["digest"]) if there == known["parts"] else self._fetched(url)

    @contextlib.contextmanager
    def held(self, url: str, digest: str) -> Iterator[Path]:
        """The file or folder of a URL, which stays while it is used.

        Args:
            url: Where it comes from.
            digest: The hash of what it is to hold.

        Raises:
            MissingExtra: fsspec, or what it needs for such a URL, is not installed.
            BadInput: It cannot be fetched, or holds something else by now.
        """
        entry = self._entry(url, digest)
        while (place := self._shared(entry)) is None:
            if self._fetched(url, digest) != digest:
                raise changed(url)
            if entry.exists() and not is_taken(entry):
                place = self._shared(entry)
                break  # with a claim, or where a disk knows none without
        try:
            with contextlib.suppress(OSError):
                os.utime(entry)
            yield entry / _last(url)
        finally:
            if place is not None:
                os.close(place)

    def _entry(self, url: str, digest: str) -> Path:
        return self._folder / hashlib.sha256(f"{url} {digest}".encode()).hexdigest()[:_NAME_LENGTH]

    def _shared(self, entry: Path) -> int | None:
        """A claim on what is there, shared with others who use it; None where there is nothing, or no claims."""
        while (place := claim(entry, shared=True)) is None and entry.exists() and is_taken(entry):
            time.sleep(_LOOK_AGAIN_S)  # somebody is removing it
        if place is None:
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(place), entry.stat()):
                return place
        os.close(place)  # of what was removed in this moment
        return None

    def _known(self, url: str) -> dict[str, Any] | None:
        """What was found at a URL when it was fetched last."""
        try:
            found = parse_json(self._index(url).read_bytes(), url)
        except (OSError, BadInput):
            return None
        whole = isinstance(found, dict) and isinstance(found.get("parts"), dict) and "digest" in found
        return found if whole and None not in found["parts"].values() else None

    def _index(self, url: str) -> Path:
        return self._folder / _INDEX / f"{hashlib.sha256(url.encode()).hexdigest()[:_NAME_LENGTH]}.json"

    def _fetched(self, url: str, wanted: str = "") -> str:
        """Fetch it, unless somebody else just did; gives the hash of what came."""
        with _fetching(url), self._alone(url):
            if wanted and self._entry(url, wanted).exists():
                return wanted
            place = _Place(url)
            self._trim(room=place.size)
            staged, held = make_claimed(self._folder, _PASSING)
            try:
                parts = place.download(staged)
                digest = self._hashes.of(staged / _last(url))
                entry = self._entry(url, digest)
                if not entry.exists():
                    staged.rename(entry)
                write_bytes(self._index(url), json.dumps({"parts": parts, "digest": digest}).encode())
                self._trim(latest=entry)
            finally:
                shutil.rmtree(staged, ignore_errors=True)
                if held is not None:
                    os.close(held)
        return digest

    @contextlib.contextmanager
    def _alone(self, url: str) -> Iterator[None]:
        """Be the only one on this machine who fetches a URL."""
        lock = self._index(url).with_suffix(".lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
        while (held := claim(lock)) is None and is_taken(lock):
            time.sleep(_LOOK_AGAIN_S)
        try:
            yield
        finally:
            if held is not None:
                os.close(held)

    def _trim(self, *, room: int = 0, latest: Path | None = None) -> None:
        """Remove what was used least recently, until there is room; and what killed processes left."""
        for left in abandoned(self._folder, _PASSING):
            shutil.rmtree(left, ignore_errors=True)
        held = []
        for entry in self._folder.iterdir():
            if entry.is_dir() and entry.name != _INDEX and not entry.name.startswith("."):
                with contextlib.suppress(OSError):
                    size = sum(file.stat().st_size for file in entry.rglob("*") if file.is_file())
                    held.append((entry.stat().st_mtime, size, entry))
        total = room + sum(size for _, size, _ in held)
        for _, size, entry in sorted(held):
            if total <= self._limit:
                return
            place = None if entry == latest else claim(entry)
            if place is not None:
                gone = entry.with_name(f"{_PASSING}{os.urandom(4).hex()}")
                entry.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
                os.close(place)
                total -= size


class _Place:
    """What lies at a URL."""

    def __init__(self, url: str) -> None:
        import fsspec

        self._system, self._remote = fsspec.core.url_to_fs(url)
        self._system.invalidate_cache()
        self._about = self._system.info(self._remote)
        self._name = _last(url)
        self._folder = self._about.get("type") == "directory"

    @property
    def size(self) -> int:
        """Bytes of the file itself; 0 where that is not known."""
        return int(self._about.get("size") or 0)

    def versions(self, names: Mapping[str, Any]) -> dict[str, str | None]:
        """By what the server tells versions of files apart; None where it does not."""
        return {name: self._version(name) for name in names}

    def _version(self, name: str) -> str | None:
        if name == self._name and self._folder:
            inside = self._system.find(self._remote, detail=True)
            told = {path: _told(about) for path, about in inside.items()}
            return None if None in told.values() else _hash(json.dumps(told, sort_keys=True))
        try:
            return _told(self._about if name == self._name else self._system.info(self._path(name)))
        except FileNotFoundError:
            return None

    def _path(self, name: str) -> str:
        return f"{self._remote.rstrip('/').rpartition('/')[0]}/{name}"

    def download(self, folder: Path) -> dict[str, str | None]:
        """Fetch it, with what it names and cannot be used without; gives the versions of all parts."""
        path = folder / self._name
        if self._folder:
            self._system.get(f"{self._remote.rstrip('/')}/", f"{path}/", recursive=True)
            return self.versions({self._name: None})
        self._one(self._remote, path, self._about)
        found = self.versions({self._name: None})
        for name in self._more(path):
            place = path.parent / name
            place.parent.mkdir(parents=True, exist_ok=True)
            about = self._system.info(self._path(name))
            self._one(self._path(name), place, about)
            found[name] = _told(about)
        return found

    def _one(self, remote: str, path: Path, about: Mapping[str, Any]) -> None:
        self._system.get_file(remote, str(path))
        size = about.get("size")
        if size is not None and path.stat().st_size != size:
            raise OSError(f"{path.stat().st_size} of {size} bytes came")

    def _more(self, path: Path) -> list[str]:
        """Names of files beside it, those that are there."""
        if path.suffix.lower() == ".prototxt":
            names = {path.with_suffix(".caffemodel").name}
        else:
            names = {name for name, _ in beside(path) if name != path.name and _is_below(name)}
        return sorted(name for name in names if self._system.exists(self._path(name)))


@contextlib.contextmanager
def _fetching(url: str) -> Iterator[None]:
    """Whatever a library of some kind of URL raises is told as one thing."""
    try:
        import fsspec  # noqa: F401
    except ImportError as error:
        raise MissingExtra(english("A file at a URL"), package="fsspec", extra="suite") from error
    try:
        yield
    except RoundoffError:
        raise
    except Exception as error:
        why: str = reason(error).rstrip(".")
        if isinstance(error, FileNotFoundError):
            why = english("nothing is there, or nobody answers")
        what = english("{url} cannot be fetched: {error}.", url=url, error=why)
        raise BadInput(what, fix=english("check the address and who may read it")) from error


def changed(path: str) -> BadInput:
    """A file is no longer what it was when the suite was read."""
    what = english("{path} changed while the suite ran.", path=path)
    return BadInput(what, fix=english("run the suite again: it then takes the file as it is now"))


def _told(about: Mapping[str, Any]) -> str | None:
    """A version of a file, as its server tells it."""
    found = [f"{key}={about[key]}" for key in _VERSIONS if about.get(key)]
    return _hash(f"{about.get('size')} {found}") if found else None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _is_below(name: str) -> bool:
    """Whether it stays in the folder where it begins."""
    return not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts


def _last(url: str) -> str:
    """What a file of a URL is called here."""
    name = url.split("://", 1)[1].split("?", 1)[0].rstrip("/").rpartition("/")[2]
    return "".join("-" if each in ":\\" else each for each in name) or "file"


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
