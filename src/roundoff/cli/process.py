"""The process of a command: Ctrl-C, termination, and warnings of the library as notes."""

import contextlib
import logging
import signal
import types
from collections.abc import Iterator
from importlib.machinery import ExtensionFileLoader
from typing import NoReturn

from roundoff.cli.terminal import Terminal

# How soon it is tried again, in seconds.
_AGAIN_S = 0.02


def interrupt_on_terminate() -> None:
    """End as tidily when told to terminate as on Ctrl-C.

    Libraries of machine code that are interrupted while they are loaded crash, or say that they failed. Only from
    the main thread. Who started the process so that Ctrl-C does nothing is obeyed.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(_: int, frame: types.FrameType | None) -> None:
    if hasattr(signal, "setitimer") and _must_not_be_torn(frame):
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        return
    _stop()


def _stop() -> NoReturn:
    raise KeyboardInterrupt


def _must_not_be_torn(frame: types.FrameType | None) -> bool:
    """Whether a frame, or one that called it, is about to load a library, or names the fields of a class.

    What interrupts the latter is taken for a fault of the class.
    """
    while frame is not None:
        if frame.f_code.co_name == "__set_name__":
            return True
        if frame.f_code.co_name in ("create_module", "exec_module") and isinstance(
            frame.f_locals.get("self"), ExtensionFileLoader
        ):
            return True
        frame = frame.f_back
    return False


class _Notes(logging.Handler):
    """Prints each message once."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(logging.WARNING)
        self._terminal = terminal
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._said:
            self._said.add(text)
            self._terminal.note(text)


@contextlib.contextmanager
def warnings_as_notes(terminal: Terminal) -> Iterator[None]:
    """Print warnings of the library as notes."""
    logger, handler = logging.getLogger("roundoff"), _Notes(terminal)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
