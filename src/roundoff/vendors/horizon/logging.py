"""Who is told how far a function is, and where tables are printed."""

import contextlib
import logging
import sys
from collections.abc import Iterator
from contextvars import ContextVar

from roundoff.core.progress import SILENT, Progress

__all__ = ["LOGGER", "progress", "reporting_to", "say", "tell"]

LOGGER = logging.getLogger("roundoff.vendors.horizon")

_PROGRESS: ContextVar[Progress] = ContextVar("progress", default=SILENT)


def progress() -> Progress:
    """Who is told."""
    return _PROGRESS.get()


@contextlib.contextmanager
def reporting_to(listener: Progress) -> Iterator[None]:
    """Tell someone how far functions called in this block are."""
    token = _PROGRESS.set(listener)
    try:
        yield
    finally:
        _PROGRESS.reset(token)


def say(text: str) -> None:
    """Show a table, once: by logging at INFO, and on the standard output where logging shows nothing."""
    # Without a line end of its own the first line of a table would stand behind the logger's prefix.
    LOGGER.info("\n%s", text)
    if not (LOGGER.isEnabledFor(logging.INFO) and _on_console()):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def tell(text: str) -> None:
    """Show a table where a person waits for it, on the command line; scripts find it in the log."""
    if _PROGRESS.get() is SILENT:
        LOGGER.info("\n%s", text)
    else:
        say(text)


def _on_console() -> bool:
    """Whether a handler writes messages of this level to the terminal."""
    streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    logger: logging.Logger | None = LOGGER
    while logger is not None:
        for handler in logger.handlers:
            stream = getattr(handler, "stream", None)
            if stream is not None and stream in streams and handler.level <= logging.INFO:
                return True
        logger = logger.parent if logger.propagate else None
    return False
