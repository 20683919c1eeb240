"""Until when work may go on, asked before each piece of it."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

__all__ = ["NO_DEADLINE", "Deadline"]


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


NO_DEADLINE = Deadline()
"""As long as it takes."""
