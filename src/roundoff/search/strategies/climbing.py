"""Pulling levers that cost nothing, one after the other, as long as that helps."""

from collections.abc import Generator

from roundoff.core.recipe import Recipe
from roundoff.core.tuning import Trial
from roundoff.search.problem import Problem
from roundoff.search.strategies.strategy import better

__all__ = ["climb"]


def climb(problem: Problem, start: Trial, *, until_met: bool = True) -> Generator[Recipe, Trial, Trial]:
    """Try each lever on top of those that helped, unless it only makes the outputs noisier.

    Args:
        problem: Has the levers.
        start: What to improve.
        until_met: End when the goal is met.

    Returns:
        The best trial.
    """
    best = start
    for lever in problem.levers():
        recipe = problem.pulled(best.recipe, lever)
        if recipe == best.recipe or not problem.affordable(recipe):
            continue
        if not problem.promises(recipe, best.recipe):
            continue
        trial = yield recipe
        if better(trial, best) or (trial.met and not best.met):
            best = trial
        if best.met and until_met:
            break
    return best
