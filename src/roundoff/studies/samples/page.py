"""Which samples suffer most."""

from collections.abc import Iterator
from dataclasses import replace

from roundoff import pages
from roundoff.core.document import RunDocument
from roundoff.measure.metrics import summary_of
from roundoff.messages.catalogue import bilingual, commas, in_all_languages, plain, semicolons, translate
from roundoff.messages.numbers import decibels_with_unit, in_decibels, named_score, score_text
from roundoff.pages.coverage import judgement_lines
from roundoff.studies.samples.result import OutputScore, SampleScore, WorstSamples

WORST_SAMPLES_CSV_START = "rank,sample,index,score,moved_top"
"""By this an earlier table of ours is known."""

# A terminal of 80 columns has room for so many metrics.
_NARROW_METRICS = 4


def samples_page(document: RunDocument, view: pages.View = pages.View()) -> pages.Page | None:  # noqa: B008 - frozen
    """The page on the worst samples; None when they were not ranked.

    Args:
        document: The run.
        view: Rows in a terminal.
    """
    found = document.worst_samples
    if found is None:
        return None
    return pages.Page(
        "samples",
        bilingual("samples.title"),
        (
            pages.Headline("plain", in_all_languages(lambda: _headline(found))),
            pages.bilingual_facts(lambda: judgement_lines(found.judgement)),
            _table(found, view),
            *pages.notes(found.notes),
            *pages.preparation_note(found.preparation),
        ),
    )


def _headline(worst: WorstSamples) -> str:
    metric, total = worst.metrics[0], len(worst.samples)
    if not total or worst.unscored == total:
        return translate("samples.no_score", count=worst.unscored)
    first = worst.samples[0]
    score = translate("terminal.no_score") if first.score is None else named_score(metric, first.score)
    name = first.sample or translate("samples.only")
    text = translate("samples.worst", count=total, sample=name, score=score)
    if worst.median is not None:
        median = decibels_with_unit(worst.median) if in_decibels(metric) else score_text(metric, worst.median)
        text = commas(text, translate("samples.median", value=median))
    if worst.moved_top is not None:
        text = semicolons(text, translate("samples.moves", count=worst.moved_top, all=total))
    if worst.unscored:
        text = semicolons(text, translate("samples.unscored", count=worst.unscored))
    return text


def _table(worst: WorstSamples, view: pages.View) -> pages.TableBlock:
    """All samples, the worst first; of several outputs people see the worst, files all."""
    outputs = worst.samples[0].outputs if worst.samples else ()
    has_rows = any(output.rows for each in worst.samples for output in each.outputs)
    drawn: tuple[pages.Place, ...] = ("terminal", "html")
    hidden: tuple[pages.Place, ...] = ("csv",)
    columns = (
        pages.Column("rank", plain("#"), "count"),
        pages.Column("sample", bilingual("samples.sample"), "text", on=("html", "csv")),
        # Names of files may be long.
        pages.Column("shown_sample", bilingual("samples.sample"), "node", on=("terminal",)),
        pages.Column("index", plain("index"), "count", on=hidden),
        pages.Column("score", plain("score"), "number", on=hidden),
        pages.Column("moved_top", bilingual("samples.moved"), "count", higher_is_better=False, on=("html", "csv")),
        pages.Column("output", bilingual("samples.column_output"), "text", on=drawn if len(outputs) > 1 else ()),
        *(_metric(worst, place) for place in range(len(worst.metrics))),
        pages.Column("moved", bilingual("samples.column_moved"), "number", on=("terminal",) if has_rows else ()),
        *(
            pages.Column(f"{output.output} {name}", plain(name), "text", on=hidden)
            for output in outputs
            for name in ("status", *worst.metrics, "rows", "moved_top")
        ),
    )
    rows = tuple(tuple(_cells(worst, each)) for each in worst.samples)
    return pages.TableBlock(
        "samples", bilingual("samples.table"), columns, rows, file="samples.csv", most=view.most
    )


def _metric(worst: WorstSamples, place: int) -> pages.Column:
    name = worst.metrics[place]
    better = worst.higher_is_better if place == 0 else None
    column = pages.metric_column(name, higher_is_better=better, summary=summary_of(name))
    return replace(column, on=("terminal", "html"), wide=place >= _NARROW_METRICS)


def _cells(worst: WorstSamples, each: SampleScore) -> Iterator[pages.Cell]:
    output = _worst_output(each, worst)
    yield from (each.rank, each.sample, each.sample, each.index, each.score, each.moved_top, output.output)
    yield from (output.values.get(metric) for metric in worst.metrics)
    yield bilingual("samples.moved_of", moved=each.moved_top, rows=sum(one.rows for one in each.outputs))
    for one in each.outputs:
        yield one.status
        yield from (one.values.get(metric) for metric in worst.metrics)
        yield from (one.rows, one.moved_top)


def _worst_output(each: SampleScore, worst: WorstSamples) -> OutputScore:
    def badness(output: OutputScore) -> float:
        value = output.values.get(worst.metrics[0])
        if value is None:
            return float("-inf")
        return value if worst.higher_is_better else -value

    return min(each.outputs, key=badness)
