"""What code of users answers: it is taken, or refused by a sentence, and no search goes on for ever."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.errors import BadInput
from roundoff.run.evaluators import finite_number, higher_is_better, roll_back_answer, verdict
from roundoff.search.strategies.roll_back import RollBackTrial, roll_back
from roundoff.search.strategies.strategy import run_trials

LAYERS = ("a", "b", "c")
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(LAYERS), inner),
    max_leaves=8,
)


@given(ANYTHING)
def test_anything_is_taken_or_refused(value: Any) -> None:
    said: list[tuple[str, str]] = []

    def ask(function: Any, *more: Any, **named: Any) -> Any:
        try:
            return function(value, *more, of="f()", **named)
        except BadInput as error:
            said.append((error.what, error.fix))
            return None

    assert ask(finite_number) is None or math.isfinite(finite_number(value, of=""))
    found = ask(verdict)
    assert found is None or not math.isnan(found[1])
    ask(roll_back_answer, LAYERS, tried=())
    found = ask(lambda value, **named: roll_back_answer({"stop_flag": False, "roll_back_config": value}, LAYERS,
                                                        tried=(), **named))  # fmt: skip
    assert found is None or set(found[0]) == set(LAYERS)
    assert all(what.startswith("f() ") and fix for what, fix in said)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "gave None, not a dictionary"),
        ({"stop_flag": True}, "without 'roll_back_config'"),
        ({"roll_back_config": {}}, "without 'stop_flag'"),
        ({"stop_flag": False, "roll_back_config": None}, "gave None as roll_back_config"),
        ({"stop_flag": False, "roll_back_config": {"x": True}}, "names a layer 'x', which is not quantized"),
        ({"stop_flag": False, "roll_back_config": {"a": None}}, "gave None for layer 'a'"),
        ({"stop_flag": False, "roll_back_config": {"a": math.nan}}, "gave nan for layer 'a'"),
    ],
)
def test_answers_of_strategies_that_mean_nothing(answer: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        roll_back_answer(answer, LAYERS, tried=(), of="f()")


def test_layers_that_are_not_named_stay_quantized() -> None:
    given = {"stop_flag": np.False_, "roll_back_config": {"b": np.False_}}
    assert roll_back_answer(given, LAYERS, tried=(), of="") == ({"b": False, "a": True, "c": True}, False)


@pytest.mark.parametrize("value", [None, "1", [1, [2]], [1, 2], math.nan, 1 + 2j, {}])
def test_what_is_no_number(value: Any) -> None:
    with pytest.raises(BadInput, match=r"f\(\) gave .*, which is not a finite number"):
        finite_number(value, of="f()")
    assert finite_number(np.float32(0.5), of="") == finite_number([[0.5]], of="") == 0.5
    assert finite_number(math.inf, of="", infinite=True) == math.inf
    with pytest.raises(BadInput):
        finite_number(math.nan, of="f()", infinite=True)


class Unwilling:
    """As a tensor that needs its gradient: it neither becomes an array nor has words for itself."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("call detach() first")

    __repr__ = __iter__ = __array__


def test_objects_that_will_not_be_numbers_are_refused() -> None:
    with pytest.raises(BadInput, match=r"f\(\) gave <.*Unwilling object at .*, which is not a finite number"):
        finite_number(Unwilling(), of="f()")
    for value in (Unwilling(), (True, Unwilling()), (Unwilling(), 0.5)):
        with pytest.raises(BadInput, match=r"f\(\) returned .*, not whether it is good enough"):
            verdict(value, of="f()")


class Stubborn:
    """Proposes some answers over and over."""

    def __init__(self, *answers: dict[str, bool]) -> None:
        self.answers, self.asked = answers, 0

    def initialize(self, ranking_info: Any) -> None: ...

    def update_quant_config(self, metric_eval: Any) -> dict[str, Any]:
        self.asked += 1
        return {"stop_flag": False, "roll_back_config": self.answers[(self.asked - 1) % len(self.answers)]}


@pytest.mark.parametrize("answers", [({"a": False},), ({"a": False}, {"b": False}), ({},)])
def test_a_strategy_that_repeats_itself_is_ended(answers: Any) -> None:
    stubborn = Stubborn(*answers)
    steps = roll_back(LAYERS, lambda: [(name, 1.0) for name in LAYERS], stubborn)
    with pytest.raises(BadInput, match="of Stubborn proposes what it has proposed before: it would never end"):
        run_trials(steps, lambda tried: RollBackTrial(dict(tried.config), False, 1.0))
    assert stubborn.asked == len(answers) + 1


def test_a_layer_that_goes_back_alone_is_not_the_float_model() -> None:
    tried = []

    def attempt(candidate: Any) -> RollBackTrial:
        tried.append((dict(candidate.config), candidate.original))
        return RollBackTrial(dict(candidate.config), len(tried) > 1, 1.0)

    steps = roll_back(LAYERS, lambda: [(name, 1.0) for name in LAYERS], Ending())
    assert run_trials(steps, attempt)[0] == "PARTIAL_ROLL_BACK"
    assert tried[1] == ({"b": False, "a": True, "c": True}, False)


class Ending(Stubborn):
    """Names one layer, and ends."""

    def update_quant_config(self, metric_eval: Any) -> dict[str, Any]:
        return {"stop_flag": True, "roll_back_config": {"b": False}}


@pytest.mark.parametrize("said", ["no", "", 2, 0.5, [], np.array([1, 0]), None])
def test_which_way_is_better_is_said_clearly(said: Any) -> None:
    with pytest.raises(BadInput, match=r"HIGHER_IS_BETTER in e.py is .*, which is neither True nor False"):
        higher_is_better(SimpleNamespace(HIGHER_IS_BETTER=said), Path("e.py"))
    assert higher_is_better(SimpleNamespace(), Path("e.py"))
    assert not higher_is_better(SimpleNamespace(HIGHER_IS_BETTER=np.False_), Path("e.py"))
    with pytest.raises(BadInput, match="does not say which way its number is better"):
        higher_is_better(SimpleNamespace(), Path("e.py"), default=None)
