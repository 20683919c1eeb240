"""Goals as people write them."""

import math

import pytest

from roundoff.errors import BadInput
from roundoff.search.goal import TuneGoal, make_goal


def goal(**options: object) -> TuneGoal:
    given = {"name": "accuracy", "float_score": 0.8, "higher_is_better": True, **options}
    return make_goal(**given)  # type: ignore[arg-type]


def test_shares_and_differences() -> None:
    assert goal().value == pytest.approx(0.792)
    assert str(goal(max_drop="1%").text) == "within 1% of float"
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
