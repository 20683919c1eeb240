"""Whatever the metric does: a search ends, can be repeated and resumed, and its answer is true and needed."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roundoff.core.plan import FLOAT, Recipe
from roundoff.core.progress import Deadline
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.messages.message import verbatim
from roundoff.search.engine import SearchFound
from roundoff.search.result import Trial
from roundoff.search.strategies import STRATEGIES
from roundoff.search.strategies.ranked import one_less
from roundoff.search.strategies.strategy import Strategy, TrialBudget
from tests.search.synthetic import WIDE, FakeJudge, FakeProblem, FakeWorkbench, Killed, search

NODES = tuple(f"node{number}" for number in range(8))
needed_sets = st.dictionaries(st.sampled_from(NODES), st.sampled_from((WIDE, FLOAT)), max_size=4)


def accuracy_of(
    needed: dict[str, str], words: frozenset[str] = frozenset(), noise: int = 0
) -> Callable[[Recipe], float]:
    """An accuracy that is good when the needed nodes are raised far enough, and suffers for each that is not."""

    def accuracy(recipe: Recipe) -> float:
        raised = {rule.selector[0]: rule.precision.activation for rule in recipe.rules}
        missing = sum(raised.get(node) not in (precision, FLOAT) for node, precision in needed.items())
        missing += len(words - set(recipe.variations))
        # Not monotone: what has nothing to do with the goal moves the metric, too.
        wobble = (crc32(repr((noise, sorted(raised))).encode()) % 7) / 100 if noise and missing else 0.0
        return max(0.0, 1.0 - 0.08 * missing + min(wobble, 0.06))

    return accuracy


def facts(found: SearchFound) -> tuple[object, ...]:
    return (
        replace(found.answer, seconds=0.0),
        tuple(replace(trial, seconds=0.0) for trial in found.trials),
        found.stopped,
    )


@settings(max_examples=12, deadline=None)
@given(needed_sets, st.permutations(NODES), st.sampled_from(("greedy", "bisect")), st.integers(0, 3))
def test_the_answer_is_true_on_all_samples_and_needed(
    needed: dict[str, str], order: list[str], strategy: str, noise: int
) -> None:
    problem = FakeProblem(tuple(order))
    accuracy = accuracy_of(needed, noise=noise)
    workbench = FakeWorkbench(accuracy, FakeJudge())
    found = search(problem, workbench, strategy=STRATEGIES[strategy])
    assert found.answer.whole
    assert found.answer.samples == 200
    assert found.answer.score == pytest.approx(accuracy(found.answer.recipe), abs=0.003)
    assert found.answer.met == (accuracy(found.answer.recipe) >= 0.99)
    if strategy == "greedy":
        assert found.answer.met
        tried = {trial.recipe: trial.met for trial in found.trials}
        less = one_less(found.answer.recipe, problem)
        assert all(recipe in tried and not tried[recipe] for recipe in less)
        assert not any(trial.met and trial.cost < found.answer.cost for trial in found.trials)
        assert problem.raised_nodes(found.answer.recipe).keys() == needed.keys()
    assert facts(found) == facts(
        search(problem, FakeWorkbench(accuracy, FakeJudge()), strategy=STRATEGIES[strategy])
    )


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    needed_sets,
    st.permutations(NODES),
    st.sampled_from(("greedy", "bisect", "pareto")),
    st.booleans(),
    st.integers(0, 2),
)
def test_killed_at_any_moment_it_ends_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    needed: dict[str, str],
    order: list[str],
    strategy: str,
    by_sample: bool,
    noise: int,
) -> None:
    problem, accuracy = FakeProblem(tuple(order), words=("a", "b")), accuracy_of(needed, frozenset("a"), noise)
    judge = FakeJudge(by_sample=by_sample)
    whole = FakeWorkbench(accuracy, judge)
    undisturbed = facts(search(problem, whole, strategy=STRATEGIES[strategy]))
    for calls in range(0, len(whole.measured), 1 + len(whole.measured) // 8):
        journal = tmp_path_factory.mktemp("kill") / "journal.sqlite"
        with pytest.raises(Killed):
            search(problem, FakeWorkbench(accuracy, judge, calls), strategy=STRATEGIES[strategy], journal=journal)
        again = FakeWorkbench(accuracy, judge)
        assert facts(search(problem, again, strategy=STRATEGIES[strategy], journal=journal)) == undisturbed
        assert len(again.measured) == len(whole.measured) - calls


def test_a_healthy_model_takes_one_trial() -> None:
    workbench = FakeWorkbench(lambda recipe: 1.0, FakeJudge())
    found = search(FakeProblem(NODES, words=("a",)), workbench)
    assert [str(trial.change) for trial in found.trials] == ["plain"]
    assert found.answer.met


def test_an_unreachable_goal_gives_the_best_that_was_tried() -> None:
    problem = FakeProblem(NODES, words=("a",), precisions=(WIDE,))
    found = search(problem, FakeWorkbench(accuracy_of({NODES[2]: FLOAT}, frozenset("ab")), FakeJudge()))
    assert not found.answer.met
    assert str(found.answer.change) == "a"
    assert found.answer.whole


def test_early_passes_that_all_samples_refute_are_taken_back() -> None:
    # The first samples of the order are right, the last ones wrong: looks at first as if it met the goal.
    judge = FakeJudge(total=400)

    class Deceiving(FakeWorkbench):
        def measure(self, recipe: Recipe, indices: list[int]) -> Array:
            values = super().measure(recipe, indices)
            seen = sum(size for tried, size in self.measured if tried == recipe)
            raised = len(recipe.rules)
            return values * 0 + (1.0 if seen <= 256 and raised == 1 else float(raised > 1))

    problem = FakeProblem(NODES, precisions=(FLOAT,))
    found = search(problem, Deceiving(lambda recipe: 1.0, judge), goal=0.9)
    assert found.answer.met
    assert len(found.answer.recipe.rules) == 2
    assert any(trial.whole and not trial.met and len(trial.recipe.rules) == 1 for trial in found.trials)


def test_budgets_end_a_search_early_and_say_so() -> None:
    workbench = FakeWorkbench(accuracy_of(dict.fromkeys(NODES[:3], FLOAT)), FakeJudge())
    found = search(FakeProblem(NODES, words=("a", "b")), workbench, budget=TrialBudget(max_trials=4))
    assert len(found.trials) == 4
    assert str(found.stopped) == "after 4 trials, as --max-trials says"
    assert found.answer.whole
    over = search(
        FakeProblem(NODES),
        FakeWorkbench(workbench.accuracy, FakeJudge()),
        budget=TrialBudget(deadline=Deadline.after(0.0)),
    )
    assert (len(over.trials), str(over.stopped)) == (1, "when the time was over")


def test_what_costs_too_much_is_not_the_answer() -> None:
    problem = FakeProblem(NODES, max_cost=1.5)
    found = search(problem, FakeWorkbench(accuracy_of(dict.fromkeys(NODES[:2], FLOAT)), FakeJudge()))
    assert not found.answer.met
    assert all(trial.cost <= 1.5 for trial in found.trials if trial.samples)


def test_a_strategy_that_repeats_itself_is_ended() -> None:
    stubborn = Strategy("stubborn", lambda problem, history: problem.base)
    workbench = FakeWorkbench(lambda recipe: 0.5, FakeJudge())
    found = search(FakeProblem(NODES), workbench, strategy=stubborn)
    assert str(found.stopped) == "because the strategy kept asking for 'plain'"
    assert sum(size for _, size in workbench.measured) <= 200


def test_a_strategy_that_proposes_nothing_is_refused() -> None:
    with pytest.raises(BadInput, match="proposed nothing"):
        search(
            FakeProblem(NODES), FakeWorkbench(lambda _: 1.0, FakeJudge()), strategy=Strategy("no", lambda *_: None)
        )


def test_trials_that_fail_clearly_take_few_samples() -> None:
    workbench = FakeWorkbench(accuracy_of({NODES[0]: FLOAT}), FakeJudge(total=2000))
    found = search(FakeProblem(NODES), workbench, goal=0.999)
    plain = found.trials[0]
    assert not plain.met
    assert plain.samples <= 192


def test_histories_of_strategies_are_their_only_memory() -> None:
    problem = FakeProblem(NODES, words=("a",))
    propose = STRATEGIES["greedy"].propose
    history: list[Trial] = []
    accuracy = accuracy_of({NODES[1]: FLOAT})
    for _ in itertools.count():
        recipe = propose(problem, history)
        assert propose(problem, history) == recipe
        if recipe is None:
            break
        score = accuracy(recipe)
        history.append(
            Trial(recipe, verbatim(""), score >= 0.99, score, 1 - score, problem.cost(recipe), 200, whole=True)
        )
    assert history


def by_options(scores: dict[str, float]) -> Callable[[Recipe], float]:
    """An accuracy for each set of options."""
    return lambda recipe: scores["".join(recipe.variations)]


def answered(problem: FakeProblem, scores: dict[str, float], goal: float = 0.97) -> SearchFound:
    return search(problem, FakeWorkbench(by_options(scores), FakeJudge()), goal=goal)


GAINS = {"": 0.9, "a": 0.93, "b": 0.98, "ab": 1.0}


def test_what_costs_nothing_and_helps_is_not_given_back() -> None:
    found = answered(FakeProblem(("n",), words=("a", "b"), precisions=()), GAINS)
    assert found.answer.recipe.variations == ("a", "b")
    assert found.answer.score == 1.0


def test_what_makes_no_difference_to_the_metric_stays() -> None:
    found = answered(FakeProblem(("n",), words=("a", "b"), precisions=()), {**GAINS, "b": 1.0})
    assert found.answer.recipe.variations == ("a", "b")


def test_what_costs_nothing_and_harms_is_given_back() -> None:
    scores = {**GAINS, "b": 1.0, "ab": 0.98}
    found = answered(FakeProblem(("n",), words=("a", "b"), precisions=()), scores)
    assert found.answer.recipe.variations == ("b",)
    # A metric that is better by chance is not enough: where outputs are noisier without it, it is not even tried.
    decibels = {frozenset(each): 10.0 + 5 * len(each) for each in ("", "a", "b", "ab")}
    found = answered(FakeProblem(("n",), words=("a", "b"), precisions=(), promised=decibels), scores)
    assert found.answer.recipe.variations == ("a", "b")
    assert not any(trial.recipe.variations == ("b",) for trial in found.trials)


def test_a_lever_that_costs_something_is_given_back() -> None:
    problem = FakeProblem(("n",), words=("a", "b"), precisions=(), dear=("a",))
    found = answered(problem, GAINS)
    assert found.answer.recipe.variations == ("b",)
    assert found.answer.cost == 1.0
    # Not where the goal needs it.
    found = answered(problem, GAINS, goal=0.99)
    assert found.answer.recipe.variations == ("a", "b")
    assert [each.variations for each in one_less(found.answer.recipe, problem)] == [("b",)]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(80, 100), min_size=8, max_size=8),
    st.sets(st.sampled_from("abc")),
    st.sampled_from((0.85, 0.9, 0.95)),
)
def test_no_trial_that_was_made_is_cheaper_or_as_cheap_and_better_than_the_answer(
    shares: list[int], dear: set[str], goal: float
) -> None:
    sets = ["".join(each) for size in range(4) for each in itertools.combinations("abc", size)]
    scores = dict(zip(sets, (share / 100 for share in shares), strict=True))
    problem = FakeProblem(("n",), words=("a", "b", "c"), precisions=(), dear=tuple(sorted(dear)))
    found = answered(problem, scores, goal)
    met = [trial for trial in found.trials if trial.met]
    if found.answer.met:
        cheapest = min(round(trial.cost, 9) for trial in met)
        assert round(found.answer.cost, 9) == cheapest
        assert found.answer.loss == min(trial.loss for trial in met if round(trial.cost, 9) == cheapest)
