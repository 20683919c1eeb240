"""Sentences that are part of results, in the language of the terminal.

Documents hold them in English, whoever made them. What one says is known again by its words; one that is not known
stays as it is.
"""

import re
import string
from collections.abc import Iterator
from functools import cache

from roundoff.messages.catalogue import Phrase, current_language, phrase_names, template, translate, use_language
from roundoff.messages.message import (
    Argument,
    Message,
    Remark,
    Translatable,
    joined,
    message,
    phrase_of,
    shown,
    verbatim,
)

__all__ = ["SENTENCES", "known", "recognised", "sentence"]

SENTENCES = ("sentences",)
"""The files that hold them."""

_JOINT = "; "
_QUOTED = r"(?:'[^']*'|\"[^\"]*\")(?: \([^()]*\))?"
_PART = "(?:(?!; ).)+?"
# What gaps of these names hold; all others hold a number or a word. Nothing but a whole reaches beyond a joint.
_HELD = {
    "node": _QUOTED,
    "tensor": _QUOTED,
    **dict.fromkeys(("name", "names", "places", "what", "how"), _PART),
    **dict.fromkeys(("file", "folder", "text", "whole"), ".+?"),
}
# What stands in these are words of ours, too, or names.
_NESTED = ("what", "how", "whole")
_END = "\0"
_CHARACTER = "[\u4e00-\u9fff]"
_SPACED = re.compile(f"(?<={_CHARACTER})(?:{_END} | {_END})(?={_CHARACTER})")
_MORE = re.compile(r"(?P<names>.+) and (?P<count>\d+) more", re.DOTALL)
_WORDS = re.compile(r"[A-Za-z]{2,},? [a-z]{2,}")


def sentence(text: Remark) -> str:
    """What a sentence of a result is in the language of the terminal, as far as it is known."""
    if isinstance(text, Message | Translatable):
        return shown(text)
    if current_language() == "en":
        return text
    whole = _known(text)
    if whole is not None:
        return whole
    told_parts = [_known(part) or part for part in text.split(_JOINT)]
    joined = told_parts[0]
    for part in told_parts[1:]:
        joined = translate("terminal.semicolon", before=joined, after=part)
    return joined


def known(text: Remark) -> Phrase:
    """A sentence of a result in every language, as far as it is known."""
    if isinstance(text, Message | Translatable):
        return phrase_of(text)
    with use_language("zh"):
        return Phrase(text, sentence(text))


def recognised(text: str | Message) -> Message:
    """What another study says as a message; where it still is a sentence, it is known by its words.

    One that is not known stays as it is.
    """
    if isinstance(text, Message):
        return text
    if isinstance(text, Translatable):
        return text.message
    whole = _as_message(text)
    if whole is not None:
        return whole
    parts = [_as_message(part) for part in text.split(_JOINT)]
    return joined(part for part in parts if part is not None) if None not in parts else verbatim(text)


def _as_message(text: str) -> Message | None:
    for key, pattern in _patterns():
        found = pattern.fullmatch(text)
        if found is None:
            continue
        gaps = found.groupdict()
        nested = {gap: recognised(value) for gap, value in gaps.items() if gap in _NESTED}
        if not any(each.key == "verbatim" and _says_something(str(each)) for each in nested.values()):
            return message(key, **{gap: nested.get(gap) or _argument(value) for gap, value in gaps.items()})
    return None


def _argument(value: str) -> Argument:
    if value.isdecimal() and str(int(value)) == value:
        return int(value)
    more = _MORE.fullmatch(value)
    return value if more is None else message("terminal.and_more", names=more["names"], count=int(more["count"]))


def _known(text: str) -> str | None:
    for key, pattern in _patterns():
        found = pattern.fullmatch(text)
        if found is None:
            continue
        gaps = found.groupdict()
        nested = {gap: sentence(value) for gap, value in gaps.items() if gap in _NESTED}
        # Half a sentence in another language is worse than none.
        if not any(value == gaps[gap] and _says_something(value) for gap, value in nested.items()):
            nested = {gap: f"{_END}{value}{_END}" for gap, value in nested.items() if value != gaps[gap]}
            return _joined(translate(key, **{gap: _filled(value) for gap, value in (gaps | nested).items()}))
    return None


def _joined(text: str) -> str:
    """A sentence with the ends of others in it: there is no space between Chinese characters."""
    return _SPACED.sub("", text).replace(_END, "")


def _says_something(text: str) -> bool:
    """Whether there are words in it that are no names."""
    return _WORDS.search(re.sub(_QUOTED, "", text)) is not None


def _filled(value: str) -> str | int:
    """What goes into a gap: a number that may choose between words, or names of which some were left out."""
    if value.isdecimal() and str(int(value)) == value:
        return int(value)
    more = _MORE.fullmatch(value)
    return value if more is None else translate("terminal.and_more", names=more["names"], count=int(more["count"]))


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """What each sentence looks like, by its key."""
    keys = [f"{stem}.{name}" for stem in SENTENCES for name in phrase_names(stem)]
    return tuple((key, re.compile("".join(_parts(template(key))), re.DOTALL)) for key in keys)


def _parts(template: str) -> Iterator[str]:
    seen: set[str] = set()
    for literal, gap, spec, _ in string.Formatter().parse(template):
        yield re.escape(literal)
        if gap is None:
            continue
        if spec:
            # A word that a number chooses.
            yield f"(?:{'|'.join(map(re.escape, spec.split('|')))})"
        else:
            held = _HELD.get(gap, r"\S+")
            yield f"(?P={gap})" if gap in seen else f"(?P<{gap}>{held})"
            seen.add(gap)
