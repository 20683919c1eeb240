"""Two sets of tensors: what differs, where it started, how tensors were matched."""

from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import plain, say
from roundoff.messages.numbers import shape_text
from roundoff.pages.blocks import (
    NODE_COLUMNS,
    Block,
    Cell,
    Chart,
    Column,
    Headline,
    Page,
    Paragraph,
    Series,
    Table,
    Tone,
    few_names,
    metric_column,
    notes,
)
from roundoff.pages.coverage import coverage_phrase
from roundoff.studies.compare.result import Comparison, TensorComparison, was_not_read

__all__ = ["comparison_page"]

_METRICS = {"cosine": True, "sqnr_db": True, "relative_euclidean": False, "max_abs_error": False}

_COLUMNS = (
    Column("order", plain("#"), "count"),
    Column("reference", say("common.tensor"), "text"),
    Column("passed", say("comparison.passed"), "truth"),
    Column("role", say("comparison.role"), "text"),
    *(metric_column(name, higher_is_better=higher) for name, higher in _METRICS.items()),
    Column("difference", say("comparison.difference"), "text"),
    *NODE_COLUMNS,
    Column("candidate", say("comparison.partner"), "text"),
    Column("shape", say("common.shape"), "text"),
    Column("how", say("comparison.matched_by"), "text"),
    Column("confidence", say("comparison.confidence"), "share"),
    Column("layout", say("comparison.layout"), "text"),
)


def comparison_page(document: RunDocument) -> Page | None:
    """The page on a comparison; None when none was made."""
    found = document.comparison
    if found is None:
        return None
    table = Table("tensors", say("comparison.table"), _COLUMNS, tuple(map(_row, found.rows)))
    shown: tuple[Block, ...] = (_chart(), table) if found.rows else ()
    return Page("comparison", say("comparison.title"), (*_verdict(found), *shown, *notes(found.notes)))


def _chart() -> Chart:
    series = (Series(("sqnr_db",), plain("sqnr_db"), "points"),)
    axes = (say("common.place_axis"), say("common.sqnr_axis"))
    return Chart("tensors-along", say("comparison.along"), "tensors", "order", series, *axes)


def _verdict(found: Comparison) -> tuple[Block, ...]:
    verdict = found.verdict
    outputs = found.outputs
    unjudged: tuple[Block, ...] = ()
    if outputs is not None and not outputs.complete:
        unjudged = (Paragraph(coverage_phrase(outputs, other="candidate")),)
    if not verdict.failed:
        tone: Tone = "good" if found.state == "pass" else "open"
        key = "comparison.agrees" if found.state == "pass" else "comparison.incomplete"
        return (Headline(tone, say(key, compared=verdict.compared)), *unjudged)
    unread = [row.reference for row in found.rows if row.passed is False and was_not_read(row)]
    if len(unread) == verdict.failed:
        text = say("comparison.not_read", count=len(unread), names=few_names(unread))
    else:
        first = verdict.first_divergence or few_names(verdict.worst)
        text = say("comparison.differs", failed=verdict.failed, compared=verdict.compared, first=first)
    blocks: list[Block] = [Headline("bad", text), *unjudged]
    if verdict.introduces:
        blocks.append(Paragraph(say("comparison.introduces", names=few_names(verdict.introduces))))
    if verdict.victims:
        blocks.append(Paragraph(say("comparison.victims", count=len(verdict.victims))))
    if found.unmatched_reference or found.unmatched_candidate:
        counts = {"reference": len(found.unmatched_reference), "candidate": len(found.unmatched_candidate)}
        blocks.append(Paragraph(say("comparison.unmatched", **counts)))
    return tuple(blocks)


def _row(row: TensorComparison) -> tuple[Cell, ...]:
    return (
        row.order,
        row.reference,
        row.passed,
        say(f"comparison.role_{row.role}") if row.role else None,
        *(row.score.values.get(name) for name in _METRICS),
        row.difference or row.score.detail,
        row.node,
        row.op_type,
        row.candidate,
        shape_text(row.shapes[0]),
        row.how,
        row.confidence,
        row.layout,
    )
