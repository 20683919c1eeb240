"""Leaving out of a recipe that meets the goal whatever costs something and is not needed."""

from collections.abc import Generator, Sequence

from roundoff.core.plan import Recipe
from roundoff.search.free_options import without
from roundoff.search.problem import Problem
from roundoff.search.result import Trial
from roundoff.search.strategies.strategy import better

__all__ = ["give_back", "one_less"]

# Of more nodes than this, single ones are not tried: groups of neighbours in the ranking are.
_MOST_SINGLE = 16
# Sums of costs in another order may differ in their last bits.
_SAME_COST = 1e-9


def give_back(problem: Problem, start: Trial) -> Generator[Recipe, Trial, Trial]:
    """Leave out levers and nodes, and give others a cheaper precision, as long as the goal is met.

    It goes round until nothing changes: with fewer levers a node may be needed that was not before. A lever that
    costs nothing on the chip stays even where the goal is met without it: a goal is met on some samples, and what
    it gains is gained on others, too.

    Returns:
        A trial that meets the goal; without any one of its parts that cost something it does not, as far as single
        parts were tried.
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
    """Leave out levers that cost something, or harm, one at a time, the one that takes most first."""
    best = start
    while True:
        for recipe in without(best.recipe, problem.base):
            saves = _is_cheaper(recipe, best.recipe, problem)
            if not saves and not _may_harm(recipe, best.recipe, problem):
                continue
            trial = yield recipe
            if trial.met and (trial.cost < best.cost if saves else better(trial, best)):
                best = trial
                break
        else:
            return best


def _is_cheaper(recipe: Recipe, other: Recipe, problem: Problem) -> bool:
    return problem.cost(recipe) < problem.cost(other) * (1 - _SAME_COST)


def _may_harm(left: Recipe, whole: Recipe, problem: Problem) -> bool:
    """Whether a free lever may do harm: outputs have less noise without it, or that is not known.

    The metric alone does not tell: on few samples it is better without a good lever now and then.
    """
    without_it, with_it = problem.promise(left), problem.promise(whole)
    return without_it is None or with_it is None or without_it > with_it


def one_less(recipe: Recipe, problem: Problem) -> list[Recipe]:
    """All recipes with one node less, or one lever that costs something."""
    nodes = problem.raised_nodes(recipe)
    levers = [each for each in without(recipe, problem.base) if _is_cheaper(each, recipe, problem)]
    return [*(_dropped(recipe, [node], problem) for node in nodes), *levers]


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
