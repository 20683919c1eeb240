import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from roundoff.analysis.sensitivity.probes import (
    ESTIMATED,
    estimated_score,
    logarithm_offset,
    probed_output,
    probes_of,
    root_factor,
)
from roundoff.analysis.sensitivity.scoring import row_moments
from roundoff.core.tensors import Array
from roundoff.metrics.registry import get_metric

VECTORS = arrays.arrays(np.float32, 4, elements=st.floats(-8, 8, width=32))


def truth(name: str, output: Array, error: Array) -> float:
    moments = row_moments(output[np.newaxis], (output + error)[np.newaxis])[0]
    return get_metric(name).compute(moments)


@given(output=VECTORS, error=VECTORS, name=st.sampled_from(ESTIMATED))
def test_vectors_that_pick_every_element_leave_nothing_to_chance(output: Array, error: Array, name: str) -> None:
    probes = probes_of(4, 4, direction=True)
    assert probes.basis
    assert not probes.direction
    vectors = probes.draw(np.random.default_rng(0))
    known = probed_output(probes, output, vectors)
    wide = error.astype(np.float64)
    found = estimated_score(get_metric(name), known, seen=vectors @ wide, along=math.nan)
    assert found == pytest.approx(truth(name, output.astype(np.float64), wide), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("count", [1, 2, 4, 7])
@pytest.mark.parametrize("name", ESTIMATED)
def test_random_vectors_are_right_on_average(name: str, count: int) -> None:
    rng = np.random.default_rng(count)
    output = rng.standard_normal(50)
    error = 0.01 * rng.standard_normal(50)
    probes = probes_of(50, count, direction=name == "cosine")
    found = np.empty(4000)
    for at in range(len(found)):
        vectors = probes.draw(rng)
        known = probed_output(probes, output.astype(np.float32), vectors)
        found[at] = estimated_score(get_metric(name), known, seen=vectors @ error, along=float(output @ error))
    spread = found.std(ddof=1) / math.sqrt(len(found))
    assert spread > 0
    assert abs(found.mean() - truth(name, output, error)) < 4 * spread


@given(count=st.integers(1, 60))
def test_offsets_follow_the_recurrence_of_the_digamma_function(count: int) -> None:
    left = logarithm_offset(count + 2) + math.log(count / 2 + 1)
    right = logarithm_offset(count) + math.log(count / 2) + 2 / count
    assert left == pytest.approx(right, abs=1e-12)


def test_offsets_of_one_and_two_are_known() -> None:
    euler = 0.57721566490153286
    assert logarithm_offset(2) == pytest.approx(-euler)
    assert logarithm_offset(1) == pytest.approx(-euler - math.log(2))
    assert root_factor(1) == pytest.approx(math.sqrt(2 / math.pi))
    assert root_factor(2) == pytest.approx(math.sqrt(math.pi) / 2)


@given(count=st.integers(1, 200))
def test_more_vectors_need_less_correction(count: int) -> None:
    assert logarithm_offset(count) < logarithm_offset(count + 1) < 0
    assert root_factor(count) < root_factor(count + 1) < 1


def test_what_is_not_finite_has_no_score() -> None:
    probes = probes_of(9, 2, direction=False)
    vectors = probes.draw(np.random.default_rng(0))
    known = probed_output(probes, np.ones(9, np.float32), vectors)
    assert math.isnan(estimated_score(get_metric("mse"), known, seen=np.array([np.nan, 1.0]), along=0.0))
    broken = probed_output(probes, np.full(9, np.inf, np.float32), vectors)
    assert math.isnan(estimated_score(get_metric("sqnr_db"), broken, seen=np.ones(2), along=0.0))
