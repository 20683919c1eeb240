"""What the library warns of while a command runs becomes notes of that command, each once."""

import contextlib
import logging
from collections.abc import Iterator

from roundoff.cli.terminal import Terminal

__all__ = ["heard"]


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
def heard(terminal: Terminal) -> Iterator[None]:
    """Print warnings of the library as notes."""
    logger, handler = logging.getLogger("roundoff"), _Notes(terminal)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
