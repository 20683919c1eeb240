"""Where what is done is kept: documents by the hash of all they depend on, in a folder or at a URL of fsspec.

Whoever has the hash of a unit finds out by himself whether it is done, on any machine: there is no coordinator.
An object is put where none is, never changed, and carries a hash of its own content: what was cut off or damaged
is noticed when it is read, and made again.
"""

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from roundoff.core.claims import PART, abandoned, staged_file
from roundoff.core.document import json_text
from roundoff.core.files import writing
from roundoff.core.untrusted import parse_json
from roundoff.errors import BadInput, MissingExtra, RoundoffError, reason
from roundoff.messages.message import english

_UNITS, _FAILURES, _SUITES = "units", "failures", "suites"
_HASH_LENGTH = 64
_HANDS = 16
STAMP = "%Y%m%dT%H%M%S.%fZ"
"""How the time of a run is written, in UTC."""


T = TypeVar("T")
U = TypeVar("U")


class StoreFailed(BadInput):
    """A store does not answer; it may do so a moment later."""

    passing = True


class Objects(Protocol):
    """Bytes by name, where a store keeps them."""

    def read(self, name: str) -> bytes | None:
        """What is there; None for nothing."""
        ...

    def create(self, name: str, content: bytes) -> bool:
        """Put something where nothing is; False, and nothing is changed, where something is."""
        ...

    def replace(self, name: str, content: bytes) -> None:
        """Put something, whatever is there."""
        ...

    def remove(self, name: str) -> None:
        """Take something away, if it is there."""
        ...

    def names(self, start: str) -> Iterator[tuple[str, float]]:
        """All names below one, and when each was written, in seconds."""
        ...


class FolderObjects:
    """Objects as files of a folder.

    Args:
        folder: It is made when something is put.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: set[Path] = set()

    def read(self, name: str) -> bytes | None:
        """What is there."""
        try:
            return (self.folder / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def create(self, name: str, content: bytes) -> bool:
        """Put it; whole or not at all, and only one of many who try at the same time."""
        path = self._place(name)
        with writing(path, option="--store"), staged_file(path) as staged:
            staged.write_bytes(content)
            try:
                os.link(staged, path)
            except FileExistsError:
                return False
            except OSError:  # a disk without links: whoever comes last puts the same bytes
                if path.exists():
                    return False
                staged.replace(path)
        return True

    def replace(self, name: str, content: bytes) -> None:
        """Put it."""
        path = self._place(name)
        with writing(path, option="--store"), staged_file(path) as staged:
            staged.write_bytes(content)
            staged.replace(path)

    def _place(self, name: str) -> Path:
        path = self.folder / name
        if path.parent not in self._made:
            with writing(path, option="--store"):
                path.parent.mkdir(parents=True, exist_ok=True)
            self._made.add(path.parent)
        return path

    def remove(self, name: str) -> None:
        """Take it away."""
        (self.folder / name).unlink(missing_ok=True)

    def names(self, start: str) -> Iterator[tuple[str, float]]:
        """All files; what killed writers left is removed on the way."""
        for place, folders, files in os.walk(self.folder / start):
            folders.sort()
            for left in abandoned(Path(place), ".", PART):
                left.unlink(missing_ok=True)
            for name in sorted(each for each in files if not each.startswith(".")):
                path = Path(place, name)
                with contextlib.suppress(FileNotFoundError):
                    yield path.relative_to(self.folder).as_posix(), path.stat().st_mtime


class RemoteObjects:
    """Objects at a URL that fsspec knows: S3 and what is like it, and many others.

    Args:
        url: Where.

    Raises:
        MissingExtra: fsspec, or what it needs for such a URL, is not installed.
    """

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError as error:
            raise MissingExtra(english("A store at a URL"), package="fsspec", extra="suite") from error
        try:
            self._system, self._root = fsspec.core.url_to_fs(url)
        except Exception as error:  # whatever the library of such URLs raises
            what = english("The store {url} cannot be opened: {error}.", url=url, error=error)
            raise BadInput(what, fix=english("install what it names, or give a folder")) from error
        self._url = url
        # Other machines put things there: what was listed a moment ago is not what is there.
        self._system.use_listings_cache = False

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Whatever the library of such URLs raises is told as one thing."""
        try:
            yield
        except RoundoffError:
            raise
        except Exception as error:
            why = reason(error).rstrip(".")
            what = english("The store {url} does not answer: {error}.", url=self._url, error=why)
            raise StoreFailed(what, fix=english("check the address, and who may read and write there")) from error

    def read(self, name: str) -> bytes | None:
        """What is there."""
        with self._asking():
            try:
                content: bytes = self._system.cat_file(self._path(name))
            except FileNotFoundError:
                return None
        return content

    def create(self, name: str, content: bytes) -> bool:
        """Put it, by the condition of the server where it knows such; else what is there was just looked for."""
        path = self._path(name)
        with self._asking():
            try:
                self._make(path)
                self._system.pipe_file(path, content, mode="create")
            except FileExistsError:
                return False
            except (NotImplementedError, TypeError, ValueError):
                self._system.invalidate_cache()
                if self._system.exists(path):
                    return False
                self._system.pipe_file(path, content)
        return True

    def replace(self, name: str, content: bytes) -> None:
        """Put it."""
        with self._asking():
            self._make(self._path(name))
            self._system.pipe_file(self._path(name), content)

    def _make(self, path: str) -> None:
        """Folders, where there are such; a bucket is its owner's to make."""
        if self._system.protocol not in ("s3", "gs") and "s3" not in self._system.protocol:
            self._system.makedirs(path.rpartition("/")[0], exist_ok=True)

    def remove(self, name: str) -> None:
        """Take it away."""
        with self._asking(), contextlib.suppress(FileNotFoundError):
            self._system.rm_file(self._path(name))

    def names(self, start: str) -> Iterator[tuple[str, float]]:
        """All objects."""
        with self._asking():
            self._system.invalidate_cache()
            try:
                found = self._system.find(self._path(start), detail=True)
            except FileNotFoundError:
                return
        for path, about in sorted(found.items()):
            written = about.get("LastModified") or about.get("mtime") or about.get("created") or 0.0
            seconds = written.timestamp() if isinstance(written, datetime) else float(written)
            yield path[len(self._root.rstrip("/")) + 1 :], seconds


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """A run of a suite, as the store remembers it.

    Attributes:
        suite: Its name.
        when: When it ended, in UTC.
        units: What is known of each unit: its label, key, state, figures and seconds.
        whole: Whether these are all units of the suite, and not the share of a job.
    """

    suite: str
    when: str
    units: tuple[Mapping[str, Any], ...]
    whole: bool = True


