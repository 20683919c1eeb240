"""Pulling levers that cost nothing, one after the other, as long as that helps."""

from collections.abc import Generator, Iterable, Iterator
from itertools import groupby

from roundoff.core.recipe import Recipe
from roundoff.core.tuning import Trial
from roundoff.search.levers import Lever
from roundoff.search.problem import Problem
from roundoff.search.strategies.strategy import better

__all__ = ["climb"]


def climb(problem: Problem, start: Trial, *, until_met: bool = True) -> Generator[Recipe, Trial, Trial]:
    """Try each lever on top of those that helped, unless it only makes the outputs noisier.

    Of the levers that are quickly pulled the one comes first that takes most noise from the outputs: a metric that
    counts right answers on few samples is met by chance, too, and whatever comes first would be kept for that.

    Args:
        problem: Has the levers.
        start: What to improve.
        until_met: End when the goal is met.

    Returns:
        The best trial.
    """
    best = start
    for quick, group in groupby(problem.levers(), key=lambda lever: lever.quick):
        for lever in _sorted(problem, best.recipe, group) if quick else group:
            recipe = problem.pulled(best.recipe, lever)
            if recipe == best.recipe or not problem.affordable(recipe):
                continue
            if not problem.promises(recipe, best.recipe):
                continue
            trial = yield recipe
            if better(trial, best) or (trial.met and not best.met):
                best = trial
            if best.met and until_met:
                return best
    return best


def _sorted(problem: Problem, recipe: Recipe, levers: Iterable[Lever]) -> Iterator[Lever]:
    """Levers, the most promising first; as they come where nothing is known.

    What promises nothing alone may do so on top of others: a weight that is cut off more tightly moves the mean of
    a channel, which bias correction moves back. Calibration methods of all activations exclude each other, so that
    the most promising is enough.
    """
    every = list(levers)
    pulled = {lever: problem.pulled(recipe, lever) for lever in every}
    usable = [lever for lever in every if pulled[lever] != recipe and problem.affordable(pulled[lever])]
    promised = {lever: problem.promise(pulled[lever]) for lever in usable}
    if problem.promise(recipe) is None or None in promised.values():
        yield from usable
        return
    usable.sort(key=lambda lever: -(promised[lever] or 0.0))
    worthy = [lever for lever in usable if lever.kind != "method" or problem.promises(pulled[lever], recipe)]
    methods = [lever for lever in worthy if lever.kind == "method"]
    yield from (lever for lever in worthy if lever not in methods[1:])
