"""The default strategy: cheap levers, then precision where it matters, then give back what costs without need."""

from collections.abc import Generator, Sequence

from roundoff.core.plan import FLOAT, Recipe
from roundoff.search.engine import next_count
from roundoff.search.problem import Problem
from roundoff.search.result import Trial
from roundoff.search.strategies.climbing import climb
from roundoff.search.strategies.prune import give_back
from roundoff.search.strategies.strategy import Search

__all__ = ["greedy"]


def greedy(problem: Problem) -> Search:
    """Search for the cheapest recipe that meets the goal.

    1. The plain recipe; when it meets the goal that is all.
    2. Levers that cost nothing on the chip, each kept if it helps.
    3. More bits, then float, for the nodes of the ranking that stand out, then for twice as many each time, then
       bisection between the last two.
    4. Of the cheapest recipe that meets the goal, whatever costs something and can be left out.
    """
    plain = yield problem.base
    if plain.met:
        return
    best = yield from climb(problem, plain)
    if not best.met:
        found = yield from _raise_nodes(problem, best)
        if found is None and best.recipe != problem.base:
            # What helped with everything in integers may stand in the way of float.
            found = yield from _raise_nodes(problem, plain)
        if found is None and FLOAT in problem.precisions:
            # The ranking leads astray: everything in float meets any goal, and what is not needed is given back.
            nodes = problem.ranking(best.recipe)
            found = _untried(problem, problem.raised(best.recipe, nodes, FLOAT))
        if found is None:
            return
        best = found
    yield from give_back(problem, best)


def _raise_nodes(problem: Problem, start: Trial) -> Generator[Recipe, Trial, Trial | None]:
    """The cheapest trial with the leading nodes raised that meets the goal; None when there is none."""
    nodes = problem.ranking(start.recipe)
    cheapest: Trial | None = None
    for precision in problem.precisions:
        limit = None if cheapest is None else cheapest.cost
        found = yield from _leading(problem, start.recipe, nodes, precision=precision, limit=limit)
        if found is not None and (cheapest is None or found.cost < cheapest.cost):
            cheapest = found
    return cheapest


def _leading(
    problem: Problem, recipe: Recipe, nodes: Sequence[str], *, precision: str, limit: float | None
) -> Generator[Recipe, Trial, Trial | None]:
    """The trial with the fewest leading nodes raised that meets the goal, at less than a cost."""

    def raised(count: int) -> Recipe | None:
        candidate = problem.raised(recipe, nodes[:count], precision)
        cheap = limit is None or problem.cost(candidate) < limit
        return candidate if cheap and problem.affordable(candidate) else None

    failed, count, found = 0, min(problem.outstanding(recipe), len(nodes)), None
    while nodes and found is None:
        # All nodes in float are no quantized model: that it would meet the goal is no news.
        candidate = None if precision == FLOAT and count == len(nodes) else raised(count)
        if candidate is None:
            break
        trial = yield candidate
        if trial.met:
            found = trial
        elif count == len(nodes):
            return None
        else:
            failed, count = count, min(2 * count, len(nodes))
    # Between the last two counts: where the larger one is too costly, one between them may not be.
    outcomes: list[bool] = []
    while (step := next_count(count - failed - 1, outcomes)) is not None:
        candidate = raised(failed + step)
        if candidate is None:
            # As if it met the goal: fewer nodes are looked for.
            outcomes.append(True)
            continue
        trial = yield candidate
        outcomes.append(trial.met)
        found = trial if trial.met else found
    return found


def _untried(problem: Problem, recipe: Recipe) -> Trial:
    """A recipe that is no quantized model and need not be tried."""
    return Trial(recipe, "", True, 0.0, 0.0, problem.cost(recipe), samples=0, whole=True)
