"""Reports as Markdown."""

from roundoff.report.markdown import markdown_report
from roundoff.report.pages import all_pages
from tests.report.documents import HOSTILE, empty_document, full_document


def test_pages_become_headings_and_tables() -> None:
    text = markdown_report(all_pages(full_document()), title="a run")
    assert text.startswith("# a run\n\n## Overview\n\n- Run diff: Fail: 3 over budget.")
    assert "\n\n## Comparison\n\n**1 of 2 compared tensors differ" in text
    assert "|---:|---|---|" in text
    assert "## About this run" in text
    assert text.count("```") % 2 == 0


def test_every_row_of_a_table_has_as_many_cells_as_its_heading() -> None:
    lines = markdown_report(all_pages(full_document()), title="t").splitlines()
    widths: list[int] = []
    for line in lines:
        cells = line.replace("\\|", "").count("|")
        if line.startswith("|"):
            widths.append(cells)
            assert cells == widths[0]
        else:
            widths = []


def test_names_are_no_markup() -> None:
    text = markdown_report(all_pages(full_document()), title=HOSTILE)
    outside = "".join(text.split("```")[::2])
    assert "\\<img" in outside
    assert "<img" not in outside.replace("\\<", "")


def test_the_other_language() -> None:
    assert "## 运行信息" in markdown_report(all_pages(empty_document()), title="t", language="zh")
