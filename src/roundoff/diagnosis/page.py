"""The diagnosis: verdict, causes with their proofs, victims, what was looked at, what was repaired."""

from collections.abc import Iterator, Sequence

from roundoff.core.document import RunDocument
from roundoff.diagnosis.result import CostClass, Diagnosis, Finding, Repair
from roundoff.messages.catalogue import Phrase, named, plain, say
from roundoff.messages.message import Message, phrase_of
from roundoff.messages.numbers import number
from roundoff.pages.blocks import (
    Block,
    Cell,
    Column,
    Commands,
    Headline,
    Page,
    Paragraph,
    TableBlock,
    Tone,
    few_names,
    notes,
)
from roundoff.pages.coverage import coverage_phrase

__all__ = ["diagnosis_page"]

_TONES: dict[str, Tone] = {"healthy": "good", "culprits": "bad", "distributed": "bad"}
_COSTS: dict[CostClass, str] = {"free": "free", "16 bit": "sixteen", "float": "float", "outside": "outside"}

_MEASURES = (
    Column("measure", say("diagnosis.measure"), "text"),
    Column("before", say("diagnosis.before"), "number"),
    Column("after", say("diagnosis.after"), "number"),
)
_FINDINGS = (
    Column("number", plain("#"), "count"),
    Column("node", say("common.node"), "node"),
    Column("cause", say("diagnosis.cause"), "text"),
    Column("share", say("diagnosis.share"), "share"),
    Column("summary", say("diagnosis.summary"), "text"),
    Column("remedy", say("diagnosis.remedy"), "text"),
    Column("cost", say("diagnosis.cost"), "text"),
    *_MEASURES,
    Column("intervention", say("diagnosis.intervention"), "text"),
)
_LOSS = (
    _MEASURES[0],
    Column("met", say("diagnosis.met"), "number"),
    Column("expected", say("diagnosis.expected"), "number"),
    Column("in_float", say("diagnosis.in_float"), "number"),
    Column("samples", say("diagnosis.samples"), "count"),
)
_OTHERS = Column("others", say("diagnosis.others"), "text")
_CHECKS = (
    Column("check", say("diagnosis.check"), "text"),
    Column("result", say("diagnosis.result"), "text"),
    Column("passed", say("compare.passed"), "truth"),
    Column("seconds", say("about.elapsed"), "seconds"),
)
_REPAIR = (
    Column("remedy", say("diagnosis.step"), "text"),
    Column("cost", say("diagnosis.cost"), "text"),
    *_MEASURES,
    Column("kept", say("diagnosis.kept"), "truth"),
    Column("why", say("diagnosis.why"), "text"),
)


def diagnosis_page(document: RunDocument) -> Page | None:
    """The page on a diagnosis; None when none was made."""
    found = document.diagnosis
    if found is None:
        return None
    headline = Headline(_TONES.get(found.kind, "open"), _verdict(found), f"diagnosis_{found.kind}")
    blocks = (headline, Paragraph(phrase_of(found.verdict)), *_coverage(found), *_parts(found))
    return Page("diagnosis", say("diagnosis.title"), (*blocks, *notes(found.notes)))


def _coverage(found: Diagnosis) -> Iterator[Block]:
    if found.outputs is not None and not found.outputs.complete:
        yield Paragraph(coverage_phrase(found.outputs, other="dump"))


def _verdict(found: Diagnosis) -> Phrase:
    """The verdict, with where the causes are, those that make most of the loss first."""
    nodes = tuple(dict.fromkeys(node for each in found.accused for node in each.nodes[:1])) or ("-",)
    count = sum(each.places for each in found.accused)
    if found.kind == "culprits" and count > len(found.accused):
        return say("diagnosis.culprits_joint", count=count, first=nodes[0])
    side = "_device" if found.kind == "elsewhere" and found.side == "device" else ""
    return say(f"diagnosis.{found.kind}{side}", count=count, places=few_names(nodes))


