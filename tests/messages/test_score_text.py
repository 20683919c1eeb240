"""Scores as text."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.messages.numbers import (
    BLOCKS,
    PLAIN_BLOCKS,
    decibels,
    decibels_text,
    decibels_with_unit,
    named_score,
    percent_digits,
    score_heading,
    score_text,
    share_text,
    text_curve,
)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("cosine", 1.0, "1.00000"),
        ("cosine", 0.9999999, "0.99999"),
        ("cosine", -0.5, "-0.50000"),
        ("cosine", 1 - 1e-15, "0.99999"),
        ("same_top1", sum([0.01] * 29), "29.0 %"),
        ("same_top1", 0.28999999999999998, "29.0 %"),
        ("same_top1", 0.99999, "99.9 %"),
        ("cosine", 0.999707, "0.99971"),
        ("cosine", 0.999994, "0.99999"),
        ("cosine", 0.999996, "0.99999"),
        ("cosine", -0.999996, "-1.00000"),
        ("sqnr_db", 12.345, "12.3"),
        ("sqnr_db", math.inf, "exact"),
        ("mse", 0.00012345, "0.0001234"),
        ("accuracy", 0.78788, "78.8 %"),
        ("accuracy", 0.999999, "99.9 %"),
        ("mine", 1234567.0, "1.235e+06"),
        ("mean_cosine", 0.9999999, "0.99999"),
        ("mean_sqnr_db", 31.26, "31.3"),
        ("mine", 0.999999, "0.99999"),
        ("mine", 1.0, "1"),
        ("cosine", None, ""),
    ],
)
def test_as_many_digits_as_mean_something(name: str, value: float | None, text: str) -> None:
    assert score_text(name, value) == text


@given(st.floats(-1, 1, exclude_max=True))
def test_scores_near_one_are_rounded_and_never_shown_as_one(value: float) -> None:
    shown = float(score_text("cosine", value))
    assert shown < 1
    assert abs(shown - value) <= 0.5e-5 * (1 + 1e-9) or value > 1 - 0.5e-5


def test_what_has_no_noise_is_exact_everywhere() -> None:
    for shown in (decibels(math.inf), decibels_with_unit(math.inf), decibels_text(math.inf)):
        assert shown == "exact"
    assert (decibels(149.94), decibels_with_unit(149.94), decibels_text(149.94)) == (
        "149.9",
        "149.9 dB",
        "149.9 dB",
    )
    assert (decibels(80.0, exact=80.0), decibels(79.9, exact=80.0), decibels(None)) == ("exact", "79.9", "")
    assert named_score("sqnr_db", math.inf) == "SQNR exact"
    assert (named_score("mean_sqnr_db", 33.16), named_score("cosine", 1.0)) == (
        "mean SQNR 33.2 dB",
        "cosine 1.00000",
    )
    assert [score_heading(name) for name in ("sqnr_db", "mean_sqnr_db", "same_top1", "mse")] == [
        "SQNR dB", "mean SQNR dB", "top-1 agreement", "MSE",
    ]  # fmt: skip
    assert (percent_digits(0.99999, 1), percent_digits(1.0, 1), percent_digits(0.5, 0)) == ("99.9", "100.0", "50")


def test_all_is_only_what_is_all() -> None:
    assert (share_text(1.0), share_text(0.99999), share_text(0.9029)) == ("100.00 %", "99.99 %", "90.29 %")


def test_a_curve_is_high_where_it_is_good() -> None:
    values = [1.0, 0.5, None, 0.0]
    assert text_curve(values, (0.0, 1.0), width=10) == "█▅ ▁"
    assert text_curve(values, (0.0, 1.0), width=10, higher_is_better=False) == "▁▅ █"
    assert text_curve([1.0, 0.0], (0.0, 1.0), width=10, blocks=PLAIN_BLOCKS) == "#_"


def test_many_values_show_the_worst_of_those_at_a_place() -> None:
    values = [1.0] * 500
    values[251] = 0.0
    line = text_curve(values, (0.0, 1.0), width=20)
    assert line == "█" * 10 + "▁" + "█" * 9
    assert text_curve([0.0] * 40 + [9.0], (0.0, 9.0), width=4, higher_is_better=False) == "███▁"


@given(st.lists(st.none() | st.floats(allow_nan=False), max_size=60), st.integers(1, 30))
def test_a_curve_has_a_character_for_each_place(values: list[float | None], width: int) -> None:
    finite = [value for value in values if value is not None and math.isfinite(value)]
    limits = (min(finite), max(finite)) if finite else (0.0, 0.0)
    line = text_curve(values, limits, width=width)
    assert len(line) == min(width, len(values))
    assert set(line) <= {*BLOCKS, " "}
