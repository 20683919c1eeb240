"""The tables of a report as CSV."""

import csv
import io
import math

from roundoff import pages
from roundoff.diagnosis.result import Check, Diagnosis, Finding, Measure, Repair, RepairStep
from roundoff.messages.catalogue import bilingual, plain
from roundoff.messages.message import verbatim
from roundoff.pages.text_files import page_tables
from roundoff.report.pages import all_pages, run_files
from tests.report.documents import HOSTILE, empty_document

MEASURE = Measure(verbatim("SQNR"), "dB", -0.125, math.inf)
FOUND = Diagnosis(
    "m",
    verbatim("s"),
    "quantization",
    "culprits",
    verbatim("one"),
    (Finding(number=1, cause="clipping", nodes=(HOSTILE,), tensors=(), proven=True, summary=verbatim("cut off")),),
    (MEASURE,),
    checks=(Check(verbatim("=1+1"), verbatim("bad"), 0.25, ok=False),),
    repair=Repair((RepairStep(verbatim("widen"), "free", 1, MEASURE, kept=True),), (MEASURE,)),
)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_what_a_diagnosis_measured_and_repaired_is_there_in_full() -> None:
    document = empty_document(diagnosis=FOUND)
    files = run_files(document)
    found = page_tables(all_pages(document), files)
    assert not set(found) & set(files)
    assert {"loss.csv", "checks.csv", "repair.csv"} <= set(found)
    told = {"measure": "SQNR, dB", "met": "-0.125", "expected": "inf", "samples": "0"}
    assert rows(found["loss.csv"])[0] == told
    assert rows(found["checks.csv"]) == [{"check": "'=1+1", "result": "bad", "passed": "no", "seconds": "0.25"}]
    assert rows(found["repair.csv"])[0]["kept"] == "yes"


def test_sentences_are_in_the_language_that_was_asked_for() -> None:
    pages = all_pages(empty_document(diagnosis=FOUND))
    english, chinese = (page_tables(pages, (), language=language) for language in ("en", "zh"))
    assert rows(english["repair.csv"])[0]["cost"] != rows(chinese["repair.csv"])[0]["cost"]


def test_a_table_of_results_asks_its_columns_for_the_cells() -> None:
    columns: list[pages.ColumnOf[float]] = [
        pages.column("real", "#", "number", on="terminal csv"),
        pages.column("twice", "common.tensor", "number", lambda row: 2 * row, short="common.node", on="html"),
        *pages.csv_columns("imag"),
        *pages.csv_columns({"text": lambda row: f"{row}"}),
    ]
    table = pages.table("t", "common.tensor", columns, [1.5, 2.0], file="t.csv")
    assert table.rows == ((1.5, 3.0, 0.0, "1.5"), (2.0, 4.0, 0.0, "2.0"))
    assert (table.caption, table.file) == (bilingual("common.tensor"), "t.csv")
    assert [each.on for each in table.columns] == [("terminal", "csv"), ("html",), ("csv",), ("csv",)]
    assert [each.label for each in table.columns[:3]] == [plain("#"), bilingual("common.tensor"), plain("imag")]
    assert [each.short for each in table.columns[:2]] == [None, bilingual("common.node")]
