"""Outputs that hardly vary any more: lost beside a large mean, or few values by nature."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from roundoff.core.tensors import Array
from roundoff.measure.verdicts import ValueTally

SAMPLES = 32
Rng = np.random.Generator


def tally(ours: Array, theirs: Array) -> ValueTally:
    """One output of all samples, along the first axis."""
    found = ValueTally()
    for pair in zip(ours.astype(np.float32), theirs.astype(np.float32), strict=True):
        found.add(*pair)
    return found


def grid(values: Array, low: float, high: float, bits: int = 8) -> Array:
    step = (high - low) / (2**bits - 1)
    return np.asarray(np.clip(np.round((values - low) / step), 0, 2**bits - 1) * step + low)


def sqnr(ours: Array, theirs: Array) -> float:
    return 10 * math.log10(float(np.square(ours).sum() / np.square(ours - theirs).sum()))


def beside_mean(rng: Rng, width: int = 100) -> Array:
    return rng.normal(10, 0.2, (SAMPLES, 1, width)) + 0.1 * np.arange(SAMPLES)[:, None, None]


def coarse(rng: Rng) -> tuple[Array, Array]:
    ours = rng.normal(10, 0.2, (SAMPLES, 1, 100))
    return ours, grid(ours, 0, 120)


def constants_of_rows(rng: Rng, count: int) -> tuple[Array, Array]:
    ours = beside_mean(rng)
    return ours, ours.mean(axis=2, keepdims=True) + 0.01 * (np.arange(100) % count)


def ties(rng: Rng) -> tuple[Array, Array]:
    ours = rng.normal(5, 0.3, (SAMPLES, 1, 10))
    return ours, np.broadcast_to(5 + 0.03 * np.arange(SAMPLES)[:, None, None], ours.shape)


def one_number(rng: Rng) -> tuple[Array, Array]:
    ours = rng.normal(10, 0.5, (SAMPLES, 1, 1))
    return ours, np.full(ours.shape, 10.0)


def saturated(rng: Rng) -> tuple[Array, Array]:
    ours = 1 / (1 + np.exp(-rng.normal(4, 1, (SAMPLES, 1, 200))))
    return ours, np.where(np.arange(200) % 2, 0.98, 0.976) + 0 * ours


def one_answer(rng: Rng) -> tuple[Array, Array]:
    means = np.linspace(-8, 8, 100)
    return means + rng.normal(0, 0.3, (SAMPLES, 1, 100)), np.broadcast_to(means, (SAMPLES, 1, 100))


@pytest.mark.parametrize(
    ("made", "left"),
    [
        (coarse, (np.unique(coarse(np.random.default_rng(1))[0].astype(np.float32)).size, 4)),
        (lambda rng: constants_of_rows(rng, 1), (100, 1)),
        (lambda rng: constants_of_rows(rng, 2), (100, 2)),
        (ties, (10, 1)),
        (one_number, (SAMPLES, 1)),
        (saturated, (SAMPLES, 1)),
        (one_answer, (SAMPLES, 1)),
    ],
    ids=["coarse", "a constant a row", "two a row", "ties", "one number", "saturated", "one answer"],
)
def test_what_hardly_varies_any_more_is_lost_though_its_energy_is_kept(
    made: Callable[[Rng], tuple[Array, Array]], left: tuple[int, int]
) -> None:
    ours, theirs = made(np.random.default_rng(1))
    assert sqnr(ours, theirs) > 17
    assert tally(ours, theirs).lost == left
    # In codes of its own it keeps them.
    assert tally(ours, grid(ours, ours.min(), ours.max())).lost is None


def by_nature() -> dict[str, tuple[Array, Array]]:
    rng = np.random.default_rng(2)
    normal = rng.normal(0, 1, (SAMPLES, 1, 100))
    classes = np.eye(100)[rng.integers(0, 100, (SAMPLES, 20))]
    mask = (rng.random((SAMPLES, 1, 100)) < 0.5).astype(float)
    confident = 1 - np.abs(rng.normal(0, 0.005, (SAMPLES, 1, 300)))
    exact = np.clip(50 * normal / 6 + 0.5, 0, 1)
    depth = 2.5 * (1 + np.arange(SAMPLES))[:, None, None] + rng.uniform(0, 0.1, (SAMPLES, 1, 400))
    return {
        "one-hot": (classes, classes),
        "sign": (np.tanh(50 * normal), np.sign(normal)),
        "Round": (np.round(normal), np.round(normal)),
        "Hardsigmoid": (exact, np.clip(grid(50 * normal, -200, 200) / 6 + 0.5, 0, 1)),
        "mask with jitter": (1e4 * mask + 1e-3 * normal, 1e4 * mask),
        "probabilities near 1": (confident, grid(confident, 0, 1)),
        "one of them": (confident[:, :, :1], grid(confident[:, :, :1], 0, 1)),
        "alike within a picture": (depth, grid(depth, 0, 80)),
        "number of few samples": (depth[:12, :, :1], grid(depth[:12, :, :1], 0, 100)),
        "no answer depends on the input": (0 * normal + normal[:1], 0 * normal + normal[:1] + 0.01),
        "answers within a step": (normal[:1] + 0.004 * normal, 0 * normal + normal[:1]),
        "few samples": (normal[:2, :, :3], 0 * normal[:2, :, :3]),
    }


@pytest.mark.parametrize("name", by_nature())
def test_what_has_few_values_by_nature_is_not_accused(name: str) -> None:
    assert tally(*by_nature()[name]).lost is None


def test_variation_over_the_error_is_that_around_the_mean() -> None:
    ours, theirs = coarse(np.random.default_rng(1))
    error = np.square(ours - theirs).sum()
    expected = 10 * math.log10(float(np.square(ours - ours.mean()).sum() / error))
    assert tally(ours, theirs).variation_db == pytest.approx(expected, abs=1e-3)
    ours, theirs = constants_of_rows(np.random.default_rng(1), 2)
    within = np.square(ours - ours.mean(axis=(1, 2), keepdims=True)).sum()
    expected = 10 * math.log10(float(within / np.square(ours - theirs).sum()))
    assert tally(ours, theirs).variation_db == pytest.approx(expected, abs=1e-3)


def test_codes_begin_at_zero_so_that_what_varies_little_beside_an_offset_is_not_lost() -> None:
    kelvin = np.random.default_rng(5).normal(290, 0.7, (SAMPLES, 1, 256))
    # bfloat16 keeps 8 bits of a number: steps of 2 from 256 on.
    tally = ValueTally()
    for ours, theirs in zip(kelvin, np.round(kelvin / 2) * 2, strict=True):
        tally.add(ours.astype(np.float32), theirs.astype(np.float32))
    assert sqnr(kelvin, np.round(kelvin / 2) * 2) > 50
    assert tally.lost is None


def answers(rng: Rng, rows: int, *, mean: float) -> tuple[Array, Array]:
    """Rows of ten classes beside a mean, and the same with each class in the place of the next."""
    ours = mean + rng.normal(0, 3, (rows, 1, 10))
    return ours, np.roll(ours, 1, axis=2)


def test_answers_that_agree_as_by_chance_are_lost_however_small_the_error_is() -> None:
    ours, theirs = answers(np.random.default_rng(7), 64, mean=300)
    assert sqnr(ours, theirs) > 35
    assert (ours.argmax(axis=2) == theirs.argmax(axis=2)).mean() < 0.2
    assert tally(ours, theirs).drowned


@pytest.mark.parametrize("seed", range(5))
def test_answers_that_agree_are_kept_and_so_are_few_rows_and_rows_of_one_class(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ours, theirs = answers(rng, 64, mean=300)
    shifted = ours + rng.normal(0, 4, (64, 1, 1))  # every row by its own amount: the classes stay
    assert not tally(ours, shifted).drowned
    assert not tally(ours[:12], theirs[:12]).drowned
    one = 2700 + ours + 60 * (np.arange(10) == 3)
    assert not tally(one, one + rng.normal(0, 25, (64, 1, 1))).drowned
    assert not tally(ours, ours + rng.normal(0, 1, ours.shape)).drowned
