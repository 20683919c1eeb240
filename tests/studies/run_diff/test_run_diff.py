"""Two runs side by side, for people and programs."""

import csv
import io
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Literal

from rich.console import Console

from roundoff.core.document import load_document, to_json
from roundoff.pages.terminal import terminal_page
from roundoff.report.junit import gate_junit
from roundoff.report.pages import run_files
from roundoff.studies.run_diff.page import annotations, diff_page
from roundoff.studies.run_diff.result import RunDiff
from tests.report.diffs import diff_of
from tests.report.documents import HOSTILE, empty_document


def shown(found: RunDiff, width: int = 80) -> str:
    page = diff_page(empty_document(diff=found))
    assert page is not None
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(terminal_page(page))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_verdict_comes_first_then_where_it_starts() -> None:
    lines = shown(diff_of("conv1", "conv2")).splitlines()
    assert lines[0] == "WORSE: of 2 nodes 2 worse; most by itself: node of conv1"
    first, follow = (" ".join(line.split()) for line in lines[1:3])
    assert first == "first node of conv1 (Conv) at conv1, local: 30.0 to 20.0 dB (-10.0)"
    assert follow == "follow 1 node computed from these: conv2"
    assert any("quantized: a.onnx (01) -> b.onnx (02)" in line for line in lines)
    assert any("numpy 2.0 -> 2.1" in line for line in lines)
    assert any("1 node by operation, shape and place: old -> conv2" in line for line in lines)


def test_every_verdict_has_words() -> None:
    found = diff_of("conv1")
    row = found.rows[0]
    small = replace(row, change="same", change_db=0.1, starts=False)
    assert "SAME: no node of 1 changed by 0.5 dB or more" in shown(
        replace(found, kind="same", rows=(small,), first=None)
    )
    by_chance = replace(small, change_db=0.7)
    assert "SAME: no node of 1 changed beyond chance" in shown(
        replace(found, kind="same", rows=(by_chance,), first=None)
    )
    kinds: tuple[tuple[Literal["unclear", "untested"], str], ...] = (
        ("unclear", "NOT SIGNIFICANT: 1 of 1 node differ"),
        ("untested", "NOT TESTABLE: 1 of 1 node"),
    )
    for change, words in kinds:
        rows = (replace(row, change=change, starts=False),)
        told = shown(replace(found, kind=change, rows=rows, first=None))
        assert told.startswith(words)


def test_a_gate_names_what_is_over_budget() -> None:
    found = diff_of("conv1", "conv2", gate=True)
    text = shown(found)
    assert text.startswith("FAIL: 2 of 2 scores over budget, 1 other problem")
    assert "node of conv1, local: lost 10.0 dB" in text
    assert "the output x is missing" in text
    assert "budgets that fit nothing: never*" in text


def test_whatever_the_names_a_terminal_is_wide_enough() -> None:
    text = shown(diff_of(HOSTILE, "x" * 200, gate=True)) + shown(diff_of(HOSTILE, "x" * 200))
    assert max(map(len, text.splitlines())) <= 80


def test_the_csv_has_every_row_and_no_formulas() -> None:
    document = empty_document(diff=diff_of("=1+1", "conv2", gate=True))
    rows = list(csv.DictReader(io.StringIO(run_files(document)["diff.csv"])))
    assert [row["change"] for row in rows] == ["worse", "worse", "gone", "new"]
    assert not any(cell.startswith("=") for row in rows for cell in row.values())
    assert rows[0]["why"] == "lost 10.0 dB"


def test_a_gate_is_junit() -> None:
    found = diff_of(HOSTILE, "conv2", gate=True)
    assert found.gate is not None
    suite = ET.fromstring(gate_junit(found, found.gate)).find("testsuite")  # noqa: S314 - our own text
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "3", "2")
    assert len(suite.findall("testcase/failure")) == 3
    assert suite.findall("testcase")[0].get("name") == HOSTILE


def test_annotations_are_one_line_each_and_few() -> None:
    found = diff_of("a,b:c%\n", *(f"conv{at}" for at in range(20)), gate=True)
    assert found.gate is not None
    lines = annotations(found, found.gate).splitlines()
    assert len(lines) == 10
    assert lines[0] == "::error title=roundoff gate::the output x is missing"
    assert lines[1] == "::error title=node of a%2Cb%3Ac%25%0A::local: lost 10.0 dB"
    assert lines[-1] == "::error title=roundoff gate::and 13 nodes more over budget"


def test_documents_hold_it(tmp_path: Path) -> None:
    document = empty_document(diff=diff_of("a", "b", gate=True))
    (tmp_path / "run.json").write_text(to_json(document), encoding="utf-8")
    assert load_document(tmp_path) == document
