"""The way of Pulsar2's manual: calibration methods in turn, then 16 bits for layers that are poor alone."""

from collections.abc import Generator
from dataclasses import replace

from roundoff.core.plan import Recipe
from roundoff.search.problem import Problem
from roundoff.search.result import Trial
from roundoff.search.strategies.strategy import Search

__all__ = ["charts"]

# In the order of the manual.
_METHODS = ("minmax", "mse", "percentile")
# What the manual asks of every layer by itself.
_GOOD_COSINE = 0.999


def charts(problem: Problem) -> Search:
    """Try the calibration methods; where none is enough, raise layers until all are good by themselves, and again.

    It needs few trials and no ranking, looks at layers alone and gives nothing back: what it finds costs more than
    what ``greedy`` finds.
    """
    met = yield from _methods(problem, problem.base)
    if met:
        return
    recipe = problem.base
    while True:
        raised = problem.raised_nodes(recipe)
        low = [node for node in problem.weak(recipe, _GOOD_COSINE) if node not in raised]
        if not low:
            break
        recipe = problem.raised(recipe, low, problem.precisions[0])
    if problem.raised_nodes(recipe):
        yield from _methods(problem, recipe)


def _methods(problem: Problem, recipe: Recipe) -> Generator[Recipe, Trial, bool]:
    """Try a recipe as it is, and with every calibration method, until one meets the goal."""
    for candidate in dict.fromkeys((recipe, *(replace(recipe, method=method) for method in _METHODS))):
        if problem.affordable(candidate):
            trial = yield candidate
            if trial.met:
                return True
    return False
