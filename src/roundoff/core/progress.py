"""Progress as a protocol of three methods, so that the library is silent unless a front end listens."""

import contextlib
import glob
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol, Self


class Progress(Protocol):
    """Receives how far a long job is."""

    def start(self, title: str, total: int) -> None:
        """A job of `total` steps begins."""
        ...

    def advance(self, steps: int = 1) -> None:
        """So many more steps are done."""
        ...

    def finish(self) -> None:
        """The job that was started last is over, done or not."""
        ...


class _Silent:
    def start(self, title: str, total: int) -> None:
        pass

    def advance(self, steps: int = 1) -> None:
        pass

    def finish(self) -> None:
        pass


SILENT: Progress = _Silent()


# Progress that others can read while a command runs: a small hidden file beside its output folder.

_ENDING = ".roundoff-progress"
# Jobs that end sooner need no watching, and files that change more often wear out disks.
_QUIET_S = 2.0
_EVERY_S = 1.0
_MOST_BYTES = 4096
_LONGEST_TITLE = 200


@dataclass(frozen=True, slots=True)
class RunningJob:
    """How far a command is.

    Attributes:
        output: Name of the folder that it will write.
        title: What it is doing.
        done: Steps that are done.
        total: All steps.
        elapsed_s: Since this job began.
        process: The process that does it, by which a file that was left behind is known.
    """

    output: str
    title: str
    done: int
    total: int
    elapsed_s: float
    process: int


def progress_path(output: Path) -> Path:
    """Where the progress of a command is that writes to `output`."""
    # Folders such as "." and ".." have a name only when it is looked up; the root of a disk has none at all.
    whole = Path(os.path.abspath(output))  # noqa: PTH100 - links stay what they are
    return whole.parent / f".{whole.name}{_ENDING}"


class ProgressFile:
    """Writes how far a job is, at most once a second. Also a `roundoff.core.progress.Progress`.

    What cannot be written is left out: progress is no result.
    """

    def __init__(self, output: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._output, self._clock = output, clock
        self._title, self._done, self._total = "", 0, 0
        self._begun = clock()
        self._started = self._written = self._begun

    def start(self, title: str, total: int) -> None:
        """A job begins."""
        self._title, self._done, self._total, self._started = title[:_LONGEST_TITLE], 0, total, self._clock()
        self._tell()

    def advance(self, steps: int = 1) -> None:
        """Steps are done."""
        self._done += steps
        self._tell()

    def finish(self) -> None:
        """A job is over; others may follow, so that the file stays."""

    def close(self) -> None:
        """The command is over: take the file away, and what killed ones left while they wrote theirs."""
        path = progress_path(self._output)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            for left in path.parent.glob(f"{glob.escape(path.name)}.*"):
                process = left.name.rpartition(".")[2]
                if not (process.isascii() and process.isdigit()):
                    continue
                # One of our own is left where the disk was full.
                if int(process) == os.getpid() or not _alive(int(process)):
                    left.unlink()

    def _tell(self) -> None:
        now = self._clock()
        if now - self._begun < _QUIET_S or now - self._written < _EVERY_S:
            return
        self._written = now
        elapsed = round(now - self._started, 1)
        job = RunningJob(self._output.name, self._title, self._done, self._total, elapsed, os.getpid())
        path = progress_path(self._output)
        staged = path.with_name(f"{path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            staged.write_text(json.dumps(asdict(job)), encoding="utf-8")
            staged.replace(path)


def read_progress(folder: Path) -> tuple[RunningJob, ...]:
    """The jobs that run now and will write into `folder`, by name."""
    found = []
    with contextlib.suppress(OSError):
        for path in sorted(folder.glob(f".*{_ENDING}")):
            job = _read(path)
            if job is not None and _alive(job.process):
                found.append(job)
    return tuple(found)


def _read(path: Path) -> RunningJob | None:
    from roundoff.core.untrusted import parse_json  # every command writes progress, few read it
    from roundoff.errors import BadInput

    try:
        # Neither links nor pipes, which could be read for ever.
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        content = parse_json(path.read_bytes(), path)
        job = RunningJob(**content)
        known = [isinstance(getattr(job, name), int) for name in ("done", "total", "process")]
        known += [isinstance(getattr(job, name), str) for name in ("output", "title")]
        return job if all(known) and isinstance(job.elapsed_s, int | float) else None
    except (OSError, BadInput, TypeError):
        # Replaced or removed while it was read, or written by somebody else.
        return None


def _alive(process: int) -> bool:
    # Anything else than a positive number would mean groups of processes.
    if process <= 0:
        return False
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


# Until when work may go on, asked before each piece of it.


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of the time that was given.

    Attributes:
        at: When, by the clock; infinite for no end.
        clock: Tells the time in seconds.
        given: Seconds that were given, for people.
    """

    at: float = math.inf
    clock: Callable[[], float] = time.monotonic
    given: float = math.inf

    @classmethod
    def after(
        cls, seconds: float | None, *, start: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> Self:
        """So many seconds after a start, now by default; without an end where None."""
        if seconds is None:
            return cls(clock=clock)
        return cls((clock() if start is None else start) + seconds, clock, seconds)

    @property
    def left(self) -> float:
        """Seconds that are left; below 0 when it is over, infinite without an end."""
        return self.at - self.clock()

    def allows(self, seconds: float) -> bool:
        """Whether something that takes so long would be over in time."""
        return self.left > seconds

    def share(self, part: float) -> Self:
        """The end of a part of the time that is left; without an end where it has none."""
        now = self.clock()
        return replace(self, at=now + part * max(0.0, self.at - now))


NO_DEADLINE = Deadline()
"""As long as it takes."""
