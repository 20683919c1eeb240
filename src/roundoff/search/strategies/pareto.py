"""The front of metric and cost: what each step of cost brings."""

from collections.abc import Iterator
from itertools import pairwise

from roundoff.search.problem import TuneProblem
from roundoff.search.result import Trial
from roundoff.search.strategies.greedy import climb
from roundoff.search.strategies.strategy import Search

# Trials beyond the free options.
_MOST_POINTS = 16


def pareto(problem: TuneProblem) -> Search:
    """Try free options, more and more nodes in more bits and in float, then close the largest gaps."""
    plain = yield problem.base
    best = yield from climb(problem, plain, until_met=False)
    nodes = problem.ranking(best.recipe)
    points: dict[tuple[str, int], Trial] = {(precision, 0): best for precision in problem.precisions}
    for precision, count in _first_points(problem, len(nodes)):
        recipe = problem.raised(best.recipe, nodes[:count], precision)
        if problem.affordable(recipe):
            points[precision, count] = yield recipe
    while len(points) < _MOST_POINTS + len(problem.precisions):
        gap = _largest_gap(points)
        if gap is None:
            return
        precision, count = gap
        points[gap] = yield problem.raised(best.recipe, nodes[:count], precision)


def _first_points(problem: TuneProblem, nodes: int) -> Iterator[tuple[str, int]]:
    """Powers of two of nodes in each precision, less than all of them in float."""
    for precision in problem.precisions:
        count = 1
        while count < nodes:
            yield precision, count
            count *= 4


def _largest_gap(points: dict[tuple[str, int], Trial]) -> tuple[str, int] | None:
    """Where between two neighbours of one precision the loss changes most; None when there is no room anywhere."""
    gaps = []
    for precision in dict.fromkeys(name for name, _ in points):
        counts = sorted(count for name, count in points if name == precision)
        for low, high in pairwise(counts):
            if high - low > 1:
                change = abs(points[precision, low].loss - points[precision, high].loss)
                gaps.append((change, precision, (low + high) // 2))
    if not gaps:
        return None
    _, precision, count = max(gaps, key=lambda gap: gap[0])
    return precision, count


def pareto_front(trials: list[Trial]) -> tuple[Trial, ...]:
    """The trials that none beats in loss and cost, cheapest first."""
    front: list[Trial] = []
    for trial in sorted(trials, key=lambda trial: (trial.cost, trial.loss, trial.number)):
        if not front or trial.loss < front[-1].loss:
            front.append(trial)
    return tuple(front)
