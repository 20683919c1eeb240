"""Sentences of results are known again by their words."""

import re
import string
from pathlib import Path

import pytest

from roundoff.messages.catalogue import phrase_names, template, use_language
from roundoff.messages.message import message, verbatim
from roundoff.messages.sentences import SENTENCES, known, recognised, sentence

# Put together from words that say nothing alone.
COMPOSED = {"sentences.though_labelled"}
SOURCES = Path(__file__).parents[2] / "src/roundoff"


def code() -> str:
    """All code that makes results, with strings that go on in the next line in one."""
    text = "\n".join(path.read_text("utf-8") for path in SOURCES.rglob("*.py"))
    return re.sub(r'"\s*f?"', "", text)


def test_every_sentence_is_one_that_is_said() -> None:
    said = code()
    missing = []
    for name in (f"{stem}.{name}" for stem in SENTENCES for name in phrase_names(stem)):
        pieces = [literal for literal, *_ in string.Formatter().parse(template(name))]
        # Some are put together from parts; so many words of one stand together somewhere.
        words = [piece.split() for piece in sorted(pieces, key=len)[-2:]]
        runs = [each[at : at + 4] for each in words for at in range(max(1, len(each) - 3))]
        most = max(map(len, runs))
        texts = [" ".join(run).strip("(:);,'") for run in runs if len(run) == most]
        if name not in COMPOSED and not any(text in said for text in texts):
            missing.append(name)
    assert missing == []


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("as given", ["按给定次序"]),
        ("nobody has ever said this; as given", ["nobody has ever said this", "按给定次序"]),
        ("nobody has ever said this", ["nobody has ever said this"]),
        ("gain of something else", ["gain of something else"]),
    ],
)
def test_what_is_known_is_translated_and_the_rest_stays(text: str, parts: list[str]) -> None:
    assert sentence(text) == text
    with use_language("zh"):
        told = sentence(text)
    assert re.split("[\uff08-\uff1b]+", told.rstrip("\uff09")) == parts


def test_nothing_is_half_translated() -> None:
    text = "not tried, because outputs are noisier or the same on calibration samples: something nobody has said"
    assert known(text).zh == text
    assert recognised(text) == verbatim(text)


def test_sentences_of_other_studies_become_messages() -> None:
    text = "not tried, because outputs are noisier or the same on calibration samples: ranges by mse"
    found = recognised(text)
    assert (str(found), found.within("zh")) == (text, known(text).zh)
    assert recognised(found) is found


def test_pages_have_them_in_every_language() -> None:
    found = known("as given")
    assert (found.en, found.zh) == ("as given", "按给定次序")
    told = known(message("partial.as_in", file="order (3x3); it's {odd}.txt"))
    assert told.en == "as in order (3x3); it's {odd}.txt"
    assert told.zh == "按 order (3x3); it's {odd}.txt 中的次序"
    assert known("").zh == ""
