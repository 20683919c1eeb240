"""Where two networks differ most."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.case.parts import BEST_DB, Spot, largest_gap, sqnr_at


def _arrays(seed: int = 0) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [{"t": rng.standard_normal((1, 4, 8, 8)).astype(np.float32)} for _ in range(3)]


@given(gain=st.floats(1e-2, 10), scale=st.floats(1e-6, 1e6))
def test_signal_to_noise_is_that_of_a_gain_at_any_scale(gain: float, scale: float) -> None:
    exact = [{"t": each["t"].astype(np.float64) * scale} for each in _arrays()]
    other = [{"t": each["t"] * (1 + gain)} for each in exact]
    assert sqnr_at(Spot("t"), exact, other) == pytest.approx(-20 * np.log10(gain), abs=1e-6)


def test_a_fault_of_all_is_told_of_the_whole_tensor() -> None:
    exact = _arrays()
    gap = largest_gap(exact, [{"t": each["t"] * 0.5} for each in exact], exact)
    assert gap is not None
    assert gap.spot == Spot("t")
    assert gap.faulty_db == pytest.approx(6.02, abs=0.01)
    assert gap.mended_db == BEST_DB


@given(channel=st.integers(0, 3))
def test_a_small_slice_that_is_lost_is_found(channel: int) -> None:
    exact = [{"t": each["t"].copy()} for each in _arrays()]
    for each in exact:
        each["t"][:, channel] *= 1e-3
    lost = [{"t": each["t"].copy()} for each in exact]
    for each in lost:
        each["t"][:, channel] = 0
    gap = largest_gap(exact, lost, exact)
    assert gap is not None
    assert gap.spot == Spot("t", 1, channel)
    assert gap.faulty_db == pytest.approx(0, abs=1e-6)
    assert gap.spot.text == f"'t', slice {channel} of axis 1"


@pytest.mark.parametrize("other", [np.nan, np.inf])
def test_what_is_not_finite_is_as_bad_as_can_be(other: float) -> None:
    exact = _arrays()
    broken = [{"t": np.full_like(each["t"], other)} for each in exact]
    assert sqnr_at(Spot("t"), exact, broken) == -BEST_DB


def test_other_shapes_and_text_have_no_score() -> None:
    exact = _arrays()
    assert sqnr_at(Spot("t"), exact, [{"t": each["t"][:, :1]} for each in exact]) == -BEST_DB
    words = [{"t": np.array(["a"])}]
    assert largest_gap(words, words, words) is None
    assert largest_gap([], [], []) is None
