"""Everything that is said, is said in every language."""

import re
import string
from pathlib import Path

import pytest

from roundoff.report.words import LANGUAGES, Phrase, plain, say
from roundoff.report.words.catalogue import catalogue

SOURCES = Path(__file__).parents[3] / "src/roundoff"


def gaps(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("key", catalogue())
def test_every_phrase_has_all_languages_with_the_same_gaps(key: str) -> None:
    entry = catalogue()[key]
    assert set(entry) == set(LANGUAGES)
    assert gaps(entry["en"]) == gaps(entry["zh"])
    assert all(text == text.strip() and text for text in entry.values())


def test_chinese_is_chinese() -> None:
    same = {key for key, entry in catalogue().items() if entry["en"] == entry["zh"]}
    # Signs and names that both languages write alike.
    assert all(not re.search("[a-z]{5,}", catalogue()[key]["en"]) for key in same), same


def test_no_phrase_is_unused() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    whole = set(re.findall(r"""["']([a-z_]+\.[a-z_]+)["']""", code))
    starts = tuple(re.findall(r"""f["']([a-z_]+\.[a-z_]*)\{""", code))
    unused = {key for key in catalogue() if key not in whole and not key.startswith(starts)}
    assert not unused


def test_gaps_are_filled_in_each_language() -> None:
    found = say("sensitivity.spread", all=3, kind=say("sensitivity.node"))
    assert found.en == "The error is spread over 3 nodes; none stands out."
    assert found.zh.startswith("误差分散在 3 个节点上")
    assert found.within("zh").startswith("误差")
    assert plain("x") == Phrase("x", "x")
