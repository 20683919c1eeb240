"""Bisection over the ranking: how many of the leading nodes have to stay in float, in a logarithm of trials."""

from roundoff.core.plan import FLOAT, Recipe
from roundoff.search.engine import next_count
from roundoff.search.problem import TuneProblem
from roundoff.search.strategies.strategy import Search

__all__ = ["bisect"]


def bisect(problem: TuneProblem) -> Search:
    """Search for the fewest leading nodes in float that meet the goal, as vendors' tools do.

    All nodes in float are no quantized model, and are not tried. The answer is asked for once more when the last
    trial was not it.
    """
    plain = yield problem.base
    if plain.met:
        return
    nodes = problem.ranking(problem.base)
    outcomes: list[bool] = []
    answer: Recipe | None = None
    while (count := next_count(len(nodes), outcomes)) is not None and count < len(nodes):
        recipe = problem.raised(problem.base, nodes[:count], FLOAT)
        trial = yield recipe
        outcomes.append(trial.met)
        answer = recipe if trial.met else answer
    if answer is not None and not outcomes[-1]:
        yield answer
