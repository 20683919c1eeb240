"""Which outputs were judged, in a line: how many of how many, and why the others were not."""

from collections.abc import Iterator
from typing import Literal

from roundoff.core.coverage import OutputCoverage, Unjudged
from roundoff.messages.catalogue import Phrase, bilingual, in_all, translate
from roundoff.messages.phrases import few
from roundoff.messages.sanitize import short_name

__all__ = ["OtherSide", "coverage_lines", "coverage_phrase", "why_unjudged"]

_LISTED = 5
OtherSide = Literal["candidate", "dump"]


def coverage_lines(outputs: OutputCoverage | None, *, other: OtherSide) -> Iterator[tuple[str, str]]:
    """The line with its label, for a terminal; none where all outputs were judged.

    Args:
        outputs: What was judged.
        other: What the outputs were looked for in.
    """
    if outputs is not None and not outputs.complete:
        yield translate("coverage.outputs"), _line(outputs, other)


def coverage_phrase(outputs: OutputCoverage, *, other: OtherSide) -> Phrase:
    """The line in every language."""
    return in_all(lambda: _line(outputs, other))


def why_unjudged(each: Unjudged, *, other: OtherSide) -> Phrase:
    """Why an output was not judged."""
    return bilingual(f"coverage.{each.why}_{other}" if each.why == "missing" else f"coverage.{each.why}")


def _line(outputs: OutputCoverage, other: OtherSide) -> str:
    names = [
        translate("coverage.named", name=short_name(each.name), why=why_unjudged(each, other=other))
        for each in outputs.not_judged
    ]
    key = "coverage.judged" if outputs.known else "coverage.unknown"
    return translate(key, judged=len(outputs.judged), total=outputs.total, names=few(names, _LISTED) or "-")
