"""Reports as Markdown."""

import itertools

from roundoff.messages.catalogue import plain
from roundoff.pages.blocks import Column, cell_text
from roundoff.pages.text_files import markdown_report
from roundoff.report.pages import all_pages
from tests.report.documents import HOSTILE, chain, empty_document, full_document, large_document


def test_pages_become_headings_and_tables() -> None:
    text = markdown_report(all_pages(full_document()), title="a run")
    assert text.startswith("# a run\n\n## Run diff\n\n**FAIL: 2 of 2 scores over budget")
    assert "\n\n## Comparison\n\n**FAIL: 1 of 2 te" in text
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


def test_no_title_stands_above_nothing() -> None:
    for document in (full_document(), large_document(0), empty_document(network=chain("a"))):
        lines = [line for line in markdown_report(all_pages(document), title="t").splitlines() if line]
        pairs = zip(lines[1:], [*lines[2:], "# end"], strict=True)
        for line, following in pairs:
            deeper = following.startswith("#" + line.partition(" ")[0])
            assert not (line.startswith("#") and following.startswith("#")) or deeper, line
        # Nor a table without rows.
        assert not [line for line, below in itertools.pairwise(lines)
                    if line.startswith("|---") and not below.startswith("|")]  # fmt: skip


def test_times_have_the_unit_that_suits_them() -> None:
    column = Column("seconds", plain("took"), "seconds")
    times = {0.0: "0 µs", 1.5e-5: "15 µs", 0.0032: "3.2 ms", 1.5: "1.5 s", 45.2: "45 s", 300.0: "5 min"}
    assert {value: cell_text(value, column).en for value in times} == times
