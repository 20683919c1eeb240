"""A search for the cheapest quantization that meets a goal: its answer, and every trial."""

from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import plain, say
from roundoff.messages.numbers import percentage, score_text
from roundoff.messages.sentences import known
from roundoff.pages.blocks import (
    Cell,
    Chart,
    Column,
    Headline,
    Page,
    Paragraph,
    Series,
    Table,
    metric_axis,
    metric_column,
    notes,
)
from roundoff.search.result import Trial, Tuning

__all__ = ["tuning_page"]


def tuning_page(document: RunDocument) -> Page | None:
    """The page on a search; None when there was none."""
    found = document.tuning
    if found is None:
        return None
    columns = (
        Column("number", plain("#"), "count"),
        Column("change", say("tuning.change"), "text"),
        metric_column(found.metric, higher_is_better=found.higher_is_better),
        Column("loss", say("tuning.loss"), "number", higher_is_better=False),
        Column("cost", say("tuning.cost"), "number", higher_is_better=False),
        Column("met", say("tuning.goal_met"), "truth"),
        *((Column("front", say("tuning.on_front"), "truth", say("tuning.on_front_help")),) if found.front else ()),
        Column("samples", say("sensitivity.column_samples"), "count"),
        Column("seconds", say("tuning.seconds"), "seconds"),
    )
    table = Table("trials", say("tuning.history"), columns, tuple(_row(found, each) for each in found.trials))
    series = [Series((found.metric,), say("tuning.trial"), "points")]
    if found.front:
        series.append(Series((found.metric,), say("tuning.on_front"), "line", only=("front", "1")))
    axes = (say("tuning.cost_axis"), metric_axis(found.metric))
    chart = Chart("trials-chart", say("tuning.front"), "trials", "cost", tuple(series), *axes)
    return Page(
        "tuning", say("tuning.title"), (_headline(found), _remaining(found), chart, table, *notes(found.notes))
    )


def _headline(found: Tuning) -> Headline:
    missed = found.verdict == "best_effort"
    text = say(
        "tuning.missed" if missed else "tuning.met",
        metric=found.metric,
        score=score_text(found.metric, found.best.score),
        goal=known(found.goal),
        float_score=score_text(found.metric, found.float_score),
    )
    return Headline("bad" if missed else "good", text, f"tuning_{found.verdict}")


def _remaining(found: Tuning) -> Paragraph:
    left = found.remaining
    share = left.products / left.all_products if left.all_products else 1.0
    return Paragraph(say("tuning.remaining", nodes=left.nodes, all=left.all_nodes, products=percentage(share)))


def _row(found: Tuning, trial: Trial) -> tuple[Cell, ...]:
    return (
        trial.number,
        known(trial.change),
        trial.score,
        trial.loss,
        trial.cost,
        trial.met,
        *((trial.number in found.front,) if found.front else ()),
        trial.samples,
        trial.seconds,
    )
