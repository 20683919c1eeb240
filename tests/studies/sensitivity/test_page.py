"""Rankings for people and programs: one page for terminal and files."""

import csv
import io
import math
from dataclasses import replace

import pytest

from roundoff.measure.metrics import get_metric
from roundoff.messages.catalogue import Language
from roundoff.messages.message import message
from roundoff.pages.blocks import TableBlock, View
from roundoff.report.pages import run_files
from roundoff.studies.sensitivity.page import SENSITIVITY_CSV_START, sensitivity_page
from roundoff.studies.sensitivity.ranking import judge
from roundoff.studies.sensitivity.result import Effort, SensitivityReport
from tests.pages.shown import shown
from tests.report.documents import HOSTILE, empty_document
from tests.studies.sensitivity.test_sensitivity_report import ranking


def report_of(values: list[float], chances: list[float | None] | None = None) -> SensitivityReport:
    rows = tuple(ranking(values, chances or [0.001] * (len(values) - 1) + [None]))
    return SensitivityReport(
        reference="m.onnx",
        mode="alone",
        metrics=("sqnr_db",),
        outputs=("y",),
        samples=("a", "b"),
        rankings={"node": rows},
        verdicts=(judge("node", rows, get_metric("sqnr_db"), None),),
        quantized=None,
        unreached=(),
        complete=True,
        effort=Effort(1, 1, "plain", float("inf"), len(rows), len(rows), 0, 2),
    )


def text_of(
    report: SensitivityReport, width: int = 80, *, most: int | None = None, language: Language = "en"
) -> str:
    return shown(sensitivity_page(empty_document(sensitivity=report), View(most)), width, language=language)


@pytest.mark.parametrize(
    ("behind", "words"),
    [
        ([30.0, 31.0, 32.0, 33.0], ""),
        ([14.0, 16.0, 20.0, 24.0], "beware 1 other node is below 15 dB alone: what stands out is not all"),
        ([7.0, 8.0, 14.9, 15.0], "beware 3 other nodes are below 15 dB alone: what stands out is not all"),
    ],
)
def test_others_that_spoil_the_outputs_too_are_told(behind: list[float], words: str) -> None:
    text = " ".join(text_of(report_of([-2.0, -1.0, *behind]), 200).split())
    assert text.startswith("2 STAND OUT of 6 nodes, each quantized alone (4 samples)")
    assert (words in text) if words else ("beware" not in text)


def test_what_is_tied_is_marked_and_explained() -> None:
    text = text_of(report_of([20.0, 20.5, 21.0, 22.0], [0.4, None, 0.001, None]))
    assert text.startswith("2 TIED of 4 nodes in the lead: their differences are not significant")
    assert ["1", "~", "n0", "20.0"] in [line.split() for line in text.splitlines()]
    assert "~ the difference to the next row is not significant" in text
    assert "? not known whether it differs from the next row" in text
    # The last row has no next one.
    assert "4   n3" in text


def test_rows_that_are_left_out_are_counted_and_stay_in_the_file() -> None:
    report = report_of([float(value) for value in range(10, 2010)])
    text = text_of(report, most=10)
    assert "1990 rows that matter less are left out; --top all shows them" in text
    assert len(text.splitlines()) < 30
    table = run_files(empty_document(sensitivity=report))["sensitivity.csv"]
    assert table.startswith(SENSITIVITY_CSV_START)
    assert len(table.splitlines()) == 2001


def test_everything_as_csv() -> None:
    document = empty_document(sensitivity=report_of([20.0, math.inf]))
    rows = list(csv.DictReader(io.StringIO(run_files(document)["sensitivity.csv"])))
    assert [row["name"] for row in rows] == ["n0", "n1"]
    assert [row["sqnr_db"] for row in rows] == ["20.0", "inf"]
    assert [row["told_apart_from_next"] for row in rows] == ["yes", "unknown"]
    assert [row["sqnr_db at y"] for row in rows] == ["20.0", "inf"]
    assert (rows[0]["mean_sqnr_db"], rows[0]["mean_sqnr_db low"]) == ("", "")


def test_no_score_and_no_loss_are_said() -> None:
    text = text_of(report_of([math.nan, math.nan], [None, None]))
    assert text.startswith("NO SCORE of 2 nodes: the outputs hold nothing that can be compared")
    assert ["1", "?", "n0", "no", "score"] in [line.split() for line in text.splitlines()]
    text = text_of(report_of([math.inf, math.inf], [1.0, None]))
    assert text.startswith("NOTHING LOST: no node changes the outputs")
    assert "exact" in text


def test_nothing_measured() -> None:
    report = replace(report_of([20.0]), rankings={}, verdicts=())
    assert text_of(report).startswith("NOTHING MEASURED (no samples)")


def test_chinese_keeps_names_and_numbers() -> None:
    report = report_of([-2.0, -1.0, 30.0, 31.0, 32.0, 33.0])
    note = message("sensitivity.note_unreached", count=1, names="""'conv (3x3); it"s odd'""")
    text = text_of(replace(report, notes=(note,)), language="zh")
    assert text.startswith("2 个明显突出")
    assert """conv (3x3); it"s odd""" in text


def test_hostile_names_stay_what_they_are() -> None:
    report = report_of([20.0, 40.0])
    rows = tuple(replace(row, name=HOSTILE) for row in report.rankings["node"])
    page = sensitivity_page(empty_document(sensitivity=replace(report, rankings={"node": rows})))
    assert page is not None
    tables = [block for block in page.blocks if isinstance(block, TableBlock)]
    assert all(HOSTILE in row for table in tables for row in table.rows)
    assert "\x1b" not in shown(page)
