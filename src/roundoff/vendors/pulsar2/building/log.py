"""What a build says while it works, in the vendor's order."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from roundoff.core.progress import SILENT, Progress
from roundoff.messages.message import english


def _nowhere(text: str) -> None:
    del text


@dataclass(slots=True)
class Log:
    """Where a build prints.

    Attributes:
        say: Takes a line about what is done.
        show: Takes a table.
        width: Columns that a table may take; 0 for as many as it wants.
        progress: Told how far a step is.
        lines: Everything so far, for the record of the build.
    """

    say: Callable[[str], None] = _nowhere
    show: Callable[[str], None] = _nowhere
    width: int = 0
    progress: Progress = SILENT
    lines: list[str] = field(default_factory=list)

    def tell(self, text: str) -> None:
        """Say what was done."""
        self._out(text)

    def alert(self, text: str) -> None:
        """Say what the user should look at."""
        self._out(english("WARNING: {text}", text=text))

    def running(self, step: str) -> None:
        """Say which step begins."""
        self._out(f"[{time.strftime('%H:%M:%S')}] AX {step} Running ...")

    def table(self, text: str) -> None:
        """Show a table, or a block of figures."""
        self.lines.append(text)
        self.show(text)

    def _out(self, text: str) -> None:
        self.lines.append(text)
        self.say(text)
