"""No sentence is ever parsed: what is no message is the same in every language."""

import ast
import re
from pathlib import Path

from roundoff.messages.catalogue import use_language
from roundoff.messages.message import as_message, english, message, phrase_of, shown, verbatim

SOURCES = Path(__file__).parents[2] / "src/roundoff"
MATCHING = {"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}
# Words in a row, as no file format has them.
SENTENCE = re.compile(r"[a-z]{2,} [a-z]{2,} [a-z]{2,}")


def patterns(path: Path) -> list[str]:
    """The regular expressions that a module is written with."""
    calls = (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call))
    return [
        constant.value
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in MATCHING
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "re"
        for constant in ast.walk(call.args[0])
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
    ]


def test_no_module_matches_sentences() -> None:
    found = {
        path.relative_to(SOURCES).as_posix(): pattern
        for path in SOURCES.rglob("*.py")
        for pattern in patterns(path)
        if SENTENCE.search(pattern)
    }
    assert found == {}


def test_a_text_that_is_no_message_is_the_same_in_every_language() -> None:
    text = "as given; its scale is computed while the model runs"
    assert as_message(text) == verbatim(text)
    assert phrase_of(text).zh == text
    with use_language("zh"):
        assert shown(text) == text


def test_what_knows_its_message_is_shown_in_the_language_of_the_reader() -> None:
    told = message("partial.as_in", file="order (3x3); it's {odd}.txt")
    assert phrase_of(told).zh == "按 order (3x3); it's {odd}.txt 中的次序"
    assert as_message(told) is told
    made = english("it has no scale")
    assert as_message(made).within("zh") == phrase_of(made).zh == "它没有 scale"
