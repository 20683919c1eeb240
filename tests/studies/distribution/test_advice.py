"""What is said of a distribution."""

from dataclasses import replace

from roundoff.studies.distribution.advice import advise
from roundoff.studies.distribution.result import QuantizerFacts, ValueSummary

QUANTILES = {"0.001": -0.9, "0.01": -0.8, "0.25": -0.3, "0.5": 0.0, "0.75": 0.3, "0.99": 0.8, "0.999": 0.9}
VALUES = ValueSummary(
    count=10_000, nonfinite=0, zeros=0, minimum=-1.0, maximum=1.0, mean=0.0, std=0.3, skewness=0.0,
    excess_kurtosis=0.0, quantiles=QUANTILES, edge_share=0.001, central_range=0.95, bins=None,
)  # fmt: skip
FACTS = QuantizerFacts(
    name="q", dtype="s8", axis=None, scales=(0.0078, 0.0078), scale_ratio=1.0, zero_point=0, low=-1.0, high=0.992,
    widest=(-1.0, 0.992), clipped_low=0.0, clipped_high=0.0, zeroed=0.01, levels_used=230, levels=256,
    entropy_bits=7.0, sqnr_db=40.0,
)  # fmt: skip


def said(values: ValueSummary = VALUES, facts: QuantizerFacts | None = FACTS, *peaks: float) -> tuple[bool, str]:
    suits, advice = advise(values, facts, peaks or (0.0,))
    return suits, str(advice)


def test_nothing_to_complain_about() -> None:
    assert said() == (True, "one peak, nothing clipped, 230 of 256 levels used: suits quantization")
    assert said(facts=None) == (True, "one peak")
    rarely = replace(FACTS, clipped_high=0.0001)
    assert said(facts=rarely)[1].startswith("one peak, hardly anything clipped")
    assert said(facts=replace(FACTS, dtype="s32")) == (True, "one peak")


def test_clipping() -> None:
    good, text = said(facts=replace(FACTS, clipped_low=0.02, clipped_high=0.01))
    assert not good
    assert text == "3 % of the values are clipped: calibrate on data like this, with minmax or a higher percentile"


def test_outliers_stretch_the_range() -> None:
    narrow = replace(VALUES, quantiles={**QUANTILES, "0.001": -0.05, "0.999": 0.04})
    good, text = said(narrow)
    assert not good
    assert text.startswith("99.8 % of the values take 4.5 % of the codes: a few outliers stretch its range")


def test_a_range_made_for_other_values() -> None:
    wide = replace(FACTS, low=-10.0, high=9.92)
    good, text = said(facts=wide)
    assert not good
    assert "its range is 10 times that of the values; calibrate on data like this" in text


def test_half_of_the_codes_are_wasted() -> None:
    positive = replace(VALUES, minimum=0.0, quantiles={**QUANTILES, "0.001": 0.0})
    assert said(positive)[1].startswith("no value is negative, yet half of the codes are (230 of 256 levels used)")
    negative = replace(VALUES, maximum=-0.1, quantiles={**QUANTILES, "0.999": -0.1})
    assert said(negative)[1].startswith("no value is positive, yet half of the codes are")
    unsigned = replace(FACTS, dtype="u8", low=0.0, high=1.0)
    assert said(positive, unsigned)[0]


def test_few_levels() -> None:
    assert said(facts=replace(FACTS, levels_used=9)) == (False, "only 9 of 256 levels used")
    assert said(replace(VALUES, count=20), replace(FACTS, levels_used=9))[0]
    per_channel = replace(FACTS, axis=0, levels_used=200)
    narrow = replace(VALUES, quantiles={**QUANTILES, "0.001": -0.05, "0.999": 0.04})
    assert said(narrow, per_channel)[0]


def test_small_values_are_lost_to_a_step_that_large_ones_set() -> None:
    good, text = said(facts=replace(FACTS, zeroed=0.4))
    assert not good
    assert text.startswith("40 % of the values other than zero become zero: large ones set the step")
    assert said(facts=replace(FACTS, zeroed=0.4, dtype="s4", levels=16, levels_used=16))[0]


def test_channels_of_very_different_size_are_remarked_upon() -> None:
    good, text = said(facts=replace(FACTS, axis=0, scale_ratio=52.7))
    assert good
    assert text.endswith("suits quantization; its widest channel has 53 times the range of the median one: see "
                         "'roundoff channels'")  # fmt: skip


def test_several_peaks() -> None:
    good, text = said(VALUES, FACTS, -0.5, 0.0, 0.25, 0.5)
    assert not good
    assert text == "4 peaks (near -0.5, 0, 0.25 ...) instead of one: equal steps suit it less"


def test_constants_and_damage() -> None:
    zero = replace(VALUES, minimum=0.0, maximum=0.0)
    assert said(zero) == (False, "all values are zero")
    assert said(replace(VALUES, minimum=3.0, maximum=3.0)) == (False, "all values are 3")
    damaged = replace(VALUES, nonfinite=1)
    assert said(damaged)[1] == "1 value of 10000 NaN or infinite: find where they begin before anything else"
    nothing = replace(VALUES, nonfinite=10_000, minimum=None, maximum=None)
    assert said(nothing)[1].startswith("10000 values of 10000 NaN or infinite")
