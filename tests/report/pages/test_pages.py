"""Pages are functions of the document: what it has is shown, what it lacks has no page."""

import math
from dataclasses import replace
from typing import TypeVar

import pytest

from roundoff.core.document import RunDocument
from roundoff.core.plan import Precision
from roundoff.messages.catalogue import Phrase
from roundoff.pages.blocks import Chart, Headline, NetworkBlock, Page, TableBlock, cell_text, cell_value, is_hidden
from roundoff.pages.cards import ErrorChart, HeroCard
from roundoff.report.pages import all_pages
from roundoff.search.result import Tuning
from roundoff.studies.audit.result import Audit
from tests.report.curves import sweep_of, without_goal
from tests.report.documents import HOSTILE, chain, empty_document, full_document
from tests.search import test_tuning
from tests.studies.audit import test_audit
from tests.studies.layers import test_layers

Kind = TypeVar("Kind")


def whole(pages: tuple[Page, ...]) -> list[Page]:
    return [each for page in pages for each in (page, *whole(page.sections))]


def blocks(pages: tuple[Page, ...], kind: type[Kind]) -> list[Kind]:
    return [block for page in whole(pages) for block in page.blocks if isinstance(block, kind)]


def page_of(document: object, name: str) -> Page:
    return next(page for page in all_pages(document) if page.id == name)  # type: ignore[arg-type]


def test_an_empty_document_has_only_the_page_on_itself() -> None:
    assert [page.id for page in all_pages(empty_document())] == ["about"]


def test_every_part_has_its_page_and_ids_are_unique() -> None:
    pages = all_pages(full_document())
    assert {page.id for page in pages} >= {
        "layers", "comparison", "distributions", "channels", "outliers", "samples", "accumulation", "partial",
        "tuning", "diff", "network", "about",
    }  # fmt: skip
    ids = [page.id for page in whole(pages)]
    tables = [table.id for table in blocks(pages, TableBlock)]
    assert len(ids) == len(set(ids))
    assert len(tables) == len(set(tables))


def test_rows_fit_their_columns_and_charts_their_tables() -> None:
    pages = all_pages(full_document())
    tables: dict[str, TableBlock] = {table.id: table for table in blocks(pages, TableBlock)}
    for table in tables.values():
        assert len({column.id for column in table.columns}) == len(table.columns)
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert not table.sort or table.sort.lstrip("-") in {column.id for column in table.columns}
    charts: list[Chart] = blocks(pages, Chart)
    assert charts
    for chart in charts:
        assert chart.x in {column.id for column in tables[chart.table].columns}
        for series in chart.series:
            places = series.tables or (chart.table,) * len(series.columns)
            for name, place in zip(series.columns, places, strict=True):
                assert name in {column.id for column in tables[place].columns}


def test_axes_have_titles_with_units_in_both_languages() -> None:
    charts: list[Chart] = blocks(all_pages(full_document()), Chart)
    for chart in charts:
        for label in (chart.x_label, chart.y_label):
            assert len(label.en) > 1, chart.id
            assert len(label.zh) > 1, chart.id
    decibels = {chart.id: chart.y_label for chart in charts if "SQNR" in chart.y_label.en}
    assert "diff-along" in decibels
    errors: list[ErrorChart] = blocks(all_pages(full_document()), ErrorChart)
    assert [chart.id for chart in errors if chart.points] == ["layers-along"]
    assert all("dB" in label.en and "dB" in label.zh for label in decibels.values())


def test_a_heat_map_is_drawn_from_the_tables_of_its_tensors() -> None:
    page = page_of(full_document(), "channels")
    heat = next(series for block in page.blocks if isinstance(block, Chart) for series in block.series)
    assert heat.tables == tuple(section.id for section in page.sections)
    # No number is shown twice: the only table of the page itself is the one of tensors; the other is for its file.
    tables = [block for block in page.blocks if isinstance(block, TableBlock)]
    assert [table.id for table in tables if not is_hidden(table, "html")] == ["channels"]
    assert [table.file for table in tables if is_hidden(table, "html")] == ["channels.csv"]


def test_the_network_is_coloured_by_what_units_lose_and_else_by_what_they_add() -> None:
    row = replace(test_layers.row(0, "t1", share=0.75), node="a")
    assert row.local is not None
    lost = replace(row, local=replace(row.local, sqnr_db=12.5))
    measured = empty_document(network=chain("a", "b"), layers=replace(test_layers.REPORT, rows=(lost,)))
    drawn: list[NetworkBlock] = blocks(all_pages(measured), NetworkBlock)
    assert [(node.name, node.value) for node in drawn[0].nodes] == [("a", 12.5), ("b", None)]
    assert drawn[0].kind == "decibels"
    row = replace(row, local=None)
    document = empty_document(network=chain("a", "b"), layers=replace(test_layers.REPORT, rows=(row,)))
    found: list[NetworkBlock] = blocks(all_pages(document), NetworkBlock)
    assert [(node.name, node.value) for node in found[0].nodes] == [("a", 0.75), ("b", None)]
    bare: list[NetworkBlock] = blocks(all_pages(empty_document(network=chain("a"))), NetworkBlock)
    assert bare[0].nodes[0].value is None


