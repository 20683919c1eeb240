"""The page of levers is what the code has."""

from pathlib import Path

from benchmarks.levers import levers, table

from roundoff.quantize.steps import correction_names, transform_names
from roundoff.quantize.targets.files import load_target

PAGE = Path(__file__).parents[1] / "docs/reference/levers.md"


def test_the_table_of_the_page_is_that_of_the_code() -> None:
    assert table() in PAGE.read_text("utf-8"), (
        "python -m benchmarks levers --table --page docs/reference/levers.md"
    )


def test_no_step_is_missing_and_none_is_offered_to_a_chip_that_lacks_it() -> None:
    by_name = {each.name: each for each in levers()}
    assert {*transform_names(), *correction_names()} <= by_name.keys()
    # Its activations have 8 bits, and only these.
    narrow = load_target("litert")
    assert set(narrow.activations) == {"s8"}
    assert not by_name["wide stream"].there(narrow)
    assert by_name["wide stream"].there(load_target("generic-int8"))
    # Weights alone are codes: there is no activation to clamp a mask or move outliers for.
    only = load_target("weights-int4")
    assert not any(by_name[name].there(only) for name in ("clamp_mask", "smooth", "bias_correct", "u16, s16"))
    assert by_name["weight=s8"].there(only)
