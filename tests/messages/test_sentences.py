"""Sentences of results are known again by their words."""

import re
import string
from pathlib import Path

import pytest

from roundoff.messages.catalogue import english, phrase_names, speaking
from roundoff.messages.message import verbatim
from roundoff.messages.sentences import SENTENCES, known, recognised, sentence

# Put together from words that say nothing alone.
COMPOSED = {
    "sentences.suits", "sentences.hardly", "sentences_io.set_letterbox_centred",
    "sentences_io.set_letterbox_corner", "sentences_io.set_transpose_by", "sentences_io.fields_colours",
    "sentences_io.shapes_against", "sentences_io.shapes_against_scalar", "sentences_calibration.smaller_samples",
    "sentences_steps.channels_in_out", "sentences.though_labelled",
}  # fmt: skip
SOURCES = Path(__file__).parents[2] / "src/roundoff"


def code() -> str:
    """All code that makes results, with strings that go on in the next line in one."""
    text = "\n".join(path.read_text("utf-8") for path in SOURCES.rglob("*.py"))
    text += (SOURCES / "preprocessing/conventions.toml").read_text("utf-8")
    return re.sub(r'"\s*f?"', "", text)


def test_every_sentence_is_one_that_is_said() -> None:
    said = code()
    missing = []
    for name in (f"{stem}.{name}" for stem in SENTENCES for name in phrase_names(stem)):
        pieces = [literal for literal, *_ in string.Formatter().parse(english(name))]
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
        ("one peak", ["单峰"]),
        ("by sqnr_db when quantized alone (1 sample)", ["按单独量化时的 sqnr_db", "1 个样本"]),
        (
            "every channel has at least 16 levels; the widest has 1.5 times the range of the median one",
            ["每个通道至少有 16 级", "最宽通道的范围是中位通道的 1.5 倍"],
        ),
        ("nobody has ever said this; one peak", ["nobody has ever said this", "单峰"]),
        ("nobody has ever said this", ["nobody has ever said this"]),
        ("all values are {x}", ["所有数值均为 {x}"]),
        ("gain of something else", ["gain of something else"]),
    ],
)
def test_what_is_known_is_translated_and_the_rest_stays(text: str, parts: list[str]) -> None:
    assert sentence(text) == text
    with speaking("zh"):
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
    both = recognised("calibrate on data like this; one peak")
    assert (str(both), both.within("zh")) == (
        "calibrate on data like this; one peak",
        "请用同类数据校准\uff1b单峰",
    )
    # A name with a semicolon in it is no joint of sentences.
    assert recognised("conv; it's odd; one peak") == verbatim("conv; it's odd; one peak")


def test_pages_have_them_in_every_language() -> None:
    found = known("one peak")
    assert (found.en, found.zh) == ("one peak", "单峰")
    assert known("").zh == ""
