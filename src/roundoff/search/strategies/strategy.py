"""What a strategy is, and the loop of every search: ask it and try what it proposes, within a budget.

Searches differ in what they try: `roundoff tune` builds recipes, the AMCT facade puts layers back to float, the
Pulsar2 facade compiles configurations. A strategy is a generator that yields what to try and is sent what came of
it; what it returns is its answer. Whoever starts a search says how something is tried and remembers it.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from roundoff.core.plan import Recipe
from roundoff.core.progress import NO_DEADLINE, Deadline
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import NOTHING, Message, english, message
from roundoff.quantize.planning.rules import parse_precision
from roundoff.run.evaluators import call_user_code, load_user_module, objects_with
from roundoff.search.problem import TuneProblem
from roundoff.search.result import Trial

_Candidate = TypeVar("_Candidate")
_Outcome = TypeVar("_Outcome")
_Answer = TypeVar("_Answer")


class BudgetSpent(Exception):
    """Thrown into a strategy where what it asked for is not tried; it may still return an answer."""


@dataclass(frozen=True, slots=True)
class TrialBudget:
    """What a search may take.

    Attributes:
        max_trials: Most recipes to try, those of earlier runs among them; None for no limit.
        deadline: When no new trial is begun any more.
    """

    max_trials: int | None = None
    deadline: Deadline = NO_DEADLINE

    def exhausted(self, trials: int) -> Message:
        """Why nothing new may be tried; empty when something may."""
        if self.max_trials is not None and trials >= self.max_trials:
            return message("search.ended_trials", count=trials)
        if not self.deadline.allows(0):
            return message("search.ended_time")
        return NOTHING


def run_trials(
    strategy: Generator[_Candidate, _Outcome, _Answer],
    attempt: Callable[[_Candidate], _Outcome],
    *,
    refusal: Callable[[_Candidate], Message] = lambda _: NOTHING,
) -> tuple[_Answer | None, Message]:
    """Try what a strategy proposes until it ends.

    Args:
        strategy: Yields candidates, is sent their outcomes, returns an answer.
        attempt: Tries a candidate, and remembers what came of it.
        refusal: Why a candidate may not be tried any more; empty when it may.

    Returns:
        The answer, None where the strategy has none without the trials it was refused; and the last refusal, empty
        when there was none.
    """
    stopped: Message = NOTHING
    try:
        candidate = next(strategy)
        while True:
            why = refusal(candidate)
            if why:
                stopped = why
                candidate = strategy.throw(BudgetSpent(str(why)))
            else:
                candidate = strategy.send(attempt(candidate))
    except StopIteration as end:
        return end.value, stopped
    except BudgetSpent:
        return None, stopped


Propose = Callable[[TuneProblem, Sequence[Trial]], Recipe | None]
"""What to try next, given all trials so far in their order; None when there is nothing more to try."""

Search = Generator[Recipe, Trial, None]
"""Yields recipes and is sent their trials; must do the same whenever it is sent the same."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to search.

    Attributes:
        name: What it is called.
        propose: Says what to try next.
        early: Whether trials may be ended as soon as it is clear whether they meet the goal; otherwise all samples
            are run.
    """

    name: str
    propose: Propose
    early: bool = True


def stepwise(search: Callable[[TuneProblem], Search]) -> Propose:
    """Make a function of the history of a loop that yields recipes: it is run again through all that was tried."""

    def propose(problem: TuneProblem, history: Sequence[Trial]) -> Recipe | None:
        steps = search(problem)
        try:
            recipe = next(steps)
            for trial in history:
                recipe = steps.send(trial)
        except StopIteration:
            return None
        return recipe

    return propose


def proposals(strategy: Strategy, problem: TuneProblem) -> Search:
    """A strategy as the engine runs it: asked anew after every trial, with all of them."""
    history: list[Trial] = []
    while (recipe := strategy.propose(problem, tuple(history))) is not None:
        history.append((yield recipe))


def better(left: Trial, right: Trial) -> bool:
    """Whether one trial lost less than another; a loss is better the smaller it is, whatever the metric."""
    return left.loss < right.loss


# Strategies of the user's, from a Python file.

_WHAT = english("The strategy")
_EXAMPLE = english(
    "write it like\n\ndef propose(problem, history):\n    if not history:\n        return "
    "problem.base\n    nodes = problem.ranking(problem.base)[: len(history)]\n    return "
    'None if history[-1].met else problem.raised(problem.base, nodes, "float")'
)


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
            raise BadInput(english("{path} has no function propose(problem, history).", path=path), fix=_EXAMPLE)
        if len(able) > 1:
            names = ", ".join(sorted(type(each).__name__ for each in able))
            raise BadInput(
                english("{path} holds {count} strategies: {names}.", path=path, count=len(able), names=names),
                fix=english("leave one of them in the file"),
            )
        function = able[0].propose

    def propose(problem: TuneProblem, history: Sequence[Trial]) -> Recipe | None:
        recipe = call_user_code(function, problem, tuple(history), path=path, what=_WHAT)
        if recipe is not None and not isinstance(recipe, Recipe):
            what = english(
                "propose() in {path} gave {name}, which is neither a recipe nor None.",
                path=path,
                name=type(recipe).__name__,
            )
            raise BadInput(
                what, fix=english("return problem.base, or what problem.with_option() and problem.raised() give")
            )
        if recipe is not None:
            _check_changes(recipe, problem, path)
        if recipe in [trial.recipe for trial in history]:
            from roundoff.run.evaluators import proposed_before

            of = english("propose() in {path}", path=path)
            raise proposed_before(of, fix=english("return None to end, or a recipe that is not in the history"))
        return recipe

    return Strategy(path.stem, propose, early=bool(getattr(module, "EARLY", True)))


def _check_changes(recipe: Recipe, problem: TuneProblem, path: Path) -> None:
    """Refuse nodes and precisions that there are not: as trials that fail they would look like bad choices."""
    for name, text in problem.raised_nodes(recipe).items():
        if name not in problem.nodes:
            what = english(
                "propose() in {path} names a node {name!r}, which the network does not have.",
                path=path,
                name=str(name),
            )
            raise BadInput(what, fix=nearest(str(name), problem.nodes))
        for part in filter(None, text.split(",weight=")):
            parse_precision(part)
