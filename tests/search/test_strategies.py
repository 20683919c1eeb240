"""Bisection as vendors do it, the front of metric and cost, strategies of the user's."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.plan import FLOAT, Recipe
from roundoff.errors import BadInput
from roundoff.messages.message import verbatim
from roundoff.search.result import Trial
from roundoff.search.strategies import STRATEGIES
from roundoff.search.strategies.ranked import pareto_front
from roundoff.search.strategies.strategy import load_strategy
from tests.search.synthetic import FakeJudge, FakeProblem, FakeWorkbench, search

TRACES = Path(__file__).resolve().parents[3] / "shared" / "vectors" / "amct" / "binary_search_traces.json"


def bisected(nodes: int, needed: int) -> tuple[list[int], FakeWorkbench, int | None]:
    """The counts that bisection asks for beyond the plain recipe, and the count of the answer."""
    problem = FakeProblem(tuple(f"node{number}" for number in range(nodes)))
    workbench = FakeWorkbench(lambda recipe: float(len(recipe.rules) >= needed), FakeJudge(by_sample=False))
    asked: list[int] = []
    propose = STRATEGIES["bisect"].propose

    def listening(given: object, history: object) -> Recipe | None:
        recipe = propose(given, history)  # type: ignore[arg-type]
        if recipe is not None and recipe.rules:
            asked.append(len(recipe.rules))
        return recipe

    from roundoff.search.strategies.strategy import Strategy

    found = search(problem, workbench, strategy=Strategy("bisect", listening))
    asked = asked[: len(asked) // 2] if asked[: len(asked) // 2] == asked[len(asked) // 2 :] else asked
    return asked, workbench, len(found.answer.recipe.rules) if found.answer.met else None


@pytest.mark.skipif(not TRACES.is_file(), reason="no vendor vectors beside this checkout")
def test_bisection_asks_what_the_vendor_asks() -> None:
    for trace in json.loads(TRACES.read_text())["traces"]:
        asked, _, answer = bisected(trace["n_layers"], trace["min_rollback_needed"])
        assert asked == trace["evaluated_rollback_counts"], trace
        expected = trace["final_rollback_count"] if trace["status"] == "PARTIAL_ROLL_BACK" else None
        assert answer == expected, trace


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 100), st.data())
def test_bisection_takes_a_logarithm_of_evaluations(nodes: int, data: st.DataObject) -> None:
    needed = data.draw(st.integers(1, nodes - 1))
    _, workbench, answer = bisected(nodes, needed)
    assert answer == needed
    # With that of the float model.
    assert len(workbench.measured) + 1 <= math.log2(nodes) + 3


def trial(cost: float, loss: float, number: int) -> Trial:
    return Trial(
        Recipe(method=str(number)), verbatim(""), True, 1 - loss, loss, cost, 1, whole=True, number=number
    )


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_nothing_beats_the_front_and_it_beats_all_others(points: list[tuple[int, int]]) -> None:
    trials = [trial(cost, loss, number) for number, (cost, loss) in enumerate(points)]
    front = pareto_front(trials)
    for each in trials:
        beaten = any(
            other.cost <= each.cost
            and other.loss <= each.loss
            and (other.cost, other.loss) != (each.cost, each.loss)
            for other in trials
        )
        assert not (each in front and beaten)
        assert each in front or any(other.cost <= each.cost and other.loss <= each.loss for other in front)
    assert [each.cost for each in front] == sorted(each.cost for each in front)


def test_the_front_is_searched_with_all_samples() -> None:
    problem = FakeProblem(tuple("abcdefgh"))
    workbench = FakeWorkbench(lambda recipe: min(1.0, 0.5 + len(recipe.rules) / 10), FakeJudge())
    found = search(problem, workbench, strategy=STRATEGIES["pareto"], goal=0.9)
    assert all(trial.whole for trial in found.trials)
    assert found.answer.met
    assert found.answer.cost == min(trial.cost for trial in found.trials if trial.met)
    assert {FLOAT, "u16"} == {rule.precision.activation for trial in found.trials for rule in trial.recipe.rules}


PROPOSE = """
def propose(problem, history):
    if history and history[-1].met:
        return None
    return problem.raised(problem.base, problem.ranking(problem.base)[: len(history)], "float")
"""
CLASS = """
EARLY = False
class Mine:
    def propose(self, problem, history):
        return None if history else problem.base
"""


def test_users_write_strategies_as_functions_or_classes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PROPOSE)
    strategy = load_strategy(tmp_path / "mine.py")
    workbench = FakeWorkbench(lambda recipe: float(len(recipe.rules) >= 2), FakeJudge())
    found = search(FakeProblem(tuple("abc")), workbench, strategy=strategy)
    assert (strategy.name, len(found.trials), len(found.answer.recipe.rules)) == ("mine", 3, 2)
    (tmp_path / "class.py").write_text(CLASS)
    assert not load_strategy(tmp_path / "class.py").early


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1", "has no function propose"),
        ("def propose(problem, history):\n    return 'float'", "neither a recipe nor None"),
        ("def propose(problem, history):\n    return 1 / 0", "failed in line 2: ZeroDivisionError"),
        ("def propose(problem, history):\n    return problem.base", "proposes what it has proposed before"),
        (
            "def propose(p, h):\n    return p.raised(p.base, ['aa'], 'float')",
            "names a node 'aa', which the network",
        ),
        (
            "def propose(p, h):\n    return p.raised(p.base, [None], 'float')",
            "names a node 'None', which the network",
        ),
        ("def propose(p, h):\n    return p.raised(p.base, ['a'], 'f99')", "'f99' is no precision"),
        ("class A:\n    def __init__(self, x): ...\n    def propose(self, problem, history): ...", "TypeError"),
    ],
)
def test_what_is_wrong_with_a_strategy_is_said(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(BadInput, match=message):
        search(
            FakeProblem(tuple("abc")),
            FakeWorkbench(lambda _: 0.0, FakeJudge()),
            strategy=load_strategy(tmp_path / "mine.py"),
        )


# The flow charts of Pulsar2 -------------------------------------------------------------------------------------


def charted(problem: FakeProblem, good: set[str], *, method: str = "") -> list[tuple[str, int]]:
    """The methods and numbers of raised nodes that are tried; good enough is the method, or these nodes raised."""
    workbench = FakeWorkbench(
        lambda recipe: float((method and recipe.method == method) or good <= set(problem.raised_nodes(recipe))),
        FakeJudge(by_sample=False),
    )
    found = search(problem, workbench, strategy=STRATEGIES["pulsar2"])
    return [(trial.recipe.method, len(trial.recipe.rules)) for trial in found.trials]


def test_charts_try_methods_first() -> None:
    problem = FakeProblem(("a", "b", "c"), poor=("b",))
    assert charted(problem, {"b"}, method="percentile") == [("", 0), ("minmax", 0), ("mse", 0), ("percentile", 0)]


def test_charts_raise_what_is_poor_by_itself() -> None:
    problem = FakeProblem(("a", "b", "c"), poor=("b", "c"))
    tried = charted(problem, {"b", "c"})
    assert tried[-1] == ("", 2)
    assert len(tried) == 5


def test_charts_end_where_nothing_is_left_to_raise() -> None:
    tried = charted(FakeProblem(("a", "b", "c"), poor=("a",)), {"b"})
    assert tried == [(method, count) for count in (0, 1) for method in ("", "minmax", "mse", "percentile")]
    assert len(charted(FakeProblem(("a", "b", "c")), {"b"})) == 4
