"""What it brings to leave more and more in float or 16 bits: the curve, and its knee."""

from roundoff.core.document import RunDocument
from roundoff.measure.metrics import summary_of
from roundoff.messages.catalogue import plain, say
from roundoff.messages.numbers import score_text
from roundoff.pages.blocks import Chart, Column, Headline, Page, Series, Table, metric_axis, metric_column, notes
from roundoff.studies.partial.result import PartialQuantization

__all__ = ["partial_page"]


def partial_page(document: RunDocument) -> Page | None:
    """The page on partial quantization; None when none was tried."""
    found = document.partial
    if found is None:
        return None
    columns = (
        Column("count", say("partial.count"), "count"),
        Column("subject", say("partial.subject"), "node"),
        Column("op_type", say("common.operation"), "text"),
        metric_column(found.score, higher_is_better=found.higher_is_better, summary=summary_of(found.score)),
        Column("share", say("partial.share"), "share", higher_is_better=True),
    )
    rows = tuple((step.count, step.subject, step.op_type, step.score, step.share) for step in found.steps)
    table = Table("partial", say("partial.table"), columns, rows)
    chart = Chart(
        "partial-chart",
        say("partial.curve", to=found.to),
        "partial",
        "count",
        (Series((found.score,), plain(found.score)),),
        say("partial.count_axis", to=found.to),
        metric_axis(found.score),
        marks=() if found.knee is None else ((found.knee, say("partial.mark")),),
    )
    return Page("partial", say("partial.title"), (_headline(found), chart, table, *notes(found.notes)))


def _headline(found: PartialQuantization) -> Headline:
    if found.knee is None:
        return Headline("bad", say("partial.missed", to=found.to, goal=found.goal.text))
    step = next(step for step in found.steps if step.count == found.knee)
    text = say(
        "partial.knee",
        count=found.knee,
        all=len(found.subjects),
        to=found.to,
        goal=found.goal.text,
        score=score_text(found.score, step.score),
    )
    return Headline("good", text)
