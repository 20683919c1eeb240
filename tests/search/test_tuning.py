"""A search in words, at 80 columns."""

import io
import math
from dataclasses import replace

import pytest
from rich.console import Console

from roundoff.core.document import SCHEMA, Environment, RunDocument
from roundoff.core.plan import Precision, Recipe, Rule
from roundoff.messages.message import verbatim
from roundoff.pages.terminal import terminal_page
from roundoff.report.pages import run_files
from roundoff.search.page import trial_line, tuning_page
from roundoff.search.result import ForcedNode, HoldOut, Remaining, Trial, Tuning

RULE = Rule("node", ("[conv]/with a long name/of its own",), Precision("float", "float"))
PLAIN = Trial(Recipe(), verbatim("plain"), False, 0.5, 0.4, 1.0, 32, whole=False, number=1, seconds=1.25)
BEST = Trial(
    Recipe(rules=(RULE,)),
    verbatim("1 node at float: [conv]"),
    True,
    0.895,
    0.005,
    1.5,
    500,
    whole=True,
    number=2,
    seconds=2.0,
)
LOST = Trial(
    Recipe(method="x"),
    verbatim("ranges by x: impossible, no"),
    False,
    -math.inf,
    math.inf,
    math.inf,
    0,
    whole=True,
    number=3,
)
FOUND = Tuning(
    reference="m.onnx",
    target="t",
    strategy="greedy",
    metric="accuracy",
    higher_is_better=True,
    float_score=0.9,
    goal=verbatim("within 1 % of float"),
    goal_value=0.891,
    verdict="met",
    answer=2,
    trials=(PLAIN, BEST, LOST),
    samples=500,
    interval=(-0.01, 0.02),
    minimal=True,
    remaining=Remaining(9, 10, 2, 900, 1000, 250, 1000),
    dragged=(ForcedNode("relu", "u16", verbatim("shares a tensor")),),
    evaluations=2,
    sample_runs=1032,
    ranking_runs=88,
    holdout=HoldOut(200, 0.91, 0.9, (0.0, 0.02)),
)


ENVIRONMENT = Environment("0.1.0", "3.11", {}, "host", verbatim("float64"), 0.5)


def document(found: Tuning) -> RunDocument:
    return RunDocument(schema=SCHEMA, command=(), inputs=(), tuning=found, environment=ENVIRONMENT)


def text(found: Tuning) -> str:
    page = tuning_page(document(found))
    assert page is not None
    console = Console(file=io.StringIO(), width=80)
    console.print(terminal_page(page))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_a_goal_that_is_met() -> None:
    page = text(FOUND)
    assert page.startswith("MET: 1 node at float: [conv]")
    for words in (
        "accuracy within 1 % of float, 89.1 %",
        "89.5 %, float 90.0 %; 500 samples, loss -1 to 2 points (95 %)",
        "90.0 %, float 91.0 %; 200 other samples",
        "9 of 10 nodes, 2 of them wide; 90.0 % of products",
        "1.5 times that of the plain quantized model",
        "relu (u16)",
        "500 samples are too few to tell whether others lose more than",
        "without any one change that costs something the goal is missed",
        "greedy, 3 trials, 2 whole evaluations; 1032 sample runs, and",
    ):
        assert words in page, page
    assert max(map(len, page.splitlines())) <= 80


def test_the_headline_says_what_other_samples_say() -> None:
    held = HoldOut(200, 0.91, 0.88, (0.01, 0.05), met=False)
    page = text(replace(FOUND, holdout=held))
    assert page.startswith("MET, but not on other samples: 1 node")
    assert "that is less than the goal, within 1 % of float, asks for" in page
    page = text(replace(FOUND, holdout=replace(held, score=0.91, met=True)))
    assert page.startswith("MET, on other samples too: 1 node")
    assert "asks for" not in page


def test_a_trial_is_told_in_a_line() -> None:
    assert trial_line(BEST, BEST, "accuracy") == "trial 2: 1 node at float: [conv]: 89.5 %, met"
    part = replace(BEST, whole=False, samples=32, met=False)
    assert trial_line(part, part, "accuracy").endswith(": 89.5 %, estimated from 32 samples")
    long = replace(LOST, change=verbatim("x" * 60))
    line = trial_line(long, BEST, "accuracy")
    assert line.endswith("; best 89.5 %, trial 2")
    assert len(line) <= 80


def test_a_goal_that_is_not_met_says_how_far_it_is() -> None:
    found = replace(
        FOUND,
        verdict="best_effort",
        answer=1,
        minimal=None,
        stopped=verbatim("when the time was over"),
        holdout=None,
    )
    page = " ".join(text(found).split())
    assert page.startswith(
        "BEST EFFORT: nothing tried meets the goal, accuracy within 1 % of float, 39.10 points short"
    )
    assert "early, when the time was over" in page
    assert "best is plain" in page


def test_nothing_to_do() -> None:
    page = text(replace(FOUND, verdict="nothing_to_do", answer=1))
    assert page.startswith("NOTHING TO DO: the plain quantized model meets the goal")
    assert "times that of" not in page
    sure = text(replace(FOUND, interval=(0.0, 0.005)))
    assert "too few" not in sure


def test_every_trial_has_a_line() -> None:
    page = text(replace(FOUND, front=(1, 2)))
    assert max(map(len, page.splitlines())) <= 80
    assert "<- answer front" in page
    assert page.count("impossible") == 1
    rows = run_files(document(FOUND))["trials.csv"].splitlines()
    assert len(rows) == 4
    assert rows[2] == "2,1 node at float: [conv],yes,0.895,0.005,1.5,500,yes,2.000,yes"


@pytest.mark.parametrize(("metric", "words"), [("sqnr_db", "0.9 dB, float 0.9 dB"), ("mine", "0.895, float 0.9")])
def test_other_metrics_have_their_own_units(metric: str, words: str) -> None:
    assert words in text(replace(FOUND, metric=metric))
