"""Goals as people write them."""

import math

import numpy as np
import pytest

from roundoff.errors import BadInput
from roundoff.search.goal import TuneGoal, loss_interval, make_goal


def goal(**options: object) -> TuneGoal:
    given = {"name": "accuracy", "float_score": 0.8, "higher_is_better": True, **options}
    return make_goal(**given)  # type: ignore[arg-type]


def test_shares_and_differences() -> None:
    assert goal().value == pytest.approx(0.792)
    assert str(goal(max_drop="1%").text) == "within 1 % of float"
    assert goal(max_drop="0.01").value == pytest.approx(0.79)
    assert goal(max_drop="1%", higher_is_better=False).value == pytest.approx(0.808)
    assert goal(min_metric=0.75).value == 0.75
    beyond = goal(min_metric=0.9)
    assert (str(beyond.text), beyond.value) == ("at least 0.9, beyond float", 0.9)
    assert str(goal(min_metric=0.9, higher_is_better=False).text) == "at most 0.9"
    assert goal(name="sqnr_db", float_score=150.0).value == 20.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_drop": "much"}, "neither a share"),
        ({"max_drop": "-1"}, "neither a share"),
        ({"max_drop": "1%", "min_metric": 0.5}, "both given"),
        ({"min_metric": math.nan}, "not a value of the metric"),
    ],
)
def test_what_cannot_be_a_goal_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        goal(**options)


class Shares:
    """A judge of right and wrong answers."""

    limits = (0.0, 1.0)


class Decibels:
    """A judge without limits."""

    limits = None


def test_that_none_of_a_few_answers_changed_does_not_prove_that_none_will() -> None:
    none = np.zeros(32)
    found = loss_interval(none, Shares())  # type: ignore[arg-type]
    assert found is not None
    # Half an answer more in either direction, of 32 + 2, and Student's t of 31 degrees of freedom.
    assert found == pytest.approx((-2.039513 / 34, 2.039513 / 34), abs=1e-6)
    assert loss_interval(none, Decibels()) == (0.0, 0.0)  # type: ignore[arg-type]
