"""How long a bounded piece of work may still take, and a time in words."""

import time
from collections.abc import Callable

__all__ = ["TimeLeft", "duration_text"]

_UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))


def duration_text(seconds: float) -> str:
    """A time in its largest unit, or in two of them where that is needed: ``45 s``, ``3 min``, ``1 h 20 min``."""
    if seconds >= _UNITS[0][0]:
        minutes = round(seconds / 60)
        return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
    # Rounded first: 59.7 s are a minute.
    unit, name = next((each for each in _UNITS if round(seconds) >= each[0]), _UNITS[-1])
    return f"{round(seconds / unit)} {name}"


class TimeLeft:
    """Tells how long steps that are bounded in number or time may still take.

    Args:
        most: Steps at most, those of earlier runs among them; None for no limit.
        time_s: Seconds from now after which no step is begun; None for no limit.
        clock: Tells the time in seconds.
    """

    def __init__(
        self, most: int | None, time_s: float | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._time, self._clock = most, time_s, clock
        self._began, self._done = clock(), 0

    def step(self, number: int) -> float | None:
        """One more step is over.

        Args:
            number: How many are over, those of earlier runs among them.

        Returns:
            Seconds that it may still take at most, if other steps take as long as those so far; None when nothing
            bounds it.
        """
        self._done += 1
        passed = self._clock() - self._began
        bounds = []
        if self._most is not None:
            bounds.append(passed / self._done * max(self._most - number, 0))
        if self._time is not None:
            bounds.append(max(self._time - passed, 0.0))
        return min(bounds, default=None)
