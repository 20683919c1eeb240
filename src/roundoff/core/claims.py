"""What is being written is claimed: the system gives it free when its process ends, however that ends.

A folder or file under a passing name that nobody claims was left by a run that was killed, and the next run
removes it. Who else is at work in a folder is known before anything in it is touched.
"""

import contextlib
import errno
import logging
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

from roundoff.errors import BadInput
from roundoff.messages.message import english

try:
    import fcntl
except ImportError:  # where there is no such lock nothing is ever taken for abandoned
    fcntl = None  # type: ignore[assignment]

_LOGGER = logging.getLogger("roundoff.core")
_RANDOM = "[0-9a-f]" * 8
_SCRATCH = "roundoff-scratch-"
PART = ".partial"
"""How a file ends that is being written."""
_EXCHANGE = 2
"""RENAME_EXCHANGE of renameat2(2)."""
_HERE = -100
"""AT_FDCWD: paths are those of the process."""


def claim(path: Path, *, shared: bool = False) -> int | None:
    """Claim a file or folder until the number that is given is closed; None when somebody else has it.

    Where the system or the disk knows no locks, nobody can have it, and nobody gets it.

    Args:
        path: What.
        shared: Others may have it at the same time, if they share it, too.
    """
    if fcntl is None:
        return None
    try:
        place = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(place, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        os.close(place)
        return None
    return place


def make_claimed(parent: Path, start: str, end: str = "", *, folder: bool = True) -> tuple[Path, int | None]:
    """Make a folder, or an empty file, under a passing name, and claim it.

    Returns:
        The path, and what to close in the end: None where the disk knows no claims.
    """
    while True:
        path = parent / f"{start}{os.urandom(4).hex()}{end}"
        path.mkdir() if folder else path.touch(exist_ok=False)
        place = claim(path)
        # Somebody who cleans up may have been quicker, in the moment before it was claimed.
        if path.exists() and (place is not None or not is_taken(path)):
            return path, place
        if place is not None:
            os.close(place)


@contextlib.contextmanager
def staged_file(target: Path) -> Iterator[Path]:
    """A file beside `target` to write to, which is then to take its name; what is left of it is removed."""
    staged, place = make_claimed(target.parent, ".", PART, folder=False)
    try:
        yield staged
    finally:
        with contextlib.suppress(OSError):
            staged.unlink(missing_ok=True)
        if place is not None:
            os.close(place)


@contextlib.contextmanager
def alone_in(folder: Path, *, option: str = "-o") -> Iterator[None]:
    """Be the only run that works in a folder, which is made where it is not there.

    Raises:
        BadInput: Another run is at work there.
    """
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    place = claim(Path(os.path.realpath(folder)))
    if place is None and fcntl is not None and is_taken(folder):
        what = english("{folder} is in use by another run.", folder=folder)
        raise BadInput(what, fix=english("wait for it to end, or choose another {option}", option=option))
    try:
        yield
    finally:
        if place is not None:
            os.close(place)
        if new:
            with contextlib.suppress(OSError):  # refused before anything was written
                folder.rmdir()


def is_taken(path: Path) -> bool:
    """Whether somebody has a claim on what is there, and it is not the disk that knows none."""
    try:
        place = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
    finally:
        os.close(place)
    return False


def abandoned(folder: Path, start: str, end: str = "") -> Iterator[Path]:
    """What killed runs left under names that `make_claimed` gives; each is ours while it is looked at."""
    with contextlib.suppress(OSError):
        name = re.compile(re.escape(start) + _RANDOM + re.escape(end))
        for path in sorted(each for each in folder.iterdir() if name.fullmatch(each.name)):
            place = claim(path)
            if place is not None:
                try:
                    yield path
                finally:
                    os.close(place)


def say_removed(path: Path) -> None:
    """Tell the reader that what a killed run left is gone."""
    _LOGGER.warning("%s", english("{path}, left by a run that was killed, was removed", path=path))


def say_taken_up(path: Path) -> None:
    """Tell the reader that a result which a killed run had moved away is back."""
    _LOGGER.warning("%s", english("{path}, moved away by a run that was killed, is back in its place", path=path))


def exchange(first: Path, second: Path) -> bool:
    """Let two names change what they stand for in one step; False where the system cannot."""
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # no such call, or no such library
        return False
    return bool(call(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _EXCHANGE) == 0)


class ScratchFolder:
    """A folder for what does not outlive a command; what killed commands left of theirs is removed.

    Args:
        parent: Where it is made; the system's place for such things by default.
        start: How its name begins.

    Attributes:
        path: The folder.
    """

    def __init__(self, parent: Path | None = None, *, start: str = _SCRATCH) -> None:
        where = Path(tempfile.gettempdir()) if parent is None else parent
        for left in abandoned(where, start):
            shutil.rmtree(left, ignore_errors=True)
            say_removed(left)
        self.path, place = make_claimed(where, start)
        self.path.chmod(0o700)
        self._end = weakref.finalize(self, _end_scratch, self.path, place)

    def close(self) -> None:
        """Remove it."""
        self._end()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def _end_scratch(path: Path, place: int | None) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if place is not None:
        os.close(place)
