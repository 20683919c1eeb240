"""Leaving out of a recipe that meets the goal whatever it does not need."""

from collections.abc import Generator, Sequence

from roundoff.core.recipe import Recipe
from roundoff.core.tuning import Trial
from roundoff.search.levers import without
from roundoff.search.problem import Problem

__all__ = ["give_back", "one_less"]

# Of more nodes than this, single ones are not tried: groups of neighbours in the ranking are.
_MOST_SINGLE = 16


def give_back(problem: Problem, start: Trial) -> Generator[Recipe, Trial, Trial]:
    """Leave out levers and nodes, and give others a cheaper precision, as long as the goal is met.

    It goes round until nothing changes: with fewer levers a node may be needed that was not before.

    Returns:
        A trial that meets the goal; without any one of its parts it does not, as far as single parts were tried.
    """
    best = start
    while True:
        before = best.recipe
        best = yield from _fewer_levers(problem, best)
        best = yield from _fewer_nodes(problem, best)
        best = yield from _lower_nodes(problem, best)
        if best.recipe == before:
            return best


def _fewer_levers(problem: Problem, start: Trial) -> Generator[Recipe, Trial, Trial]:
    """Leave out levers one at a time, the one that takes most first."""
    best = start
    while True:
        for recipe in without(best.recipe, problem.base):
            trial = yield recipe
            if trial.met and trial.cost <= best.cost:
                best = trial
                break
        else:
            return best


def one_less(recipe: Recipe, problem: Problem) -> list[Recipe]:
    """All recipes with one node or lever less."""
    nodes = problem.raised_nodes(recipe)
    return [*(_dropped(recipe, [node], problem) for node in nodes), *without(recipe, problem.base)]


def _dropped(recipe: Recipe, nodes: Sequence[str], problem: Problem) -> Recipe:
    left = {node: had for node, had in problem.raised_nodes(recipe).items() if node not in nodes}
    return problem.with_nodes(recipe, left)


def _fewer_nodes(problem: Problem, start: Trial) -> Generator[Recipe, Trial, Trial]:
    """Leave out groups of nodes, from the end of the ranking, in smaller and smaller groups."""
    best = start
    nodes = list(problem.raised_nodes(best.recipe))
    size = max(1, len(nodes) // 2)
    smallest = max(1, -(-len(nodes) // _MOST_SINGLE))
    while nodes:
        dropped = False
        for at in range(len(nodes) - size, -size, -size):
            trial = yield _dropped(best.recipe, nodes[max(0, at) : at + size], problem)
            if trial.met and trial.cost <= best.cost:
                best, dropped = trial, True
        nodes = list(problem.raised_nodes(best.recipe))
        if size > smallest:
            size = max(smallest, size // 2)
        elif not dropped:
            # A whole round in the smallest groups, and every one of them is needed.
            break
    return best


def _lower_nodes(problem: Problem, start: Trial) -> Generator[Recipe, Trial, Trial]:
    """Give nodes a cheaper precision, one at a time and the cheapest first."""
    best = start
    for node, precision in list(problem.raised_nodes(best.recipe).items())[:_MOST_SINGLE]:
        for cheaper in problem.precisions[: problem.precisions.index(precision)]:
            trial = yield problem.with_nodes(best.recipe, {**problem.raised_nodes(best.recipe), node: cheaper})
            if trial.met and trial.cost <= best.cost:
                best = trial
                break
    return best
