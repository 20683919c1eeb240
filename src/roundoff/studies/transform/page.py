"""What transforms and corrections did, and whether they were kept."""

from functools import partial

from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import in_all, say
from roundoff.messages.numbers import decibels, score_text
from roundoff.messages.sentences import known
from roundoff.pages.blocks import Block, Column, Headline, Page, Paragraph, Table, notes

__all__ = ["transform_page"]

_COLUMNS = (
    Column("step", say("transform.step"), "text"),
    Column("node", say("common.node"), "node"),
    Column("role", say("transform.role"), "text"),
    Column("text", say("transform.done"), "text"),
)


def transform_page(document: RunDocument) -> Page | None:
    """The page on transforms; None when there were none."""
    report = document.transform
    if report is None:
        return None
    before, after = (in_all(partial(decibels, each)) for each in report.sqnr_db)
    key = "transform.kept" if report.kept else "transform.undone"
    blocks: list[Block] = [Headline("good" if report.kept else "bad", say(key, before=before, after=after))]
    if report.score is not None:
        found = {name: score_text(report.score.name, getattr(report.score, name)) for name in _SCORES}
        blocks.append(Paragraph(say("transform.score", name=report.score.name, **found)))
    rows = tuple(
        (step.name, each.node, each.role, known(each.text)) for step in report.steps for each in step.taken
    )
    blocks.append(Table("transforms", say("transform.nodes"), _COLUMNS, rows))
    said = [note for step in report.steps for note in step.notes]
    return Page("transform", say("transform.title"), (*blocks, *notes(said, report.notes)))


_SCORES = ("before", "after", "reference")
