"""What the vendors' functions share: kinds of errors, checks of arguments, loggers, who is told of progress."""

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from roundoff.core.files import writing
from roundoff.core.progress import SILENT, Progress
from roundoff.errors import BadInput, ModelFailed
from roundoff.messages.message import english

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class WrongValue(BadInput, ValueError):
    """An argument has a value that means nothing."""


class WrongType(BadInput, TypeError):
    """An argument is of a kind that cannot be used."""


class CannotRun(BadInput, RuntimeError):
    """What was asked for cannot be done in this state."""


class NetworkFailed(ModelFailed, RuntimeError):
    """A model could not be run."""


def in_vendors_terms(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Let a function raise all its errors as the kinds that scripts written for the vendor's expect."""

    @functools.wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError, RuntimeError):
            raise
        except BadInput as error:
            raise WrongValue(error.what, fix=error.fix.removesuffix(" with -o")) from error
        except ModelFailed as error:
            raise NetworkFailed(error.what, fix=error.fix) from error

    return call


# Arguments of the functions, checked for what they are.


def a_path(name: str, given: Any) -> Path:
    """An argument that is a path.

    Raises:
        WrongType: It is something else.
    """
    if not isinstance(given, str | os.PathLike):
        raise WrongType(
            english("{name} is {given!r}, not the path of a file.", name=name, given=given),
            fix=english("write {name}='...'", name=name),
        )
    return Path(given)


def a_flag(name: str, given: Any) -> bool:
    """An argument that is True or False.

    Raises:
        WrongType: It is something else.
    """
    if not isinstance(given, bool):
        raise WrongType(
            english("{name} is {given!r}, neither True nor False.", name=name, given=given),
            fix=english("write {name}=True or {name}=False", name=name),
        )
    return given


def a_positive(name: str, given: Any) -> int:
    """An argument that is a whole number above zero.

    Raises:
        WrongType: It is something else.
        WrongValue: It is not above zero.
    """
    if isinstance(given, bool) or not isinstance(given, int):
        raise WrongType(
            english("{name} is {given!r}, not a whole number.", name=name, given=given),
            fix=english("write {name}=1 or more", name=name),
        )
    if given < 1:
        raise WrongValue(
            english("{name} is {given}.", name=name, given=given), fix=english("write {name}=1 or more", name=name)
        )
    return given


def layer_names(name: str, given: Any) -> tuple[str, ...]:
    """An argument that is a list of names; None stands for none.

    Raises:
        WrongType: It is something else.
    """
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(n, str) for n in given):
        raise WrongType(
            english("{name} is {given!r}, not a list of names.", name=name, given=given),
            fix=english("write {name}=['conv1', ...]", name=name),
        )
    return tuple(given)


def keep_apart(written: Iterable[Path], read: Iterable[Path] = ()) -> None:
    """Refuse to write to a file that is read, or two things to one file.

    Args:
        written: The files that are going to be written.
        read: Those of the user's that are read.

    Raises:
        WrongValue: Two of them are the same file, whatever links lead to it.
    """
    files = list(written)
    for at, path in enumerate(files):
        if any(_same(path, other) for other in read):
            raise WrongValue(
                english("{path} is read, and would be replaced.", path=path),
                fix=english("choose another path for what is written"),
            )
        if any(_same(path, other) for other in files[:at]):
            raise WrongValue(
                english("Two things would be written to {path}.", path=path),
                fix=english("choose another path for one of them"),
            )


def _same(left: Path, right: Path) -> bool:
    if os.path.realpath(left) == os.path.realpath(right):
        return True
    try:
        return left.samefile(right)
    except OSError:
        return False


AMCT_LOGGER = logging.getLogger("roundoff.vendors.amct")
HORIZON_LOGGER = logging.getLogger("roundoff.vendors.horizon")

_AMCT_LINES = "%(asctime)s - %(levelname)s - [AMCT]:[%(module)s]: %(message)s"
_PROGRESS: ContextVar[Progress] = ContextVar("progress", default=SILENT)


def log_to(folder: Path | str = "amct_log", *, flavour: str = "onnx") -> Path:
    """Write AMCT's messages to ``<folder>/amct_<flavour>.log`` from now on; else nothing is written.

    Args:
        folder: Where; the vendor's tools take ``amct_log`` of the working folder.
        flavour: Of which tool the file has the name.

    Returns:
        The file.

    Raises:
        BadInput: It cannot be written.
    """
    path = Path(folder) / f"amct_{flavour}.log"
    if any(getattr(handler, "baseFilename", None) == str(path.absolute()) for handler in AMCT_LOGGER.handlers):
        return path
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter(_AMCT_LINES))
    AMCT_LOGGER.addHandler(handler)
    if AMCT_LOGGER.level == logging.NOTSET:
        AMCT_LOGGER.setLevel(logging.INFO)
    return path


def progress() -> Progress:
    """Who is told how far a function is."""
    return _PROGRESS.get()


@contextlib.contextmanager
def reporting_to(listener: Progress) -> Iterator[None]:
    """Tell someone how far functions called in this block are."""
    token = _PROGRESS.set(listener)
    try:
        yield
    finally:
        _PROGRESS.reset(token)


def log_table(text: str) -> None:
    """Show a table of Horizon's, once: by logging at INFO, and on the standard output where that shows nothing."""
    # Without a line end of its own the first line of a table would stand behind the logger's prefix.
    HORIZON_LOGGER.info("\n%s", text)
    if not (HORIZON_LOGGER.isEnabledFor(logging.INFO) and _on_console()):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def print_table(text: str) -> None:
    """Show a table where a person waits for it, on the command line; scripts find it in the log."""
    if _PROGRESS.get() is SILENT:
        HORIZON_LOGGER.info("\n%s", text)
    else:
        log_table(text)


def _on_console() -> bool:
    """Whether a handler writes messages of this level to the terminal."""
    streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    logger: logging.Logger | None = HORIZON_LOGGER
    while logger is not None:
        for handler in logger.handlers:
            stream = getattr(handler, "stream", None)
            if stream is not None and stream in streams and handler.level <= logging.INFO:
                return True
        logger = logger.parent if logger.propagate else None
    return False
