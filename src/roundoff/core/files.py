"""Writing results so that a half-written one is never taken for a whole one, and nothing is lost."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from roundoff.errors import BadInput

__all__ = ["check_output_directory", "output_directory", "reading", "write_text", "writing"]


def _unique() -> str:
    return os.urandom(4).hex()


@contextlib.contextmanager
def reading(path: Path, *, what: str) -> Iterator[None]:
    """Turn any operating-system error while reading `path` into one that says what to do."""
    try:
        yield
    except FileNotFoundError as error:
        raise BadInput(f"{what} {path} does not exist.", fix="check the path") from error
    except PermissionError as error:
        raise BadInput(
            f"{what} {path} may not be read.", fix=f"chmod u+r '{path}', or run as its owner"
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInput(f"{what} {path} cannot be read: {reason}.", fix="check the path and the disk") from error


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn any operating-system error while writing to `path` into one that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            fix = "free some space or write to another disk; nothing incomplete was left behind"
            raise BadInput(f"The disk is full: {path} could not be written.", fix=fix) from error
        reason = error.strerror or str(error)
        fix = "choose a path that can be written with -o"
        raise BadInput(f"{path} could not be written: {reason}.", fix=fix) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all, replacing an old one only when the new one is complete."""
    staged = path.with_name(f".{path.name}.{_unique()}.partial")
    with writing(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # newline="" keeps the line ends of CSV as they are given.
            with staged.open("w", encoding="utf-8", newline="") as file:
                file.write(text)
            staged.replace(path)
        finally:
            staged.unlink(missing_ok=True)


@contextlib.contextmanager
def output_directory(path: Path, *, marker: str, force: bool = False) -> Iterator[Path]:
    """Fill a directory that appears under its name only once it is complete.

    Files go to a neighbour called ``<name>.partial-<random>``; when the block ends without an error it is
    renamed to `path`, otherwise it is removed.

    Args:
        path: Where the result goes. It must not exist, be an empty directory, or, with `force`, be an earlier
            result of ours.
        marker: File that only our own results contain; `force` replaces nothing that lacks it.
        force: Replace an earlier result.
    """
    check_output_directory(path, marker=marker, force=force)
    staged = path.with_name(f"{path.name}.partial-{_unique()}")
    with writing(path):
        staged.mkdir(parents=True)
    done = False
    try:
        with writing(path):
            yield staged
            _swap_in(staged, path)
        done = True
    finally:
        if not done:
            shutil.rmtree(staged, ignore_errors=True)


def check_output_directory(path: Path, *, marker: str, force: bool) -> None:
    """Say at once, before any work, when `output_directory` would refuse this path."""
    if not path.exists():
        return
    with reading(path, what="The output folder"):
        if not path.is_dir():
            raise BadInput(f"{path} exists and is a file.", fix="choose another folder with -o")
        if not any(path.iterdir()):
            return
    if not (path / marker).is_file():
        what = f"{path} exists and holds files that roundoff did not write."
        raise BadInput(what, fix="choose another folder with -o; --force replaces only earlier results")
    if not force:
        raise BadInput(f"{path} already holds a result.", fix="add --force to replace it, or choose another -o")


def _swap_in(staged: Path, path: Path) -> None:
    if not path.exists():
        staged.rename(path)
        return
    old = path.with_name(f"{path.name}.old-{_unique()}")
    os.rename(path, old)  # noqa: PTH104 - both names stand side by side
    try:
        staged.rename(path)
    except OSError:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)
