"""The outlier table for people and programs: one page for terminal and files."""

import csv
import io
from dataclasses import replace

from roundoff.messages.catalogue import Language
from roundoff.messages.message import message
from roundoff.pages.blocks import View
from roundoff.report.pages import run_files
from roundoff.studies.distribution.page import OUTLIERS_CSV_START, outliers_page
from roundoff.studies.distribution.result import OutlierReport
from tests import inspections
from tests.inspections import HOSTILE
from tests.pages.shown import shown
from tests.report.documents import empty_document


def text_of(
    report: OutlierReport, width: int = 100, *, view: View | None = None, language: Language = "en"
) -> str:
    return shown(outliers_page(empty_document(outliers=report), view or View()), width, language=language)


def test_those_with_most_outliers_come_first() -> None:
    report = inspections.outlier_report("a", "b", "c")
    text = " ".join(text_of(report).split())
    assert text.startswith("2 of 3 tensors have channels of level 3 or more (2 samples); worst is c with 5.5 %")
    assert "level = log2(largest of the tensor / largest of the channel)" in text
    lines = [line.split() for line in text_of(report).splitlines()]
    order = [line[1] for line in lines if line and line[0] in "012" and "Conv" in line]
    assert order == ["c", "b", "a"]
    assert "1 tensor without a row: ids (its values are of the type int64)" in text
    cut = text_of(report, view=View(2, "order"))
    assert "1 row that matters less is left out; --top all shows them" in cut
    assert cut.index("1 b ") < cut.index("2 c ")


def test_fused_tensors_are_not_counted() -> None:
    report = inspections.outlier_report("a", "b", "c")
    fused = replace(report, rows=(*report.rows[:2], replace(report.rows[2], quantized="fused")))
    text = " ".join(text_of(fused).split())
    assert text.startswith("1 of 2 tensors has channels of level 3 or more (2 samples); worst is b with 2 %")
    assert "; not counted: 1 fused tensor, never stored" in text
    assert text.index(" b Conv") < text.index(" a Conv") < text.index(" c Conv")
    quiet = replace(report, rows=report.rows[:1], skipped={})
    assert text_of(quiet, 80).startswith("No channel is of level 3 or more in 1 tensor (2 samples)")


def test_reasons_are_told_in_the_language_of_the_terminal() -> None:
    reason = message("outliers.reason_type", dtype="int64")
    report = replace(inspections.outlier_report("a"), skipped={"ids": reason})
    assert "without a row: ids (its values are of the type int64)" in " ".join(text_of(report).split())
    assert "其数值类型为 int64" in text_of(report, language="zh")


def test_everything_as_csv() -> None:
    text = run_files(empty_document(outliers=inspections.outlier_report("a", HOSTILE)))["outliers.csv"]
    assert text.startswith(OUTLIERS_CSV_START)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert (rows[1]["level_3"], rows[1]["level_3_ratio"], rows[1]["sparse_ratio"]) == ("4", "0.02", "0.005")


def test_hostile_names_are_shown_as_they_are() -> None:
    for width in (80, 160):
        assert "[red]" in text_of(inspections.outlier_report(HOSTILE), width).replace("\n", "")
