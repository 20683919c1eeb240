"""What evidence is worth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.align.evidence import MatchEvidence, compare, fingerprints, order_prior
from roundoff.align.pairing import Layout
from roundoff.align.values import choose_partners

RESIDUALS = st.floats(1e-6, 0.7)
SIZES = st.floats(1, 3000)


def seen(
    reference: int = 0,
    candidate: int = 0,
    *,
    residual: float = 0.001,
    effective: float = 1000,
    layout: Layout | None = None,
    difference: float | None = None,
) -> MatchEvidence:
    difference = residual if difference is None else difference
    return MatchEvidence(reference, candidate, layout, residual, difference, effective, trials=10)


@given(near=RESIDUALS, far=RESIDUALS, effective=SIZES, noise=st.floats(1e-9, 0.1))
def test_a_smaller_residual_is_stronger_and_less_of_an_accident(
    near: float, far: float, effective: float, noise: float
) -> None:
    near, far = min(near, far), max(near, far)
    one, other = seen(residual=near, effective=effective), seen(residual=far, effective=effective)
    assert one.strength(noise) >= other.strength(noise)
    assert 0 < other.beyond_chance() <= one.beyond_chance() <= 1


@given(residual=RESIDUALS, few=SIZES, many=SIZES)
def test_more_elements_are_less_of_an_accident(residual: float, few: float, many: float) -> None:
    few, many = min(few, many), max(few, many)
    assert (
        seen(residual=residual, effective=few).beyond_chance()
        <= seen(residual=residual, effective=many).beyond_chance()
    )


def test_agreement_without_gain_and_without_a_change_of_layout_is_stronger() -> None:
    plain = seen()
    assert plain.agrees_plainly(0.0)
    scaled, moved = seen(difference=0.5), seen(layout=Layout("reshaped"))
    assert not scaled.agrees_plainly(0.0)
    assert plain.strength(1e-6) > moved.strength(1e-6)
    assert plain.strength(1e-6) > scaled.strength(1e-6)


@given(gain=st.floats(0.01, 100), offset=st.floats(-100, 100), seed=st.integers(0, 999), size=st.integers(20, 300))
def test_gain_and_offset_leave_no_residual(gain: float, offset: float, seed: int, size: int) -> None:
    values = np.random.default_rng(seed).standard_normal(size)
    (found,) = compare(fingerprints({7: values}), fingerprints({9: gain * values + offset}), layout=None, trials=1)
    assert found.key == (7, 9)
    assert found.residual < 1e-5
    expected = np.mean((values - gain * values - offset) ** 2) / values.var()
    assert found.difference == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_outliers_make_a_fingerprint_worth_less() -> None:
    spread = np.random.default_rng(0).standard_normal(1000)
    spiky = np.zeros(1000)
    spiky[3] = 1
    some = fingerprints({0: spread, 1: spiky, 2: np.ones(1000)})
    assert some.effective[0] > 500
    assert 1 < some.effective[1] < 4
    assert some.flat.tolist() == [False, False, True]


def test_confidence_is_shared_among_equals() -> None:
    for rivals in (1, 2, 3, 4):
        chosen, sure = choose_partners([seen(0, candidate) for candidate in range(rivals)], [])
        assert len(chosen) == 1
        assert abs(sure[0] - 1 / rivals) < 0.01
        _, sure = choose_partners([seen(reference, 0) for reference in range(rivals)], [])
        assert abs(next(iter(sure.values())) - 1 / rivals) < 0.01


def test_a_rival_with_a_better_partner_is_none() -> None:
    evidence = [seen(0, 0, residual=0.01), seen(0, 1, residual=0.03), seen(1, 1, residual=0.0001)]
    _, sure = choose_partners(evidence, [])
    assert min(sure.values()) > 0.9


def test_a_match_unlike_the_others_is_less_sure() -> None:
    usual = [seen(index, index, residual=1e-6) for index in range(10)]
    _, sure = choose_partners([*usual, seen(10, 10, residual=1e-3)], [])
    assert sure[10] < 0.9 < sure[0]
    _, sure = choose_partners([*usual, seen(10, 10, residual=1e-6, layout=Layout("reshaped"))], [])
    assert sure[10] < 0.9 < sure[0]
    _, sure = choose_partners([*usual, seen(10, 10, residual=1e-6, difference=0.5)], [])
    assert sure[10] < 0.9 < sure[0]


def test_order_counts_only_where_the_sides_agree_on_it() -> None:
    agreed = order_prior([(2 * index, index) for index in range(20)])
    assert agreed(seen(10, 5)) == 0.0
    assert agreed(seen(30, 5)) < agreed(seen(12, 5)) < 0.0
    assert agreed(seen(39, 20)) == 0.0  # beyond the last
    random = np.random.default_rng(0).permutation(20)
    disagreed = order_prior([(int(random[index]), index) for index in range(20)])
    assert disagreed(seen(0, 19)) == 0.0
    assert order_prior([(0, 0)])(seen(0, 19)) == 0.0
