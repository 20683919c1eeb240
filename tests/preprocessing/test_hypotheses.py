"""Ranking of conventions: the true one is first, or among those that are said not to be told apart."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.preprocessing.conventions import (
    Convention,
    Hypothesis,
    InputObservation,
    alike,
    leading,
    plausible,
    preparations,
    rank,
)

TRAINED = {channels: [each for each in preparations(channels) if not each.slip] for channels in (1, 3)}


def pictures(channels: int, *, darkest: int, brightest: int, seed: int) -> Array:
    """Whole pixels that reach from a darkest to a brightest one in every channel, float64 [6, channels, 9, 9]."""
    found = np.random.default_rng(seed).uniform(0, 1, (6, channels, 9, 9)) ** 1.3
    found[0, :, 0, 0], found[-1, :, -1, -1] = 0.0, 1.0
    return np.asarray(np.rint(darkest + found * (brightest - darkest)))


def named(way: Convention, told: list[Convention]) -> bool:
    """Whether a way is among others, up to what no code of 8 bits could show."""
    return any(way.formula == each.formula or alike(each, way, 0.008) for each in told)


def wanted(found: tuple[Hypothesis, ...]) -> list[Convention]:
    return [each.wanted for each in found]


CONTRASTS = st.tuples(st.integers(0, 40), st.integers(200, 255))
# Sets for calibration hold dozens of pictures; together these nearly reach black and white.
NEARLY_FULL = st.tuples(st.integers(0, 10), st.integers(245, 255))


@pytest.mark.parametrize("channels", [1, 3])
@settings(max_examples=60, deadline=None)
@given(st.data(), CONTRASTS, st.integers(0, 2**32 - 1))
def test_the_way_of_bytes_ranks_first_at_any_contrast(
    channels: int, data: st.DataObject, contrast: tuple[int, int], seed: int
) -> None:
    way = data.draw(st.sampled_from(TRAINED[channels]))
    pixels = pictures(channels, darkest=contrast[0], brightest=contrast[1], seed=seed)
    ranked = plausible(InputObservation.of(way.made(pixels, 1), 1))
    # Whole numbers less a whole number are whole as well: ends alone tell these apart.
    least = ranked[0][1]
    told = [each for each, cost in ranked if cost <= least + 0.15]
    assert named(way, told)
    if contrast == (0, 255):
        assert named(way, [ranked[0][0]]) or alike(ranked[0][0], way, 0.02)


@pytest.mark.parametrize("way", TRAINED[3], ids=lambda each: each.text)
def test_a_range_alone_from_black_to_white_ranks_the_true_way_first(way: Convention) -> None:
    pixels = pictures(3, darkest=0, brightest=255, seed=1)
    values = way.made(pixels, 1)
    ranked = rank(
        InputObservation.of(pixels, 1), InputObservation.within(float(values.min()), float(values.max()), 3)
    )
    assert ranked[0].given.name == "x"
    assert alike(ranked[0].wanted, way, 0.008) or ranked[0].wanted.formula == way.formula


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(TRAINED[3]), CONTRASTS, NEARLY_FULL, st.integers(0, 2**32 - 1))
def test_other_pictures_than_those_of_calibration_keep_the_true_way_in_the_list(
    way: Convention, fed: tuple[int, int], calibrated: tuple[int, int], seed: int
) -> None:
    pixels = pictures(3, darkest=fed[0], brightest=fed[1], seed=seed)
    values = way.made(pictures(3, darkest=calibrated[0], brightest=calibrated[1], seed=seed + 1), 1)
    theirs = InputObservation.within(float(values.min()), float(values.max()), 3)
    assert named(way, wanted(leading(rank(InputObservation.of(pixels, 1), theirs))))


@given(st.sampled_from(TRAINED[3]), CONTRASTS, st.integers(0, 2**32 - 1))
def test_what_is_made_in_one_way_may_always_be_so(way: Convention, contrast: tuple[int, int], seed: int) -> None:
    values = way.made(pictures(3, darkest=contrast[0], brightest=contrast[1], seed=seed), 1)
    seen = InputObservation.of(values, 1)
    ranked = rank(seen, InputObservation.within(float(values.min()), float(values.max()), 3))
    assert any(each.same or alike(each.given, each.wanted, 0.02) for each in leading(ranked))


def test_what_is_beyond_black_and_white_is_ruled_out() -> None:
    names = {each.name for each, _ in plausible(InputObservation.within(-2.118, 2.64, 3))}
    assert "ImageNet" in names
    assert not {"x / 127.5 - 1", "x / 255", "CLIP", "CIFAR-10", "CIFAR-100", "x"} & names
    assert plausible(InputObservation.within(-30.0, 1e4, 3)) == []


def test_a_symmetric_grid_does_not_tell_one_side_from_both() -> None:
    def mirrored(low: float, high: float) -> tuple[float, float]:
        most = max(-low, high)
        return -most, most

    pixels = InputObservation.of(pictures(3, darkest=0, brightest=255, seed=2), 1)
    told = {
        str(each.wanted.formula) for each in leading(rank(pixels, InputObservation.within(-1.0, 1.0, 3, mirrored)))
    }
    assert {"x / 255", "x / 127.5 - 1"} <= told


def test_a_change_makes_what_the_other_way_would_have_made() -> None:
    given_way, wanted_way = TRAINED[3][0], TRAINED[3][2]
    pixels = pictures(3, darkest=0, brightest=255, seed=3)
    changed = Hypothesis(given_way, wanted_way, 0.0).change(given_way.made(pixels, 1), 1)
    np.testing.assert_allclose(changed, wanted_way.made(pixels, 1), atol=1e-9)
