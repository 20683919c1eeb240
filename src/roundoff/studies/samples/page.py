"""Which samples suffer most."""

from roundoff.core.document import RunDocument
from roundoff.measure.metrics import summary_of
from roundoff.messages.catalogue import plain, say
from roundoff.pages.blocks import Column, Page, Table, metric_column, notes

__all__ = ["samples_page"]


def samples_page(document: RunDocument) -> Page | None:
    """The page on the worst samples; None when they were not ranked."""
    found = document.worst_samples
    if found is None:
        return None
    columns = (
        Column("rank", plain("#"), "count"),
        Column("sample", say("samples.sample"), "text"),
        metric_column(
            found.metrics[0], higher_is_better=found.higher_is_better, summary=summary_of(found.metrics[0])
        ),
        Column("moved_top", say("samples.moved"), "count", higher_is_better=False),
    )
    rows = tuple((each.rank, each.sample, each.score, each.moved_top) for each in found.samples)
    table = Table("samples", say("samples.table"), columns, rows)
    return Page("samples", say("samples.title"), (table, *notes(found.notes)))
