"""Problems without networks: which nodes must be raised before a made-up metric is good enough."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from roundoff.core.coverage import Doubt
from roundoff.core.plan import FLOAT, Precision, Recipe, Rule
from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.messages.message import Message, verbatim
from roundoff.search.cost import FreeOption
from roundoff.search.engine import SearchFound, TrialRunner, run_search
from roundoff.search.goal import GoalReading, TuneGoal
from roundoff.search.store import TrialJournal, recipe_key
from roundoff.search.strategies import STRATEGIES
from roundoff.search.strategies.strategy import Strategy, TrialBudget

WIDE = "u16"
BASE = Recipe()


class Killed(BaseException):
    """As if the process ended."""


@dataclass(frozen=True)
class FakeProblem:
    """Nodes with costs of their own, and options that are words."""

    nodes: tuple[str, ...]
    words: tuple[str, ...] = ()
    max_cost: float | None = None
    precisions: tuple[str, ...] = (WIDE, FLOAT)
    base: Recipe = BASE
    first: int = 1
    hopeless: tuple[str, ...] = ()
    poor: tuple[str, ...] = ()
    dear: tuple[str, ...] = ()
    promised: Mapping[frozenset[str], float] | None = None

    def free_options(self) -> tuple[FreeOption, ...]:
        return tuple(FreeOption("variation", word) for word in self.words)

    def with_option(self, recipe: Recipe, option: FreeOption) -> Recipe:
        return replace(recipe, variations=tuple(sorted({*recipe.variations, option.name})))

    def with_wide_stream(self, recipe: Recipe) -> Recipe | None:
        return None

    def with_smooth_norms(self, recipe: Recipe) -> Recipe | None:
        return None

    def proxy_db(self, recipe: Recipe) -> float | None:
        return None if self.promised is None else self.promised[frozenset(recipe.variations)]

    def worth_trying(self, recipe: Recipe, other: Recipe) -> bool:
        return not set(self.hopeless) & set(recipe.variations)

    def ranking(self, recipe: Recipe) -> tuple[str, ...]:
        return self.nodes

    def outstanding(self, recipe: Recipe) -> int:
        return self.first

    def weak(self, recipe: Recipe, cosine: float) -> tuple[str, ...]:
        return tuple(node for node in self.poor if node not in self.raised_nodes(recipe))

    def raised(self, recipe: Recipe, nodes: Sequence[str], precision: str) -> Recipe:
        before = {node: had for node, had in self.raised_nodes(recipe).items() if node not in nodes}
        return self.with_nodes(recipe, {**before, **dict.fromkeys(nodes, precision)})

    def raised_nodes(self, recipe: Recipe) -> dict[str, str]:
        return {rule.selector[0]: rule.precision.activation for rule in recipe.rules}

    def with_nodes(self, recipe: Recipe, nodes: Mapping[str, str]) -> Recipe:
        return replace(recipe, rules=tuple(Rule("node", (name,), Precision(text)) for name, text in nodes.items()))

    def cost(self, recipe: Recipe) -> float:
        nodes = sum({WIDE: 1, FLOAT: 4}[text] for text in self.raised_nodes(recipe).values()) / len(self.nodes)
        return 1 + nodes + 0.1 * len(set(self.dear) & set(recipe.variations))

    def affordable(self, recipe: Recipe) -> bool:
        return self.max_cost is None or self.cost(recipe) <= self.max_cost


@dataclass(frozen=True)
class FakeJudge:
    """Right and wrong answers; in float all are right."""

    total: int = 200
    by_sample: bool = True
    name: str = "fake"
    higher_is_better: bool = True
    limits: tuple[float, float] | None = (0.0, 1.0)
    notes: tuple[Message, ...] = ()
    doubts: tuple[Doubt, ...] = ()

    def float_values(self) -> Array:
        return np.ones(self.total) if self.by_sample else np.array(1.0)

    def measure(self, model: Model, indices: Sequence[int]) -> Array:
        raise AssertionError("the workbench measures")

    def satisfied(self, float_score: float, score: float) -> None:
        return None


@dataclass
class FakeWorkbench:
    """Measures recipes by a function that gives accuracies; ends like a killed process after so many calls."""

    accuracy: Callable[[Recipe], float]
    judge: FakeJudge
    calls_left: int = 10**9
    measured: list[tuple[Recipe, int]] = field(default_factory=list)

    def identity(self, recipe: Recipe) -> str:
        return recipe_key(recipe)

    def measure(self, recipe: Recipe, indices: list[int]) -> Array:
        if self.calls_left == 0:
            raise Killed
        self.calls_left -= 1
        self.measured.append((recipe, len(indices)))
        share = self.accuracy(recipe)
        if not self.judge.by_sample:
            return np.array(share)
        # The same samples are wrong whenever they are asked for: the first ones of another random order.
        places = np.random.default_rng(7).permutation(self.judge.total)[indices]
        return (places >= round((1 - share) * self.judge.total)).astype(np.float64)


def search(
    problem: FakeProblem,
    workbench: FakeWorkbench,
    *,
    strategy: Strategy = STRATEGIES["greedy"],
    journal: Path | None = None,
    goal: float = 0.99,
    budget: TrialBudget | None = None,
) -> SearchFound:
    """Run a search to its end, or until it is killed."""
    memory = TrialJournal(journal, {"problem": "made up"})
    try:
        reading = GoalReading(workbench.judge, TuneGoal(verbatim("made up"), goal), early=strategy.early)
        bench = TrialRunner(workbench, reading, journal=memory, plain=problem.base)
        return run_search(problem, bench, strategy, budget=budget)
    finally:
        memory.close()
