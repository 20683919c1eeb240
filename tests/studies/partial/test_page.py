"""A sweep for people."""

import csv
import io
import re
from dataclasses import replace
from decimal import ROUND_HALF_EVEN, Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.messages.message import verbatim
from roundoff.report.pages import run_files
from roundoff.studies.partial.page import partial_page
from roundoff.studies.partial.result import PartialQuantization, ScoreGoal
from tests.pages.shown import shown
from tests.report.curves import sweep_of, without_goal
from tests.report.documents import empty_document


def text_of(found: PartialQuantization) -> str:
    return shown(partial_page(empty_document(partial=found)))


def test_the_whole_page() -> None:
    assert text_of(replace(sweep_of(), notes=(verbatim("something"),))) == (
        "TOP 2 in float reach the goal of 99 % of float, accuracy 78.0 %\n"
        "  quantized      accuracy 71.1 % (90.3 % of float); float 78.8 %; 50 samples\n"
        "  top 2          accuracy 78.0 % (99.0 % of float)\n"
        "  these are      a/conv, b/conv\n"
        "  levels off     at 2, accuracy 78.0 %: 95 % of what any of 3 bring\n"
        "  not monotonic  1 step down, the largest by 0.1 % at 3\n"
        "  order          as given\n"
        "\n"
        "top added           op   accuracy of float  cosine\n"
        "  0 (all quantized)        71.1 %   90.3 % 0.90000\n"
        "  1 a/conv          Conv   73.0 %   92.7 % 0.91000\n"
        "  2 b/conv          Conv   78.0 %   99.0 % 0.92000 <- goal\n"
        "  3 c/conv          Conv   77.9 %   98.9 % 0.93000\n"
        "note: something"
    )


@settings(max_examples=10)
@given(st.lists(st.floats(0.5, 1, exclude_max=True), min_size=4, max_size=4))
def test_figures_are_rounded_to_the_nearest_and_never_up_to_one(values: list[float]) -> None:
    """By decimal arithmetic on the very values; what is closer to 1 than five digits show is not called 1."""
    found = sweep_of()
    steps = tuple(replace(step, scores={"cosine": value}) for step, value in zip(found.steps, values, strict=True))
    lines = text_of(replace(found, steps=steps)).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("top added"))
    for line, value in zip(lines[start + 1 :], values, strict=False):
        nearest = Decimal(value).quantize(Decimal("0.00001"), ROUND_HALF_EVEN)
        assert re.findall(r"\d\.\d{5}", line) == [str(min(nearest, Decimal("0.99999")))]


def test_other_verdicts() -> None:
    found = sweep_of()
    text = text_of(without_goal(found))
    assert text.startswith("NOT REACHED: with up to 3 in float none reaches the goal of accuracy 90.0 %")
    assert "best are       a/conv, b/conv" in text
    assert "next --top all tries the rest; where it takes many, 16 bits (--to s16)" in " ".join(text.split())
    tried = replace(without_goal(found), to="s16", subjects=found.subjects[:3])
    assert "next           where it takes many, another calibration" in text_of(tried)
    text = text_of(replace(found, knee=0, goal=ScoreGoal("70%", 0.55), levels_off=None, drops=()))
    assert text.startswith("NOTHING TO DO: fully quantized it reaches the goal of 70 % of float")
    assert "nothing is gained by any of them" in text
    assert "no step makes it worse" in text
    assert "these are" not in text
    baked = replace(found, knee=0, goal=ScoreGoal("70%", 0.55), exact_weights=True)
    text = " ".join(text_of(baked).split())
    assert text.startswith(
        "INCONCLUSIVE: fully quantized it reaches the goal of 70 % of float, accuracy 55.0 %, but"
    )
    assert "the weights of this float are quantized: give FLOAT" in text
    assert text_of(replace(baked, goal=ScoreGoal("0.7", 0.7))).startswith("NOTHING TO DO")
    text = text_of(replace(found, to="s16", knee=1, levels_off=3))
    assert text.startswith("TOP 1 at 16 bits (s16) reaches the goal")
    assert "not before 3, the last that was tried" in text
    noise = replace(found, score="sqnr_db", float_score=float("inf"), goal=ScoreGoal("20", 20.0))
    steps = tuple(replace(step, score=10.0 * step.count, share=None) for step in noise.steps)
    text = text_of(replace(noise, steps=steps, drops=()))
    assert text.startswith("TOP 2 in float reach the goal of SQNR 20.0 dB")
    assert "quantized   SQNR 0.0 dB; 50 samples" in text


def test_all_of_it_as_csv() -> None:
    rows = list(csv.DictReader(io.StringIO(run_files(empty_document(partial=sweep_of()))["partial.csv"])))
    assert [row["subject"] for row in rows] == ["", "a/conv", "b/conv", "c/conv"]
    assert [row["reaches_goal"] for row in rows] == ["no", "no", "yes", "no"]
    assert float(rows[2]["accuracy"]) == 0.78004
    assert float(rows[2]["of_float"]) == 0.78004 / 0.78788
    assert float(rows[2]["cosine"]) == 0.92
    assert rows[2]["quantizers"] == "b/conv"
