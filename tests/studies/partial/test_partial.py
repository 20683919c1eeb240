"""A sweep for people."""

import csv
import io
from dataclasses import replace

from roundoff.studies.partial.result import Goal
from roundoff.studies.partial.terminal import partial_csv, partial_table, partial_verdict
from tests.report.curves import sweep_of, without_goal
from tests.studies.accumulate.test_report_accumulation import text_of


def test_the_verdict() -> None:
    assert text_of(partial_verdict(sweep_of())) == (
        "TOP 2 in float reach the goal of 99% of float, accuracy 78.00%\n"
        "  quantized   accuracy 71.14% (90.29% of float); float 78.79%; 50 samples\n"
        "  top 2       accuracy 78.00% (99.00% of float)\n"
        "  these are   a/conv, b/conv\n"
        "  levels off  at 2, accuracy 78.00%: 95% of what any of 3 bring\n"
        "  not steady  1 step down, the largest by 0.1 % at 3\n"
        "  order       as given"
    )


def test_other_verdicts() -> None:
    found = sweep_of()
    text = text_of(partial_verdict(without_goal(found)))
    assert text.startswith("NOT REACHED: with up to 3 in float none reaches the goal of accuracy 90.00%")
    assert "best are    a/conv, b/conv" in text
    assert "next        --top all tries the rest; where it takes many, 16 bits (--to s16)" in text
    tried = replace(without_goal(found), to="s16", subjects=found.subjects[:3])
    assert "next        where it takes many, another calibration" in text_of(partial_verdict(tried))
    text = text_of(partial_verdict(replace(found, knee=0, goal=Goal("70%", 0.55), levels_off=None, drops=())))
    assert text.startswith("NOTHING TO DO: fully quantized it reaches the goal of 70% of float")
    assert "nothing is gained by any of them" in text
    assert "no step makes it worse" in text
    assert "these are" not in text
    baked = replace(found, knee=0, goal=Goal("70%", 0.55), exact_weights=True)
    text = " ".join(text_of(partial_verdict(baked)).split())
    assert text.startswith("OPEN: fully quantized it reaches the goal of 70% of float, accuracy 55.00%, but the")
    assert "the weights of this float are quantized: give FLOAT" in text
    assert text_of(partial_verdict(replace(baked, goal=Goal("0.7", 0.7)))).startswith("NOTHING TO DO")
    text = text_of(partial_verdict(replace(found, to="s16", knee=1, levels_off=3)))
    assert text.startswith("TOP 1 at 16 bits (s16) reaches the goal")
    assert "not before 3, the last that was tried" in text
    noise = replace(found, score="sqnr_db", float_score=float("inf"), goal=Goal("20", 20.0))
    steps = tuple(replace(step, score=10.0 * step.count, share=None) for step in noise.steps)
    text = text_of(partial_verdict(replace(noise, steps=steps, drops=())))
    assert text.startswith("TOP 2 in float reach the goal of sqnr 20.0 dB")
    assert "quantized   sqnr 0.0 dB; 50 samples" in text


def test_the_table() -> None:
    found = replace(sweep_of(), notes=("something",))
    assert text_of(partial_table(found)) == (
        "top added           op   accuracy of float  cosine\n"
        "  0 (all quantized)        71.14%   90.29% 0.90000\n"
        "  1 a/conv          Conv   73.00%   92.65% 0.91000\n"
        "  2 b/conv          Conv   78.00%   99.00% 0.92000 <- goal\n"
        "  3 c/conv          Conv   77.90%   98.87% 0.93000\n"
        "note: something"
    )


def test_all_of_it_as_csv() -> None:
    rows = list(csv.DictReader(io.StringIO(partial_csv(sweep_of()))))
    assert [row["subject"] for row in rows] == ["", "a/conv", "b/conv", "c/conv"]
    assert [row["reaches_goal"] for row in rows] == ["no", "no", "yes", "no"]
    assert float(rows[2]["accuracy"]) == 0.78004
    assert float(rows[2]["of_float"]) == 0.78004 / 0.78788
    assert float(rows[2]["cosine"]) == 0.92
    assert rows[2]["quantizers"] == "b/conv"
