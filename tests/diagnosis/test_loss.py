"""What is lost at the outputs, as numbers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from roundoff.core.tensors import Array
from roundoff.diagnosis.loss import ENDLESS, NEGLIGIBLE, Loss, LossMeter, OutputPart

VALUES = arrays(np.float32, (4, 6), elements=st.floats(-100, 100, width=32))
WHOLE = [OutputPart("y")]


def lost(reference: Array, candidate: Array, parts: list[OutputPart] | None = None) -> Loss:
    meter = LossMeter(parts or WHOLE)
    for ours, theirs in zip(reference, candidate, strict=True):
        meter.add({"y": ours[None]}, {"y": theirs[None]})
    return meter.loss()


@given(VALUES)
def test_what_is_equal_loses_nothing(values: Array) -> None:
    loss = lost(values, values)
    assert (loss.value, loss.sqnr_db, loss.cosine, loss.agrees) == (0.0, math.inf, 1.0, True)
    assert loss.top1 == 1.0


@given(VALUES, VALUES, st.sampled_from([0.25, 2.0, 16.0]))
def test_the_unit_does_not_matter(ours: Array, theirs: Array, factor: float) -> None:
    plain, other = lost(ours, theirs), lost(ours * np.float32(factor), theirs * np.float32(factor))
    assert math.isclose(plain.value, other.value, rel_tol=1e-6, abs_tol=1e-12)


@given(VALUES, VALUES)
def test_the_order_of_samples_does_not_matter(ours: Array, theirs: Array) -> None:
    assert math.isclose(lost(ours, theirs).value, lost(ours[::-1], theirs[::-1]).value, rel_tol=1e-9)


@given(VALUES, VALUES, VALUES)
def test_an_excess_is_never_negative_and_none_to_itself(ours: Array, theirs: Array, others: Array) -> None:
    first, second = lost(ours, theirs), lost(ours, others)
    assert first.excess_db(first) == 0.0
    assert first.excess_db(second) >= 0.0
    assert min(first.excess_db(second), second.excess_db(first)) == 0.0


def test_what_is_negligible_is_all_the_same() -> None:
    ours = np.ones((1, 100), np.float32)
    tiny, tinier = lost(ours, ours + np.float32(1e-3)), lost(ours, ours + np.float32(1e-5))
    assert tiny.ratios[0] < NEGLIGIBLE
    assert tiny.excess_db(tinier) == 0.0


def test_a_part_next_to_a_large_one_does_not_vanish() -> None:
    ours = np.array([[600.0, 500.0, 0.5, 0.9]], np.float32)
    theirs = np.array([[600.0, 500.0, 0.0, 0.0]], np.float32)
    assert lost(ours, theirs).agrees
    loss = lost(ours, theirs, [OutputPart("y", 1, 0, 2, "boxes"), OutputPart("y", 1, 2, 4, "scores")])
    assert (loss.agrees, loss.parts[loss.worst], loss.of_part(0).value) == (False, "scores", 0.0)
    assert math.isclose(loss.sqnr_db, 0.0, abs_tol=1e-9)


def test_what_cannot_be_measured_is_lost() -> None:
    ours = np.ones((1, 4), np.float32)
    assert lost(ours, ours * np.float32(np.nan)).ratios[0] == ENDLESS
    meter = LossMeter(WHOLE)
    meter.add({"y": ours}, {"y": ours[:, :2]})
    assert meter.loss().ratios[0] == ENDLESS
    assert meter.loss().cosine == 0.0


def test_what_is_not_finite_in_float_is_left_out() -> None:
    ours = np.array([[np.inf, 1.0, 2.0]], np.float32)
    assert lost(ours, np.array([[0.0, 1.0, 2.0]], np.float32)).value == 0.0


def test_samples_that_lose_most_are_told() -> None:
    meter = LossMeter([OutputPart("y")])
    exact = np.ones((1, 4))
    for error in (0.0, 0.3, 0.1):
        meter.add({"y": exact}, {"y": exact + error})
    none, most, some = meter.loss().by_sample
    assert none == 0 < some < most
    assert none + some + most == pytest.approx(float(meter.loss().ratios[0]))
