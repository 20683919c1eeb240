"""Sentences that are part of results, in the language of the terminal.

Documents hold them in English, whoever made them. What one says is known again by its words; one that is not known
stays as it is.
"""

import re
import string
from collections.abc import Iterator
from functools import cache

from roundoff.report.words.catalogue import Phrase, english, phrase_names, speaking, spoken, told

__all__ = ["known", "sentence"]

_JOINT = "; "
# Gaps with anything in them; all others hold a number or a word.
_WIDE_GAPS = frozenset({"file", "folder", "name", "names", "places", "text", "what"})
# What stands in this one may be words of ours, too.
_NESTED = "what"


def sentence(text: str) -> str:
    """What a sentence of a result is in the language of the terminal, as far as it is known."""
    if spoken() == "en":
        return text
    whole = _known(text)
    if whole is not None:
        return whole
    told_parts = [_known(part) or part for part in text.split(_JOINT)]
    joined = told_parts[0]
    for part in told_parts[1:]:
        joined = told("terminal.semicolon", before=joined, after=part)
    return joined


def known(text: str) -> Phrase:
    """A sentence of a result in every language, as far as it is known."""
    with speaking("zh"):
        return Phrase(text, sentence(text))


def _known(text: str) -> str | None:
    for name, pattern in _patterns():
        found = pattern.fullmatch(text)
        if found is not None:
            gaps = found.groupdict()
            if _NESTED in gaps:
                gaps[_NESTED] = _known(gaps[_NESTED]) or gaps[_NESTED]
            return told(f"sentences.{name}", **{gap: _counted(value) for gap, value in gaps.items()})
    return None


def _counted(value: str) -> str | int:
    """A number that may choose between words, where it is one."""
    return int(value) if value.isdecimal() and str(int(value)) == value else value


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """What each sentence looks like, by its name."""
    return tuple(
        (name, re.compile("".join(_parts(english(f"sentences.{name}"))), re.DOTALL))
        for name in phrase_names("sentences")
    )


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
            held = ".+?" if gap in _WIDE_GAPS else r"\S+"
            yield f"(?P={gap})" if gap in seen else f"(?P<{gap}>{held})"
            seen.add(gap)
