"""The first screen and the glossary: what a report says of itself."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from roundoff.measure.metrics import all_metrics
from roundoff.messages.catalogue import bilingual, catalogue, named, phrase_names, plain
from roundoff.pages.blocks import (
    Column,
    Contents,
    Facts,
    Headline,
    Page,
    TableBlock,
    column_meaning,
    glossary_page,
)
from roundoff.pages.cards import HeroCard
from roundoff.report.pages import all_pages
from tests.report.documents import chain, empty_document, full_document
from tests.report.pages.test_pages import blocks, page_of
from tests.studies.layers import test_layers

PACKAGE = Path(__file__).parents[2] / "src/roundoff"
FRAME = {"title", "intro"}


def test_the_first_page_begins_with_the_score_and_leads_to_the_verdict_of_every_other_part() -> None:
    pages = all_pages(full_document())
    assert isinstance(pages[0].blocks[0], HeroCard)
    (contents,) = blocks(pages[:1], Contents)
    judged = [page.id for page in pages[1:-2] if any(isinstance(block, Headline) for block in page.blocks)]
    assert [each.page for each in contents.entries] == judged
    assert all(each.text.en for each in contents.entries)
    layers = next(each for each in contents.entries if each.page == "layers")
    assert (layers.tone, layers.text.en.startswith("LOCAL: 1 of 12")) == ("bad", True)
    assert pages[-2].id == "glossary"


def test_without_a_verdict_there_is_no_first_screen() -> None:
    assert [page.id for page in all_pages(empty_document(network=chain("a")))] == ["network", "about"]


def test_only_words_that_the_report_uses_are_explained() -> None:
    (facts,) = (block for block in page_of(full_document(), "glossary").blocks if isinstance(block, Facts))
    words = [word.en for word, _ in facts.rows]
    assert {"cosine", "adds", "Local", "level ≥ 1"} & set(words) >= {"cosine", "adds", "Local"}
    assert "Distributed" not in words
    assert len(set(facts.rows)) == len(facts.rows)
    spread = replace(test_layers.REPORT, verdict=replace(test_layers.REPORT.verdict, kind="distributed"))
    (facts,) = (
        block for block in page_of(empty_document(layers=spread), "glossary").blocks if isinstance(block, Facts)
    )
    assert next(word.en for word, _ in facts.rows) == "Distributed"


def test_the_same_name_means_something_else_in_another_table() -> None:
    column = Column("largest", plain("largest"), "number")
    meanings = {
        column_meaning(TableBlock(name, plain(""), (column,), ()), column) for name in ("stages", "outliers")
    }
    assert meanings == {bilingual("glossary.largest"), bilingual("glossary.outliers__largest")}


def explained_names() -> list[str]:
    names = [key.removeprefix("glossary.") for key in catalogue() if key.startswith("glossary.")]
    return [name for name in names if name not in FRAME]


@pytest.fixture(scope="module")
def code() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*page*.py"))


@pytest.mark.parametrize("name", explained_names())
def test_every_entry_explains_something(name: str, code: str) -> None:
    if name.startswith("word_"):
        assert f"glossary.{name.removeprefix('word_')}" in catalogue()
        return
    if f"glossary.word_{name}" in catalogue():
        part, _, kind = name.partition("_")
        assert f'f"{part}_{{' in code
        assert kind
        return
    column = name.rpartition("__")[2]
    known = set(re.findall(r'[Cc]olumn\(\s*f?"([a-z_0-9]+?)(?:_\{\w+\})?"', code)) | {
        each.name for each in all_metrics()
    }
    asked = set(re.findall(r'explained\(f"\{method\}_(\w+)"\)', code))
    known |= {f"{method}_{each}" for method in ("local", "accumulated") for each in asked}
    assert column in known or column.removeprefix("mean_") in known | {"accuracy", "same_top1"}


def test_numbers_of_all_pages_are_explained() -> None:
    plain_words = {
        "number", "order", "rank", "size_bytes", "channel", "channels", "minimum", "maximum", "low", "high", "p25",
        "median", "p75", "value", "before", "after", "samples", "seconds", "share", "count", "trial", "took",
    }  # fmt: skip
    tables: list[TableBlock] = blocks(all_pages(full_document()), TableBlock)
    bare = {
        (table.id, column.id)
        for table in tables
        for column in table.shown_on("html").columns
        if table.id != "channel-map"
        and column.kind not in ("text", "node")
        and column.id not in plain_words
        and not column_meaning(table, column)
    }
    assert bare == set()


def test_every_cause_has_a_name_in_both_languages_and_is_explained_where_it_occurs() -> None:
    causes = [name.removeprefix("cause_") for name in phrase_names("terms") if name.startswith("cause_")]
    assert causes
    for cause in causes:
        name = named(f"diagnosis.cause_{cause}")
        assert name is not None, cause
        assert (name.en, cause in name.zh, name.zh != name.en) == (cause, True, True)
    column = Column("cause", plain("cause"), "text")
    table = TableBlock(
        "findings", plain("t"), (column,), ((named("diagnosis.cause_outlier-channel"),), ("unheard-of",))
    )
    page = glossary_page((Page("p", plain("p"), (table,)),))
    assert page is not None
    (facts,) = (block for block in page.blocks if isinstance(block, Facts))
    assert [word.en for word, _ in facts.rows] == ["outlier-channel"]
    assert facts.rows[0][1].zh != facts.rows[0][1].en
