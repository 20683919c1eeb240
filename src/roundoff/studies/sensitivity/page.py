"""Who hurts most: what stands out, then a ranking for each kind of subject, with intervals."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from roundoff import pages
from roundoff.core.document import RunDocument
from roundoff.core.quantizers import SubjectKind
from roundoff.measure.metrics import mean_of, summary_of
from roundoff.messages.catalogue import (
    Phrase,
    bilingual,
    commas,
    count_of,
    few,
    in_all_languages,
    plain,
    semicolons,
    translate,
)
from roundoff.messages.numbers import in_decibels, named_score, percentage, score_heading, score_text
from roundoff.pages.cards import HeroCard, first_screen, score_figure
from roundoff.pages.coverage import judgement_lines
from roundoff.studies.sensitivity.result import KindVerdict, SensitivityReport, SensitivityRow

SENSITIVITY_CSV_START = "kind,rank,name,node,"
"""How the CSV begins."""

_LISTED, _FIRST = 5, 3
# The one that ranks, and another; a terminal of 80 columns has no room for more.
_SHOWN_METRICS = 2
_SHORT = {"mean_relative_error": "mre"}
_TIE, _UNKNOWN = "~", "?"
# What alone leaves this little of the outputs has to be mended, whatever else is.
_BAD_DB = 15
_TONES: dict[str, pages.Tone] = {
    "stand_out": "bad",
    "no_score": "bad",
    "tied": "open",
    "spread": "open",
    "nothing_lost": "good",
}
_Line = tuple[str, str]


def sensitivity_page(document: RunDocument, view: pages.View = pages.View()) -> pages.Page | None:  # noqa: B008 - frozen
    """The page on sensitivity; None when none was measured.

    Args:
        document: The run.
        view: Rows of each ranking in a terminal, those that hurt most.
    """
    report = document.sensitivity
    if report is None:
        return None
    rankings: list[pages.Block] = []
    for kind, rows in report.rankings.items():
        if rows:
            rankings += _ranking(report, kind, rows, view)
    headline = _headline(report)
    return pages.Page(
        "sensitivity",
        bilingual("sensitivity.title"),
        (
            _first_screen(document, report, headline),
            headline,
            pages.bilingual_facts(lambda: _lines(report)),
            *rankings,
            *_legend(report, view),
            *pages.notes(report.notes),
            *pages.preparation_note(report.preparation),
            rankings_table(report),
        ),
    )


def _first_screen(document: RunDocument, report: SensitivityReport, headline: pages.Headline) -> HeroCard:
    """The first of the ranking, each with where its mean lies for other samples."""
    covered = None if report.judgement is None else report.judgement.coverage
    if not report.verdicts:
        return first_screen(document, headline, covered=covered)
    first, metric = report.verdicts[0], report.metrics[0]
    rows = [row for row in report.rankings[first.kind] if metric in row.scores][:_FIRST]
    figures = [
        score_figure(
            plain(row.name), "quantized", metric=metric, value=row.scores[metric], detail=_reach(row, metric)
        )
        for row in rows
    ]
    text = in_all_languages(lambda: _said(first, report.rankings[first.kind], report))
    return first_screen(document, headline, scores=figures, covered=covered, text=text)


def _reach(row: SensitivityRow, metric: str) -> Phrase:
    ends, samples = row.reach_of(metric), in_all_languages(lambda: count_of(row.samples, "sample"))
    if ends is None:
        return samples
    low, high = (score_text(metric, end, decimals=3).replace("-", "\u2212") for end in ends)
    return bilingual("sensitivity.hero_reach", low=low, high=high, samples=samples)


def _headline(report: SensitivityReport) -> pages.Headline:
    samples = in_all_languages(lambda: _samples(report))
    if not report.verdicts:
        return pages.Headline("bad", samples, "", bilingual("sensitivity.nothing_measured"))
    first = report.verdicts[0]
    kind, of_all = (
        bilingual(f"sensitivity.kind_{first.kind}"),
        in_all_languages(lambda: count_of(first.count, first.kind)),
    )
    gaps = {"kind": kind, "all": of_all, "how": bilingual(f"sensitivity.{report.mode}"), "samples": samples}
    word = bilingual(f"sensitivity.word_{first.standing}", count=len(first.names))
    return pages.Headline(_TONES[first.standing], bilingual(f"sensitivity.{first.standing}", **gaps), "", word)


def _samples(report: SensitivityReport) -> str:
    used = sorted({row.samples for rows in report.rankings.values() for row in rows})
    samples = count_of(used[-1], "sample") if used else translate("sensitivity.no_samples")
    if len(used) > 1:
        samples = translate("sensitivity.between", least=used[0], most=samples)
    return translate(
        "sensitivity.samples" if report.complete else "sensitivity.samples_incomplete", samples=samples
    )


def _lines(report: SensitivityReport) -> Iterator[_Line]:
    yield from judgement_lines(report.judgement)
    for verdict in report.verdicts:
        yield translate(f"sensitivity.{verdict.kind}"), _said(verdict, report.rankings[verdict.kind], report)
    metric = report.metrics[0]
    if report.quantized is not None:
        score = named_score(metric, report.quantized[metric])
        yield translate("sensitivity.quantized"), translate("sensitivity.with_everything", score=score)
    behind = _behind(report)
    if behind:
        yield translate("sensitivity.beware"), behind
    yield translate("sensitivity.at"), few(report.outputs, _LISTED)


def _behind(report: SensitivityReport) -> str:
    """Says when those that stand out are not all that has to be mended, as the others spoil the outputs, too."""
    metric = report.metrics[0]
    first = report.verdicts[0] if report.verdicts else None
    if first is None or first.standing != "stand_out" or report.mode != "alone" or not in_decibels(metric):
        return ""
    others = [row for row in report.rankings[first.kind] if row.name not in first.names]
    bad = sum(row.scores[metric] < _BAD_DB for row in others)
    return translate(f"sensitivity.behind_{first.kind}", count=bad, limit=_BAD_DB) if bad else ""


def _said(verdict: KindVerdict, rows: Sequence[SensitivityRow], report: SensitivityReport) -> str:
    metric = report.metrics[0]
    count, total = len(verdict.names), verdict.count
    names = few(verdict.names, _LISTED)
    share = ""
    if verdict.share is not None:
        share = translate("sensitivity.share", share=percentage(verdict.share), all=total)
    if verdict.standing == "stand_out":
        doubt = translate("sensitivity.chance") if verdict.sure is None else ""
        text = translate("sensitivity.said_stand_out", count=count, all=total, names=names)
        return semicolons(commas(text, share), doubt)
    if verdict.standing == "tied":
        return commas(translate("sensitivity.said_tied", count=count, names=names), share)
    if verdict.standing == "spread":
        return translate("sensitivity.said_spread", all=total, worst=_worst(rows, metric))
    return translate(f"sensitivity.said_{verdict.standing}", all=total)


def _worst(rows: Sequence[SensitivityRow], metric: str) -> str:
    if not rows:
        return ""
    score = named_score(metric, rows[0].scores[metric])
    return translate("sensitivity.worst", name=rows[0].name, score=score)


def _heading(metric: str) -> str:
    return _SHORT.get(metric) or score_heading(metric)


def _ranking(
    report: SensitivityReport, kind: SubjectKind, rows: Sequence[SensitivityRow], view: pages.View
) -> tuple[pages.Block, pages.Block]:
    first, word = report.metrics[0], bilingual(f"sensitivity.{kind}")
    table_id = f"sensitivity-{kind}"
    columns = _columns(report, kind, several=len({row.samples for row in rows[: view.most]}) > 1)
    table = pages.TableBlock(
        table_id,
        bilingual(f"sensitivity.ranking_{report.mode}", kind=word),
        columns,
        tuple(_row(report, kind, row, last=place + 1 == len(rows)) for place, row in enumerate(rows)),
        most=view.most,
    )
    series = (
        pages.Series((first,), in_all_languages(lambda: score_heading(first)), "points"),
        pages.Series(("low", "high"), bilingual("sensitivity.interval"), "band"),
    )
    axes = (bilingual("sensitivity.rank"), pages.metric_axis(first))
    chart = pages.Chart(
        f"{table_id}-chart", bilingual("sensitivity.chart", kind=word), table_id, "rank", series, *axes
    )
    return chart, table


def _columns(report: SensitivityReport, kind: SubjectKind, *, several: bool) -> tuple[pages.Column, ...]:
    first = report.metrics[0]
    drawn: tuple[pages.Place, ...] = ("terminal", "html")
    browsers: tuple[pages.Place, ...] = ("html",)
    terminals: tuple[pages.Place, ...] = ("terminal",)
    score = pages.Column(
        "low",
        bilingual("sensitivity.low"),
        "decibels" if in_decibels(first) else "score",
        on=browsers,
        metric=first,
    )
    # Of what nodes read, the operation that reads it first is known; nothing reads the outputs of the network.
    operation = bilingual("sensitivity.column_reader" if _is_read(kind) else "terminal.operation")
    name = Phrase(kind, bilingual(f"sensitivity.{kind}").zh)
    return (
        pages.Column("rank", plain("#"), "count", on=drawn),
        pages.Column("mark", plain(""), "text", on=terminals),
        pages.Column("name", name, "node" if kind == "node" else "text", on=browsers),
        pages.Column("shown_name", bilingual(f"sensitivity.kind_{kind}"), "node", on=terminals),
        *([] if kind == "node" else [pages.Column("node", bilingual("common.node"), "node", on=browsers)]),
        pages.Column("op_type", bilingual("common.operation"), "text", on=browsers),
        pages.Column("shown_op_type", operation, "text", on=terminals),
        _metric(report, 0),
        score,
        replace(score, id="high", label=bilingual("sensitivity.high")),
        pages.Column("interval", bilingual("sensitivity.column_interval"), "number", on=terminals),
        *(_metric(report, place) for place in range(1, len(report.metrics))),
        pages.Column("told_apart", bilingual("sensitivity.told_apart"), "truth", on=browsers),
        pages.Column(
            "samples", bilingual("sensitivity.column_samples"), "count", on=drawn if several else browsers
        ),
        pages.Column("worst_sample", bilingual("sensitivity.worst_sample"), "text", on=browsers),
    )


def _metric(report: SensitivityReport, place: int) -> pages.Column:
    name = report.metrics[place]
    on: tuple[pages.Place, ...] = ("terminal", "html") if place < _SHOWN_METRICS else ("html",)
    column = pages.metric_column(name, higher_is_better=None, summary=summary_of(name))
    return replace(column, on=on, short=in_all_languages(lambda: _heading(name)))


def _is_read(kind: SubjectKind) -> bool:
    return kind in ("weight", "activation")


def _row(
    report: SensitivityReport, kind: SubjectKind, row: SensitivityRow, *, last: bool
) -> tuple[pages.Cell, ...]:
    first, *others = report.metrics
    low, high = row.reach_of(first) or (None, None)
    between = "" if low is None or high is None else f"{score_text(first, low)} .. {score_text(first, high)}"
    read = row.op_type or (bilingual("sensitivity.output") if _is_read(kind) else "")
    return (
        row.rank,
        "" if last else _mark(row),
        row.name,
        row.name,
        *([] if kind == "node" else [row.node]),
        row.op_type,
        read,
        _value(row, first),
        low,
        high,
        between,
        *(_value(row, name) for name in others),
        row.told_apart,
        row.samples,
        row.worst_sample,
    )


def _mark(row: SensitivityRow) -> str:
    return {True: "", False: _TIE, None: _UNKNOWN}[row.told_apart]


def _value(row: SensitivityRow, metric: str) -> pages.Cell:
    value = row.scores.get(metric)
    return bilingual("terminal.no_score") if value is not None and math.isnan(value) else value


def _legend(report: SensitivityReport, view: pages.View) -> Iterator[pages.Paragraph]:
    """What marks of the rows mean that are shown."""
    marks = {_mark(row) for rows in report.rankings.values() for row in rows[:-1][: view.most]}
    for mark, key in ((_TIE, "legend_tie"), (_UNKNOWN, "legend_unknown")):
        if mark in marks:
            yield pages.Paragraph(bilingual(f"sensitivity.{key}", mark=mark), on=("terminal",))


def rankings_table(report: SensitivityReport) -> pages.TableBlock:
    """All rows of all rankings with all metrics, their intervals, and each output, for the CSV file."""
    names = ["kind", "rank", "name", "node", "op_type", "tensor", "quantizers", "samples", "told_apart_from_next"]
    names.append("worst_sample")
    for metric in report.metrics:
        mean = mean_of(metric)
        names += [metric, *([mean] if mean != metric else []), f"{mean} low", f"{mean} high"]
        names += [f"{metric} at {each}" for each in report.outputs]
    columns = tuple(pages.Column(name, plain(name), "text", on=("csv",)) for name in names)
    rows = tuple(_cells(kind, row, report) for kind, ranked in report.rankings.items() for row in ranked)
    return pages.TableBlock("sensitivity", bilingual("sensitivity.title"), columns, rows, file="sensitivity.csv")


def _cells(kind: str, row: SensitivityRow, report: SensitivityReport) -> tuple[pages.Cell, ...]:
    apart = {None: "unknown", True: "yes", False: "no"}[row.told_apart]
    cells: list[pages.Cell] = [
        kind,
        row.rank,
        row.name,
        row.node,
        row.op_type,
        row.tensor,
        " ".join(row.quantizers),
    ]
    cells += [row.samples, apart, row.worst_sample]
    for metric in report.metrics:
        # What the interval is of: the mean over samples, where the metric itself is not one.
        mean = [] if mean_of(metric) == metric else [row.means.get(metric)]
        cells += [row.scores[metric], *mean, *(row.intervals[metric] or (None, None)), *row.per_output[metric]]
    return tuple(cells)
