"""Bisection over the ranking: how many of the leading nodes have to stay in float, in a logarithm of trials."""

from collections.abc import Sequence

from roundoff.core.plan import FLOAT, Recipe
from roundoff.search.problem import TuneProblem
from roundoff.search.strategies.strategy import Search


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