def headline_of(document: RunDocument, name: str) -> Headline:
    page = page_of(document, name)
    assert isinstance(page.blocks[0], HeroCard)
    return next(block for block in page.blocks if isinstance(block, Headline))


@pytest.mark.parametrize(
    ("kind", "start"),
    [
        ("fine", "FINE: "),
        ("local", "LOCAL: 1 of 12"),
        ("distributed", "DISTRIBUTED: "),
        ("open", "INCONCLUSIVE: "),
    ],
)
def test_headlines_of_layers(kind: str, start: str) -> None:
    report = replace(test_layers.REPORT, verdict=replace(test_layers.REPORT.verdict, kind=kind))  # type: ignore[arg-type]
    headline = headline_of(empty_document(layers=report), "layers")
    assert headline.whole.en.startswith(start)
    assert headline.whole.zh != headline.whole.en


def test_headlines_of_sweeps_and_searches() -> None:
    reached = headline_of(empty_document(partial=sweep_of()), "partial")
    assert reached.tone == "good"
    assert reached.whole.en.startswith("TOP 2 in float reach the goal")
    missed = headline_of(empty_document(partial=without_goal(sweep_of())), "partial")
    assert missed.tone == "bad"
    found: Tuning = replace(test_tuning.FOUND, verdict="best_effort")
    failed = headline_of(empty_document(tuning=found), "tuning")
    assert failed.whole.en.startswith("BEST EFFORT: nothing tried meets the goal")


def test_cells_as_people_and_programs_read_them() -> None:
    columns = {
        column.id: column for table in blocks(all_pages(full_document()), TableBlock) for column in table.columns
    }
    decibels, share = columns["local_sqnr_db"], columns["output_share"]
    assert cell_text(float("inf"), decibels) == Phrase("exact", "完全一致")
    assert (cell_text(0.5, share).en, cell_text(None, share).en) == ("50 %", "")
    assert cell_text(True, columns["passed"]).zh == "是"
    values = (float("inf"), float("-inf"), float("nan"), 3, True, "x", None)
    assert [cell_value(value) for value in values] == ["Infinity", "-Infinity", "NaN", "3", "1", "", ""]


def test_hostile_names_stay_what_they_are() -> None:
    table = next(block for block in page_of(full_document(), "layers").blocks if isinstance(block, TableBlock))
    assert any(HOSTILE in row for row in table.rows)


def test_an_audit_without_a_request_has_no_columns_for_it() -> None:
    page = page_of(empty_document(audit=test_audit.AUDIT), "audit")
    table = next(block.shown_on("html") for block in page.blocks if isinstance(block, TableBlock))
    assert [row[0] for row in table.rows] == ["stem", "pool", "=cmd('x')", "last"]
    assert [column.id for column in table.columns][2:5] == [
        "requested_activation",
        "requested_weight",
        "requested_output",
    ]
    headline = headline_of(empty_document(audit=test_audit.AUDIT), "audit")
    assert headline.whole.en.startswith("SILENT DIFFERENCES: 1 difference in 4 nodes")
    alone = page_of(
        empty_document(audit=Audit("m", "", (replace(test_audit.CLEAN, requested=Precision()),))), "audit"
    )
    columns = next(block.shown_on("html") for block in alone.blocks if isinstance(block, TableBlock)).columns
    assert not [column.id for column in columns if column.id.startswith("requested")]


def test_the_first_screen_has_what_was_asked_the_score_and_what_was_judged() -> None:
    """Shares with the interval of a share, held out samples first; decibels with one decimal."""
    page = page_of(empty_document(tuning=test_tuning.FOUND), "tuning")
    (hero,) = (block for block in page.blocks if isinstance(block, HeroCard))
    assert [(each.value.en, each.unit) for each in hero.scores] == [("91.0", "%"), ("50.0", "%"), ("90.0", "%")]
    first = hero.scores[0]
    assert first.interval is not None
    share, n, z = 0.91, 200, 1.959964
    middle, half = (share + z * z / (2 * n)), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    wilson = [(middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)]
    assert list(first.interval) == pytest.approx(wilson, abs=2e-3)
    swept = page_of(empty_document(partial=sweep_of()), "partial")
    (hero,) = (block for block in swept.blocks if isinstance(block, HeroCard))
    assert hero.pills == (("good", Phrase("TOP 2", "前 2 个")),)
    assert hero.title.en.startswith("Top 2 in float reach the goal")
