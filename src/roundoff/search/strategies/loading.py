"""Strategies of the user's, from a Python file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roundoff.analysis.user_code import call_user_code, load_user_module, objects_with
from roundoff.core.recipe import Recipe
from roundoff.core.tuning import Trial
from roundoff.errors import BadInput
from roundoff.search.problem import Problem
from roundoff.search.strategies.strategy import Strategy

__all__ = ["load_strategy"]

_WHAT = "The strategy"
_EXAMPLE = """write it like

def propose(problem, history):
    if not history:
        return problem.base
    nodes = problem.ranking(problem.base)[: len(history)]
    return None if history[-1].met else problem.raised(problem.base, nodes, "float")"""


def load_strategy(path: Path) -> Strategy:
    """Read a Python file with a function ``propose(problem, history)``, or a class with such a method.

    ``EARLY = False`` in it lets all samples be run in every trial.

    Raises:
        BadInput: The file cannot be read or run, or has neither.
    """
    module = load_user_module(path, what=_WHAT)
    function: Any = getattr(module, "propose", None)
    if not callable(function):
        able = objects_with(["propose"], module, path, what=_WHAT)
        if not able:
            raise BadInput(f"{path} has no function propose(problem, history).", fix=_EXAMPLE)
        if len(able) > 1:
            names = ", ".join(sorted(type(each).__name__ for each in able))
            raise BadInput(f"{path} holds {len(able)} strategies: {names}.", fix="leave one of them in the file")
        function = able[0].propose

    def propose(problem: Problem, history: Sequence[Trial]) -> Recipe | None:
        recipe = call_user_code(function, problem, tuple(history), path=path, what=_WHAT)
        if recipe is not None and not isinstance(recipe, Recipe):
            what = f"propose() in {path} gave {type(recipe).__name__}, which is neither a recipe nor None."
            raise BadInput(what, fix="return problem.base, or what problem.pulled() and problem.raised() give")
        return recipe

    return Strategy(path.stem, propose, early=bool(getattr(module, "EARLY", True)))
