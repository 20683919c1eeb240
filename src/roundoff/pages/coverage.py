"""What a verdict rests on, in lines: how much was judged, why the rest was not, and what speaks against it."""

from collections.abc import Iterator, Sequence
from typing import Literal

from roundoff.core.coverage import (
    Coverage,
    CoverageGap,
    Doubt,
    Judgement,
    LeftOut,
    OutputCoverage,
    Share,
    Unjudged,
    UnplacedFile,
)
from roundoff.messages.catalogue import Phrase, bilingual, commas, few, in_all_languages, semicolons, translate
from roundoff.messages.message import short_name
from roundoff.messages.numbers import shape_text

_LISTED = 5
# So many names of what was left out find room in a line.
_NAMED = 3
OtherSide = Literal["candidate", "dump"]
_FILES = {"candidate": "candidate", "dump": "files"}


def judgement_lines(
    judgement: Judgement | None, *, other: OtherSide = "candidate", doubts: bool = True
) -> Iterator[tuple[str, str]]:
    """All lines with their labels: the coverage always, outputs that were not judged, doubts.

    Args:
        judgement: What a verdict rests on; no line without one.
        other: What outputs were looked for in.
        doubts: Whether the doubts are among them; not where they were told first.
    """
    if judgement is None:
        return
    yield translate("coverage.label"), judged_line(judgement.coverage, other=other)
    if indices := judgement.coverage.outputs.indices:
        names = few([short_name(name) for name in indices], _NAMED)
        yield translate("coverage.label_indices"), translate("coverage.equal_or_not", names=names)
    # Where every tensor has its partner, no file is missed.
    if not _complete(judgement.coverage.tensors):
        yield from _unplaced(judgement.coverage.unplaced)
    if judgement.coverage.outputs.not_judged:
        yield from coverage_lines(judgement.coverage.outputs, other=other)
    if other == "dump" and judgement.coverage.gap is not None:
        yield "", gap_line(judgement.coverage.gap)
    for index, flat in enumerate(judgement.flat[:_LISTED]):
        key = "coverage.flat" if flat.before else "coverage.drowned"
        text = translate(key, name=short_name(flat.name), count=flat.after, all=flat.before)
        yield "" if index else translate("coverage.label_flat"), text
    yield from doubt_lines(judgement.doubts if doubts else ())


def doubt_lines(doubts: Sequence[Doubt]) -> Iterator[tuple[str, str]]:
    """Why a good verdict is refused, one line for each reason."""
    for index, doubt in enumerate(doubts):
        yield "" if index else translate("coverage.label_doubt"), doubt_line(doubt)


def _complete(share: Share | None) -> bool:
    return share is not None and share.judged == share.there


def _unplaced(files: Sequence[UnplacedFile]) -> Iterator[tuple[str, str]]:
    """Files of a dump that could not be placed, with why; all of them are in the document."""
    for at, each in enumerate(files[:_LISTED]):
        text = translate(
            f"coverage.unplaced_{each.why}",
            name=short_name(each.name),
            shape=shape_text(each.shape) or "-",
            names=few([short_name(name) for name in each.could_be], _NAMED) or "-",
        )
        yield "" if at else translate("coverage.label_unplaced"), text
    if len(files) > _LISTED:
        yield "", translate("coverage.unplaced_more", count=len(files) - _LISTED)
    if any(each.why == "uncertain" for each in files):
        yield "", translate("coverage.unplaced_name_them")


def judged_line(coverage: Coverage, *, other: OtherSide = "candidate") -> str:
    """How much was judged: outputs, tensors, samples, files of a dump."""
    outputs = coverage.outputs
    parts = (
        [translate("coverage.of_outputs", judged=len(outputs.judged), there=outputs.total)]
        if outputs.known
        else []
    )
    for what, share in (
        ("tensors", coverage.tensors),
        ("samples", coverage.samples),
        (_FILES[other], coverage.files),
    ):
        # Every tensor of the other side has its partner: nothing to be told.
        if share is not None and not (what == "candidate" and _complete(share)):
            # Names of what was left over matter as long as something lacks a partner.
            named = share is not coverage.files or not _complete(coverage.tensors)
            parts.append(_share(what, share, named=named))
    return translate("coverage.judged_of", parts=commas(*parts))


def _share(what: str, share: Share, *, named: bool) -> str:
    text = translate(f"coverage.of_{what}", judged=share.judged, there=share.there)
    reasons = [_reason(each, named=named) for each in share.left_out if each.count]
    return translate("coverage.with_reasons", text=text, reasons=semicolons(*reasons)) if reasons else text


def _reason(left: LeftOut, *, named: bool) -> str:
    why = translate(f"coverage.why_{left.why}")
    if not left.names or not named:
        return translate("coverage.reason", count=left.count, why=why)
    shown = [short_name(name) for name in left.names[:_NAMED]]
    names = ", ".join(shown) + (" ..." if left.count > len(shown) else "")
    return translate("coverage.reason_named", count=left.count, why=why, names=names)


def doubt_line(doubt: Doubt) -> str:
    """Why a good verdict is refused."""
    return translate(
        f"coverage.doubt_{doubt.kind}", count=doubt.count, of=doubt.of, name=short_name(doubt.name) or "-"
    )


def gap_line(gap: CoverageGap, *, brief: bool = False) -> str:
    """Where a difference starts when tensors there were not compared.

    Args:
        gap: What was not compared.
        brief: Whether it stands below the first tensor that differs.
    """
    key = "coverage.gap" if gap.after else "coverage.gap_from_start"
    if brief:
        key = "coverage.or_after" if gap.after else "coverage.or_before"
    names = {"first": short_name(gap.first), **({"after": short_name(gap.after)} if gap.after else {})}
    return translate(key, count=gap.tensors, **names)


def coverage_lines(outputs: OutputCoverage | None, *, other: OtherSide) -> Iterator[tuple[str, str]]:
    """The line on outputs with its label, for a terminal; none where all outputs were judged.

    Args:
        outputs: What was judged.
        other: What the outputs were looked for in.
    """
    if outputs is not None and not outputs.complete:
        yield translate("coverage.outputs"), _line(outputs, other)


def coverage_phrase(outputs: OutputCoverage, *, other: OtherSide) -> Phrase:
    """The line on outputs in every language."""
    return in_all_languages(lambda: _line(outputs, other))


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
