"""What stands out of a ranking."""

import math

import pytest

from roundoff.measure.metrics import get_metric
from roundoff.studies.sensitivity.ranking import judge
from roundoff.studies.sensitivity.result import SensitivityRow


def ranking(
    values: list[float],
    chances: list[float | None],
    metric: str = "sqnr_db",
    first: list[float | None] | None = None,
) -> list[SensitivityRow]:
    first = [None, *chances[:1], *[None] * len(chances)] if first is None else first
    return [
        SensitivityRow(
            place + 1, f"n{place}", "", "", "", (), {metric: value}, {metric: None}, {metric: (value,)}, 4, (), "",
            chance, differs_from_first=first[place],
        )
        for place, (value, chance) in enumerate(zip(values, chances, strict=True))
    ]  # fmt: skip


def test_a_few_stand_out_where_the_step_is_largest() -> None:
    rows = ranking([20.0, 21.0, 40.0, 44.0, 45.0, 46.0], [0.5, 0.001, 0.001, 0.5, 0.5, None])
    verdict = judge("node", rows, get_metric("sqnr_db"), None)
    assert (verdict.standing, verdict.names, verdict.sure) == ("stand_out", ("n0", "n1"), True)
    energies = [10 ** (-row.scores["sqnr_db"] / 10) for row in rows]
    assert verdict.share == pytest.approx(sum(energies[:2]) / sum(energies))


def test_a_step_that_may_be_chance_does_not_count() -> None:
    rows = ranking([20.0, 40.0, 40.1, 40.2], [0.2, 0.001, 0.5, None], first=[None, 0.2, 0.01, 0.01])
    verdict = judge("node", rows, get_metric("sqnr_db"), None)
    assert (verdict.standing, verdict.names) == ("tied", ("n0", "n1"))
    unknown = judge("node", ranking([20.0, 40.0, 40.1, 40.2], [None] * 4), get_metric("sqnr_db"), None)
    assert (unknown.standing, unknown.names, unknown.sure) == ("stand_out", ("n0",), None)


def test_neighbours_that_are_alike_make_no_chain() -> None:
    # Each is like the next one, and the fourth is nothing like the first.
    rows = ranking([28.8, 31.0, 33.0, 70.2], [0.4, 0.4, 0.4, None], first=[None, 0.4, 0.1, 0.001])
    verdict = judge("node", rows, get_metric("sqnr_db"), None)
    assert (verdict.standing, verdict.names) == ("tied", ("n0", "n1", "n2"))


def test_small_steps_are_a_spread() -> None:
    rows = ranking([0.90, 0.91, 0.92, 0.93], [0.001] * 3 + [None], "cosine")
    assert judge("weight", rows, get_metric("cosine"), None).standing == "spread"
    rows = ranking([0.4, 0.1, 0.09, 0.08], [0.001] * 3 + [None], "mse")
    assert judge("weight", rows, get_metric("mse"), None).names == ("n0",)


def test_without_any_error_nothing_is_lost() -> None:
    rows = ranking([math.inf, math.inf], [1.0, None])
    assert judge("node", rows, get_metric("sqnr_db"), None).standing == "nothing_lost"
    assert judge("node", [], get_metric("sqnr_db"), None).standing == "nothing_lost"


def test_without_any_score_nothing_is_said() -> None:
    rows = ranking([math.nan, math.nan], [None, None])
    assert judge("node", rows, get_metric("sqnr_db"), None).standing == "no_score"
    rows = ranking([math.inf, math.nan], [None, None])
    assert judge("node", rows, get_metric("sqnr_db"), None).standing == "nothing_lost"


def test_left_out_harm_is_what_goes_away() -> None:
    # With everything 0.1 is lost; without the first a tenth of it, without the others nearly all.
    rows = ranking([0.01, 0.095, 0.096, 0.097], [0.001] * 3 + [None], "mse")
    verdict = judge("node", rows, get_metric("mse"), 0.1)
    assert (verdict.standing, verdict.names) == ("stand_out", ("n0",))
    assert verdict.share == pytest.approx(0.09 / 0.102)
