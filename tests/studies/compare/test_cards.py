"""The first screen of a comparison."""

from dataclasses import replace

from roundoff.pages.cards import HeroCard
from roundoff.pages.html import html_report
from roundoff.studies.compare.page import comparison_page
from tests.report.documents import empty_document
from tests.studies.compare import test_page


def test_it_begins_with_where_it_starts_what_outputs_keep_and_what_was_judged() -> None:
    found = replace(test_page.FOUND, unmatched_reference=("a", "b"))
    page = comparison_page(empty_document(comparison=found))
    assert page is not None
    hero = page.blocks[0]
    assert isinstance(hero, HeroCard)
    judged = found.verdict.passed + found.verdict.failed
    assert hero.coverage == (judged, len(found.rows) + 2)
    assert [mark for mark, _ in hero.pills] == ["bad", "open"]
    assert found.verdict.first_divergence is not None
    assert found.verdict.first_divergence in hero.title.en
    assert found.verdict.first_divergence in hero.title.zh
    assert not hero.text.en.startswith(":")
    text = html_report([page], title="t")
    assert "card hero" in text
    assert 'class="headline' not in text
