"""What a run has to say besides its results, in our way or in the vendor's."""

import os
import time
from collections.abc import Callable

__all__ = ["Notes"]

_CONTROL = dict.fromkeys((*range(32), 127), "_")


class Notes:
    """Where warnings go.

    Args:
        say: Prints one line.
        strict: Print as the vendor's tool does, with time and process.
    """

    def __init__(self, say: Callable[[str], None], *, strict: bool = False) -> None:
        self._say = say
        self._strict = strict
        self._said: set[str] = set()

    def warn(self, text: str) -> None:
        """Say that something is odd; the same thing once, unless every line of the vendor is wanted."""
        line = text.translate(_CONTROL)
        if self._strict:
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())
            self._say(f"{when} ({os.getpid()}) - [WARNING] {line}")
        elif line not in self._said:
            self._said.add(line)
            self._say(f"warning: {line}")
