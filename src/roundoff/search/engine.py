"""The loop of every search: ask a strategy and try what it proposes, until it ends or the budget is spent.

Searches differ in what they try: `roundoff tune` builds recipes, the AMCT facade puts layers back to float, the
Pulsar2 facade compiles configurations. A strategy is a generator that yields what to try and is sent what came of
it; what it returns is its answer. Whoever starts a search says how something is tried and remembers it.
"""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from roundoff.messages.numbers import counted

__all__ = ["BudgetSpent", "TrialBudget", "next_count", "run_trials"]

_Candidate = TypeVar("_Candidate")
_Outcome = TypeVar("_Outcome")
_Answer = TypeVar("_Answer")


class BudgetSpent(Exception):
    """Thrown into a strategy where what it asked for is not tried; it may still return an answer."""


@dataclass(frozen=True, slots=True)
class TrialBudget:
    """What a search may take.

    Attributes:
        max_trials: Most recipes to try, those of earlier runs among them; None for no limit.
        deadline: When no new trial is begun any more, in the time of `time.monotonic`; None for no limit.
    """

    max_trials: int | None = None
    deadline: float | None = None

    def exhausted(self, trials: int) -> str:
        """Why nothing new may be tried; empty when something may."""
        if self.max_trials is not None and trials >= self.max_trials:
            return f"after {counted(trials, 'trial')}, as --max-trials says"
        if self.deadline is not None and time.monotonic() >= self.deadline:
            return "when the time was over"
        return ""


def run_trials(
    strategy: Generator[_Candidate, _Outcome, _Answer],
    attempt: Callable[[_Candidate], _Outcome],
    *,
    refusal: Callable[[_Candidate], str] = lambda _: "",
) -> tuple[_Answer | None, str]:
    """Try what a strategy proposes until it ends.

    Args:
        strategy: Yields candidates, is sent their outcomes, returns an answer.
        attempt: Tries a candidate, and remembers what came of it.
        refusal: Why a candidate may not be tried any more; empty when it may.

    Returns:
        The answer, None where the strategy has none without the trials it was refused; and the last refusal, empty
        when there was none.
    """
    stopped = ""
    try:
        candidate = next(strategy)
        while True:
            why = refusal(candidate)
            if why:
                stopped = why
                candidate = strategy.throw(BudgetSpent(why))
            else:
                candidate = strategy.send(attempt(candidate))
    except StopIteration as end:
        return end.value, stopped
    except BudgetSpent:
        return None, stopped


def next_count(nodes: int, outcomes: Sequence[bool]) -> int | None:
    """Bisection over a ranking: how many of the leading nodes to try next; None when it has ended.

    Assumes that a count which meets the goal is met by every larger one too. Who cannot rely on that verifies
    the answer.

    Args:
        nodes: How many there are.
        outcomes: Whether each count proposed so far met the goal, in the order of proposals.

    Returns:
        A count from 1 to `nodes`.

    Raises:
        ValueError: There are more outcomes than proposals.
    """
    first, last = 0, nodes - 1
    for met in outcomes:
        if first > last:
            raise ValueError(f"bisection over {nodes} nodes had ended before the last of {len(outcomes)} outcomes")
        middle = (first + last) // 2
        first, last = (first, middle - 1) if met else (middle + 1, last)
    return (first + last) // 2 + 1 if first <= last else None
