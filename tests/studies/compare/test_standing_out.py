"""Tensors that pass and still agree far less than those around them are told."""

import numpy as np
import pytest

from roundoff.core.tensors import Array
from roundoff.studies.compare.difference import local_outliers, neighbour_sqnr_db
from roundoff.studies.compare.result import Comparison
from roundoff.studies.compare.study import CompareSettings, compare
from tests.studies.compare.test_compare import CHAIN, by_name, row, source, tensors

SHAPE = (1, 32, 6, 6)


def halved(values: Array) -> Array:
    made = values.copy()
    made[:, 3] *= np.float32(0.5)
    return made


def compared(*changed: str, ordered: bool = True) -> Comparison:
    good = tensors(shape=SHAPE)
    bad = {name: halved(array) if name in changed else array for name, array in good.items()}
    settings = CompareSettings(topology=CHAIN if ordered else None)
    return compare(source(good, ordered=ordered), source(bad), by_name(), settings=settings)


@pytest.mark.parametrize("name", ["x", "a", "b", "y"])
def test_one_tensor_among_equal_ones_is_told_with_what_differs(name: str) -> None:
    found = compared(name)
    assert found.verdict.failed == 0
    assert row(found, name).passed
    assert str(row(found, name).difference) == "channel 3 carries 100 % of the error, gain 0.5"
    (note,) = map(str, found.notes)
    assert note.startswith(f"{name} stands out: ")
    assert "its worst neighbour exact: channel 3 carries 100 % of the error, gain 0.5" in note
    assert (found.verdict.introduces, found.verdict.first_divergence) == ((), None)


def test_without_an_order_all_others_are_neighbours() -> None:
    (note,) = map(str, compared("b", ordered=False).notes)
    assert "the worst other exact" in note


@pytest.mark.parametrize("changed", [(), ("a", "b", "y"), ("x", "a", "b", "y")])
def test_an_error_that_goes_on_does_not_stand_out(changed: tuple[str, ...]) -> None:
    found = compared(*changed)
    assert found.notes == ()
    assert not any(row.difference for row in found.rows)


def test_rounding_does_not_stand_out() -> None:
    good = tensors()
    bad = {**good, "a": good["a"] * np.float32(1 + 1e-4)}
    assert compare(source(good), source(bad), by_name()).notes == ()


def test_one_row_has_no_neighbours() -> None:
    rows = compared("a").rows
    assert neighbour_sqnr_db(rows[1:2], 0, ordered=True) is None
    assert local_outliers(rows[1:2], ordered=True) == []


def test_what_was_not_read_introduces_nothing() -> None:
    good = tensors()
    found = compare(source(good), source(good, broken=("b",)), by_name(), settings=CompareSettings(topology=CHAIN))
    assert row(found, "b").passed is False
    assert (found.verdict.failed, found.verdict.first_divergence) == (1, None)
    assert (found.verdict.introduces, found.verdict.victims) == ((), ())


def test_what_is_wrong_behind_an_unread_tensor_is_where_it_starts() -> None:
    good = tensors()
    bad = {**good, "y": good["y"] * np.float32(0.5)}
    found = compare(source(good), source(bad, broken=("a",)), by_name(), settings=CompareSettings(topology=CHAIN))
    assert found.verdict.first_divergence == "y"
    assert found.verdict.introduces == ("y",)
    assert found.verdict.worst == ("y", "a")
