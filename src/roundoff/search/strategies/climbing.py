"""Pulling levers that cost nothing, one after the other, as long as that helps."""

from collections.abc import Generator, Iterable, Iterator
from itertools import groupby

from roundoff.core.plan import Recipe
from roundoff.search.free_options import Lever
from roundoff.search.problem import Problem
from roundoff.search.result import Trial
from roundoff.search.strategies.strategy import better

__all__ = ["climb"]

_DROWNED_DB = 10.0
"""Outputs with less signal to noise are lost: a finer range or a moved mean gains a decibel or two, which is too
little, and is not looked at before what changes how channels share their scales."""


def climb(problem: Problem, start: Trial, *, until_met: bool = True) -> Generator[Recipe, Trial, Trial]:
    """Try each lever on top of those that helped, unless it only makes the outputs noisier.

    Of the levers that are quickly pulled the one comes first that takes most noise from the outputs: a metric that
    counts right answers on few samples is met by chance, too, and whatever comes first would be kept for that.
    Where noise has drowned the outputs, levers come before them that share out scales anew, and no other model is
    built until these have failed.

    Args:
        problem: Has the levers.
        start: What to improve.
        until_met: End when the goal is met.

    Returns:
        The best trial.
    """
    best = start
    for quick, group in _groups(problem, best.recipe):
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


def _groups(problem: Problem, recipe: Recipe) -> Iterator[tuple[bool, list[Lever]]]:
    """Levers as they are tried: one after the other, or, of those that are quickly pulled, the best first."""
    levers, first = problem.levers(), list[Lever]()
    decibels = problem.promise(recipe)
    if decibels is not None and decibels < _DROWNED_DB:
        for lever in levers:
            # Asked for one after the other: what a lever costs is known when its model is made.
            if lever.shares_scales and _is_free(problem, recipe, lever):
                first.append(lever)
                yield False, [lever]
    rest = (lever for lever in levers if lever not in first)
    yield from ((quick, list(each)) for quick, each in groupby(rest, _is_quick))


def _is_free(problem: Problem, recipe: Recipe, lever: Lever) -> bool:
    """Whether the model costs no more with a lever; one that adds operations waits until others have failed."""
    return problem.cost(problem.pulled(recipe, lever)) <= problem.cost(recipe)


def _is_quick(lever: Lever) -> bool:
    return lever.quick


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
    if problem.promise(recipe) is None:
        yield from usable
        return
    # One that fails promises nothing; a trial says why, after those of the others.
    failing = [lever for lever in usable if promised[lever] is None]
    usable = [lever for lever in usable if lever not in failing]
    usable.sort(key=lambda lever: -(promised[lever] or 0.0))
    worthy = [lever for lever in usable if lever.kind != "method" or problem.promises(pulled[lever], recipe)]
    methods = [lever for lever in worthy if lever.kind == "method"]
    yield from (lever for lever in worthy if lever not in methods[1:])
    yield from failing
