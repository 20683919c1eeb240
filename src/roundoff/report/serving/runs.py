"""The runs of a folder: found anew on every request, read once as long as they do not change."""

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from roundoff.core.document import DOCUMENT_NAME, RunDocument, load_document
from roundoff.core.progress import RunningJob, read_progress
from roundoff.errors import BadInput

__all__ = ["FoundRun", "RunFolder"]

# Enough for a folder of results; a whole disk is not walked through.
_MOST_RUNS = 500
_MOST_FOLDERS = 5000
_DEEPEST = 4
_LARGEST_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class FoundRun:
    """One run.

    Attributes:
        id: By which it is asked for: made of its place, so that no address names a file.
        name: Its place below the folder.
        path: The folder of the run.
        written: When it was written, in the time of this machine.
        stamp: Changes when the run does.
    """

    id: str
    name: str
    path: Path
    written: str
    stamp: tuple[int, int]


@dataclass(slots=True)
class RunFolder:
    """All runs at or below a folder.

    Attributes:
        root: The folder.
    """

    root: Path
    _read: dict[tuple[str, tuple[int, int]], RunDocument | BadInput] = field(default_factory=dict)

    def runs(self) -> dict[str, FoundRun]:
        """Every run by its id, the newest first. Links are not followed, hidden folders not entered."""
        found = sorted(self._walk(), key=lambda run: run.stamp, reverse=True)
        return {run.id: run for run in found[:_MOST_RUNS]}

    def document(self, run: FoundRun) -> RunDocument:
        """What a run says.

        Raises:
            BadInput: It is no document that this version reads.
        """
        key = (run.id, run.stamp)
        found = self._read.get(key)
        if found is None:
            for old in [each for each in list(self._read) if each[0] == run.id]:
                self._read.pop(old, None)
            try:
                found = load_document(run.path)
            except BadInput as error:
                found = error
            self._read[key] = found
        if isinstance(found, BadInput):
            raise found
        return found

    def jobs(self) -> tuple[RunningJob, ...]:
        """The commands that run now and will write at or below the folder, called by their place in it."""
        return tuple(
            replace(job, output=(place.relative_to(self.root) / job.output).as_posix())
            for place in self._folders()
            for job in read_progress(place)
        )

    def _walk(self) -> Iterator[FoundRun]:
        return (run for place in self._folders() if (run := self._run(place)) is not None)

    def _folders(self) -> Iterator[Path]:
        for count, (place, folders, _) in enumerate(os.walk(self.root)):
            if count >= _MOST_FOLDERS:
                return
            path = Path(place)
            depth = len(path.relative_to(self.root).parts)
            folders[:] = sorted(name for name in folders if depth < _DEEPEST and not name.startswith("."))
            yield path

    def _run(self, path: Path) -> FoundRun | None:
        try:
            # Not what a link points to: that may be anywhere.
            status = (path / DOCUMENT_NAME).lstat()
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_BYTES:
            return None
        name = path.relative_to(self.root).as_posix()
        written = time.strftime("%Y-%m-%d %H:%M", time.localtime(status.st_mtime))
        identity = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
        shown = self.root.name if name == "." else name
        return FoundRun(identity, shown, path, written, (status.st_mtime_ns, status.st_size))