class UnitStore:
    """Documents of units, failures, and runs of suites.

    Args:
        url: A folder, or a URL.

    Attributes:
        folder: The folder; None for a URL.

    Raises:
        MissingExtra: A package for such a URL is not installed.
        BadInput: It is a file, or a URL that cannot be opened.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        scheme, separator, rest = url.partition("://")
        local = not separator or scheme in ("file", "local")
        self.folder = Path(rest if separator else url) if local else None
        if self.folder is not None and self.folder.exists() and not self.folder.is_dir():
            what = english("The store {url} is a file, not a folder.", url=url)
            raise BadInput(what, fix=english("choose another folder with --store"))
        self._objects: Objects = RemoteObjects(url) if self.folder is None else FolderObjects(self.folder)
        # Whoever waits for a network may wait for several answers at a time.
        self._hands = 1 if local else _HANDS

    def each(self, function: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
        """Call something that asks the store, for each of many, in their order."""
        if self._hands == 1:
            yield from map(function, items)
            return
        with ThreadPoolExecutor(self._hands) as hands:
            yield from hands.map(function, items)

    def begin(self) -> None:
        """Make its folder: what cannot be written is better known before the work than after it.

        Raises:
            BadInput: It cannot be made.
        """
        if self.folder is not None:
            with writing(self.folder, option="--store"):
                self.folder.mkdir(parents=True, exist_ok=True)
                with staged_file(self.folder / "units"):
                    pass

    # Units.

    def get(self, key: str) -> dict[str, Any] | None:
        """The document of a unit; None where there is none, and where what is there is damaged."""
        raw = self._objects.read(_unit(key))
        return None if raw is None else _opened(raw, self.url)

    def put(self, key: str, document: Mapping[str, Any]) -> bool:
        """Keep the document of a unit; False where it was there already. A damaged one is replaced."""
        content = sealed(document)
        if self._objects.create(_unit(key), content):
            return True
        there = self._objects.read(_unit(key))
        if there is not None and _opened(there, self.url) is not None:
            return False
        self._objects.replace(_unit(key), content)
        return True

    def raw(self, key: str) -> bytes | None:
        """The bytes of an object as they are."""
        return self._objects.read(_unit(key))

    def unit_keys(self) -> Iterator[tuple[str, float]]:
        """The units that are there, and when each was written."""
        for name, written in self._objects.names(_UNITS):
            key = name.rpartition("/")[2].removesuffix(".json")
            if len(key) == _HASH_LENGTH:
                yield key, written

    # What went wrong; a later run tries it again.

    def fail(self, key: str, problem: Mapping[str, Any]) -> None:
        """Remember why a unit failed."""
        self._objects.replace(f"{_FAILURES}/{key}.json", sealed(problem))

    def failure(self, key: str) -> dict[str, Any] | None:
        """Why a unit failed when it was tried last."""
        raw = self._objects.read(f"{_FAILURES}/{key}.json")
        return None if raw is None else _opened(raw, self.url)

    def forget_failure(self, key: str) -> None:
        """It is done now."""
        self._objects.remove(f"{_FAILURES}/{key}.json")

    # Runs of suites.

    def add_run(self, suite: str, units: Sequence[Mapping[str, Any]], *, whole: bool = True) -> str:
        """Remember a run, of the whole suite or of a share; gives when it was."""
        when = datetime.now(UTC).strftime(STAMP)
        content = sealed({"suite": suite, "units": list(units), "whole": whole})
        while not self._objects.create(_run(suite, when), content):
            when = datetime.now(UTC).strftime(STAMP)
        return when

    def runs(self, suite: str | None = None) -> list[SuiteRun]:
        """The runs of a suite, or of all, the oldest first; damaged ones are left out."""
        start = _SUITES if suite is None else f"{_SUITES}/{suite}"
        found = []
        for name, _ in self._objects.names(start):
            raw = self._objects.read(name)
            content = None if raw is None else _opened(raw, self.url)
            if content is not None and isinstance(content.get("units"), list):
                when = name.rpartition("/")[2].removesuffix(".json")
                whole = content.get("whole") is not False
                found.append(SuiteRun(str(content.get("suite")), when, tuple(content["units"]), whole))
        return sorted(found, key=lambda run: (run.when, run.suite))

    def history(self, suite: str) -> list[SuiteRun]:
        """The states that a suite was in after its runs, the oldest first: shares of it are put together.

        A share of other content begins another state: what it does not name is as it was before.
        """
        found: list[SuiteRun] = []
        told: dict[str, Any] = {}  # by the runs of the newest state: else it is as it was before
        for run in self.runs(suite):
            now = {str(each.get("label")): each for each in run.units}
            if run.whole or not found:
                before, told = {}, {}
            else:
                before = {str(each.get("label")): each for each in found[-1].units}
                if all(told[label] == now[label].get("key") for label in told.keys() & now.keys()):
                    found.pop()
                else:
                    told = {}
            told |= {label: each.get("key") for label, each in now.items()}
            found.append(SuiteRun(run.suite, run.when, tuple((before | now).values())))
        return found

    # What nobody asks for any more.

    def collect(
        self,
        *,
        older_s: float | None = None,
        suite: str | None = None,
        dry: bool = False,
        now: Callable[[], float] = time.time,
    ) -> tuple[list[str], list[str]]:
        """Remove runs that are too old, or of one suite, and units that no run which is left asks for.

        Units that no run ever asked for, as those of a run under way, go by the age of their objects, where an age
        is given; else they stay.

        Args:
            older_s: Runs that are older go.
            suite: Only runs of this suite go; of any age where no age is given.
            dry: Only tell.
            now: The time.

        Returns:
            The runs and the units.
        """
        runs = self.runs()
        limit = None if older_s is None else now() - older_s

        def goes(run: SuiteRun) -> bool:
            return (suite is None or run.suite == suite) and (limit is None or seconds_of(run.when) < limit)

        gone = [run for run in runs if (limit is not None or suite is not None) and goes(run)]
        kept = {each.get("key") for run in runs if run not in gone for each in run.units}
        asked = {each.get("key") for run in gone for each in run.units}
        units = []
        for key, written in self.unit_keys():
            orphan = limit is not None and suite is None and written < limit
            if key not in kept and (key in asked or orphan):
                units.append(key)
        names = [_run(run.suite, run.when) for run in gone]
        if not dry:
            for name in names:
                self._objects.remove(name)
            for key in units:
                self._objects.remove(_unit(key))
                self.forget_failure(key)
        return names, units


def sealed(content: Mapping[str, Any]) -> bytes:
    """A document behind a line with its hash."""
    body = json_text(dict(content)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def _opened(raw: bytes, name: str) -> dict[str, Any] | None:
    """What was sealed; None where it is not whole."""
    head, _, body = raw.partition(b"\n")
    if head != hashlib.sha256(body).hexdigest().encode():
        return None
    content = parse_json(body, name, surrogates=True)
    return content if isinstance(content, dict) else None


def _unit(key: str) -> str:
    return f"{_UNITS}/{key[:2]}/{key}.json"


def _run(suite: str, when: str) -> str:
    return f"{_SUITES}/{suite}/{when}.json"


def seconds_of(when: str) -> float:
    """When a run was, in seconds; the beginning of time where that cannot be read."""
    try:
        return datetime.strptime(when, STAMP).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
