"""What a strategy is, and how one that is written as a loop becomes a function of what was tried."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from roundoff.core.recipe import Recipe
from roundoff.core.tuning import Trial
from roundoff.search.problem import Problem

__all__ = ["Propose", "Search", "Strategy", "better", "stepwise"]

Propose = Callable[[Problem, Sequence[Trial]], Recipe | None]
"""What to try next, given all trials so far in their order; None when there is nothing more to try."""

Search = Generator[Recipe, Trial, None]
"""Yields recipes and is sent their trials; must do the same whenever it is sent the same."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to search.

    Attributes:
        name: What it is called.
        propose: Says what to try next.
        early: Whether trials may be ended as soon as it is clear whether they meet the goal; otherwise all samples
            are run.
    """

    name: str
    propose: Propose
    early: bool = True


def stepwise(search: Callable[[Problem], Search]) -> Propose:
    """Make a function of the history of a loop that yields recipes: it is run again through all that was tried."""

    def propose(problem: Problem, history: Sequence[Trial]) -> Recipe | None:
        steps = search(problem)
        try:
            recipe = next(steps)
            for trial in history:
                recipe = steps.send(trial)
        except StopIteration:
            return None
        return recipe

    return propose


def better(left: Trial, right: Trial) -> bool:
    """Whether one trial lost less than another; a loss is better the smaller it is, whatever the metric."""
    return left.loss < right.loss
