"""Leaving out of a recipe that meets the goal whatever it does not need."""

from collections.abc import Generator
from dataclasses import replace

from roundoff.core.quant_plan import FLOAT, Rule
from roundoff.core.recipe import Recipe
from roundoff.core.tuning import Trial
from roundoff.search.levers import without
from roundoff.search.problem import Problem

__all__ = ["give_back", "one_less"]

# Of more nodes than this, single ones are not tried: groups of neighbours in the ranking are.
_MOST_SINGLE = 16


def give_back(problem: Problem, start: Trial) -> Generator[Recipe, Trial, Trial]:
    """Leave out nodes, lower those in float to more bits, and leave out levers, as long as the goal is met.

    Returns:
        A trial that meets the goal; without any one of its parts it does not, as far as single parts were tried.
    """
    best = yield from _fewer_nodes(problem, start)
    best = yield from _lower_nodes(problem, best)
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
    nodes = [_dropped(recipe, [rule]) for rule in _raised_rules(recipe, problem)]
    return [*nodes, *without(recipe, problem.base)]


def _raised_rules(recipe: Recipe, problem: Problem) -> list[Rule]:
    return [rule for rule in recipe.rules if rule not in problem.base.rules]


def _dropped(recipe: Recipe, rules: list[Rule]) -> Recipe:
    return replace(recipe, rules=tuple(rule for rule in recipe.rules if rule not in rules))


def _fewer_nodes(problem: Problem, start: Trial) -> Generator[Recipe, Trial, Trial]:
    """Leave out groups of nodes, from the end of the ranking, in smaller and smaller groups."""
    best = start
    rules = _raised_rules(best.recipe, problem)
    size = max(1, len(rules) // 2)
    smallest = max(1, -(-len(rules) // _MOST_SINGLE))
    while rules:
        dropped = False
        for at in range(len(rules) - size, -size, -size):
            group = rules[max(0, at) : at + size]
            recipe = _dropped(best.recipe, group)
            if recipe.rules == best.recipe.rules:
                continue
            trial = yield recipe
            if trial.met and trial.cost <= best.cost:
                best, dropped = trial, True
        rules = _raised_rules(best.recipe, problem)
        if size > smallest:
            size = max(smallest, size // 2)
        elif not dropped:
            # A whole round in the smallest groups, and every one of them is needed.
            break
    return best


def _lower_nodes(problem: Problem, start: Trial) -> Generator[Recipe, Trial, Trial]:
    """Give nodes in float more bits instead, one at a time."""
    best = start
    wide = [precision for precision in problem.precisions if precision != FLOAT]
    if not wide:
        return best
    for rule in _raised_rules(best.recipe, problem)[:_MOST_SINGLE]:
        if rule.precision.activation == FLOAT:
            recipe = problem.raised(best.recipe, rule.selector, wide[0])
            trial = yield recipe
            if trial.met and trial.cost <= best.cost:
                best = trial
    return best