def _parts(found: Diagnosis) -> Iterator[Block]:
    if found.repair is not None:
        yield from _repair(found.repair)
    proven, suspected = (
        [each for each in found.findings if each.proven is is_proven] for is_proven in (True, False)
    )
    if proven:
        yield _findings("findings", say("diagnosis.findings"), proven)
    if found.victims:
        yield Paragraph(say("diagnosis.victims", names=few_names(found.victims)))
    if found.measures:
        yield _loss(found)
    if suspected:
        yield _findings("suspected", say("diagnosis.suspected"), suspected)
    if found.next_steps:
        yield Paragraph(say("diagnosis.next"))
        yield Commands(found.next_steps)
    checks = tuple((phrase_of(each.name), phrase_of(each.result), each.ok, each.seconds) for each in found.checks)
    yield TableBlock("checks", say("diagnosis.checks"), _CHECKS, checks, folded=True)
    for what in found.not_looked_at:
        yield Paragraph(say("diagnosis.not_looked_at", what=phrase_of(what)), note=True)


def _loss(found: Diagnosis) -> TableBlock:
    """What was met: distances beside what is expected, the metric beside that of the float network."""
    rows = [
        (
            _unit(each.what, each.unit),
            each.before,
            None if each.of_task else each.after,
            each.after if each.of_task else None,
            each.samples or found.samples,
        )
        for each in found.measures
    ]
    kept = [at for at in range(len(_LOSS)) if any(row[at] is not None for row in rows)]
    shown = tuple(tuple(row[at] for at in kept) for row in rows)
    return TableBlock("loss", say("diagnosis.loss"), tuple(_LOSS[at] for at in kept), shown)


def _findings(name: str, caption: Phrase, findings: Sequence[Finding]) -> TableBlock:
    """One row for each; those of many places name all of them."""
    rows = [_finding(each) for each in findings]
    if all(each.places == 1 for each in findings):
        return TableBlock(name, caption, _FINDINGS, tuple(rows), cards=True)
    others = [", ".join(each.accused_nodes[1:]) or None for each in findings]
    columns = (*_FINDINGS[:2], _OTHERS, *_FINDINGS[2:])
    cells = tuple((*row[:2], also, *row[2:]) for row, also in zip(rows, others, strict=True))
    return TableBlock(name, caption, columns, cells, cards=True)


def _finding(each: Finding) -> tuple[Cell, ...]:
    measure: tuple[Cell, ...] = (None, None, None)
    if each.measures:
        first = each.measures[0]
        measure = (_unit(first.what, first.unit), first.before, first.after)
    remedy: tuple[Cell, ...] = (None, None)
    if each.remedy is not None:
        remedy = (phrase_of(each.remedy.title), say(f"diagnosis.{_COSTS[each.remedy.cost]}"))
    return (
        each.number,
        each.nodes[0] if each.nodes else None,
        named(f"causes.name_{each.cause}") or each.cause,
        each.share,
        phrase_of(each.summary),
        *remedy,
        *measure,
        phrase_of(each.intervention) if each.intervention else None,
    )


def _repair(repair: Repair) -> Iterator[Block]:
    if repair.measures:
        first = repair.measures[0]
        values = {"before": number(first.before), "after": number(first.after)}
        key = "diagnosis.repaired" if repair.reached else "diagnosis.not_repaired"
        yield Headline("good" if repair.reached else "bad", say(key, what=_unit(first.what, first.unit), **values))
    rows = tuple(
        (
            phrase_of(step.title),
            say(f"diagnosis.{_COSTS[step.cost]}"),
            _unit(step.measure.what, step.measure.unit),
            step.measure.before,
            step.measure.after,
            step.kept,
            phrase_of(step.why) if step.why else None,
        )
        for step in repair.steps
    )
    yield TableBlock("repair", say("diagnosis.repair"), _REPAIR, rows)
    if any(step.kept for step in repair.steps):
        yield Paragraph(say("diagnosis.same_samples"), note=True)


def _unit(what: Message, unit: str) -> Phrase:
    name = phrase_of(what)
    return say("diagnosis.with_unit", what=name, unit=unit) if unit else name
