"""A layer-by-layer report for people: a verdict of a few lines, then a table."""

import csv
import io
import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from roundoff.messages.catalogue import told
from roundoff.messages.phrases import commas, count_of, headline, semicolons
from roundoff.messages.sanitize import safe_cell, short_name
from roundoff.messages.sentences import sentence
from roundoff.pages.terminal import left_out_lines, note_lines
from roundoff.studies.layers.result import Culprit, LayerReport, LayerRow, LayerScore

__all__ = [
    "LayerSort",
    "layers_csv",
    "layers_table",
    "layers_verdict",
    "sorted_rows",
]


# Rows of a layer-by-layer report: their order, and as CSV.

LayerSort = Literal["order", "worst"]

_COLUMNS = (
    "order", "node", "op_type", "unit", "tensor", "shape", "dtype", "quantized", "output", "samples", "levels",
    "clipped",
)  # fmt: skip
_SCORES = tuple(field.name for field in fields(LayerScore) if field.name != "sample_sqnr_db")
_LAST = (
    "introduced_sqnr_db", "introduced_channel_sqnr_db", "output_share", "cause", "differing_codes",
    "distant_codes",
)  # fmt: skip


def sorted_rows(rows: Sequence[LayerRow], sort: LayerSort) -> list[LayerRow]:
    """The rows in execution order, or those first that matter most.

    That is what cannot be scored, then what adds most to the outputs' error, then what has the largest error.
    """
    return list(rows) if sort == "order" else sorted(rows, key=_badness)


def _badness(row: LayerRow) -> tuple[bool, float, float]:
    """Smaller is worse."""
    scores = [score for score in (row.local, row.accumulated) if score is not None]
    scored = all(score.sqnr_db is not None and score.status != "nonfinite" for score in scores)
    share = 0.0 if row.introduced is None else row.introduced.output_share
    levels = [math.inf if score.sqnr_db is None else score.sqnr_db for score in scores]
    return scored, -share, min(levels, default=math.inf)


def layers_csv(report: LayerReport) -> str:
    """All rows in execution order with everything that is known of them; what does not exist is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out)
    scores = [f"{method}_{name}" for method in ("local", "accumulated") for name in _SCORES]
    writer.writerow((*_COLUMNS, *scores, *_LAST))
    for row in report.rows:
        values = [getattr(row, name) for name in _COLUMNS]
        for score in (row.local, row.accumulated):
            values += [None if score is None else getattr(score, name) for name in _SCORES]
        added = row.introduced
        values += [None] * 4 if added is None else [
            added.sqnr_db, added.channel_sqnr_db, added.output_share, added.cause,
        ]  # fmt: skip
        writer.writerow([_cell(value) for value in (*values, row.differing_codes, row.distant_codes)])
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return safe_cell(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return "" if value is None else value


_LISTED = 3
# A channel is told of when it is this bad, and so much worse than its tensor.
_BAD_CHANNEL_DB, _WORSE_DB = 10.0, 10.0
# From this width on a table has room for every column.
_WIDE_COLUMNS = 150
# So much better without weights than without activations, or the reverse: it is the former, or the latter.
_CLEAR_DB = 6.0
# What stands in a narrow column for a tensor without a score; documents have the whole word.
_NO_SCORE = {"nonfinite": "NaN/inf", "unreadable": "n/a"}
_Line = tuple[str, str]


def layers_verdict(report: LayerReport) -> RenderableType:
    """What a busy person reads: is the loss local, how good are the outputs, who makes it, what was run."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    lines = (_outputs, _culprits, _tried, _integers, _limits)
    for label, text in (line for part in lines for line in part(report)):
        grid.add_row(f"  {label}", Text(text))
    return Group(_headline(report), grid)


def _headline(report: LayerReport) -> Text:
    verdict = report.verdict
    word = told(f"layers_text.word_{verdict.kind}")
    if verdict.kind == "open":
        return headline(word, "bold yellow", _why_open(report))
    if verdict.kind == "local":
        text = told(
            "layers_text.local", few=len(verdict.culprits), all=verdict.contributors, gain=_gain(report)
        ).rstrip()
        return headline(word, "bold red", text)
    if verdict.kind == "distributed":
        text = told("layers_text.distributed")
        if verdict.after is not None:
            text = told("layers_text.distributed_tried", tried=len(verdict.tried), gain=_gain(report))
        return headline(word, "bold red" if not verdict.agrees else "bold yellow", text)
    if _weights_unknown(report):
        return headline(word, "bold yellow", told("layers_text.fine_activations"))
    return headline(word, "bold green", told("layers_text.fine"))


def _why_open(report: LayerReport) -> str:
    if report.method != "both":
        return told("layers_text.open_method", method=told(f"layers_text.method_{report.method}"))
    if _damaged(report):
        return told("layers_text.open_damaged")
    if report.verdict.agrees is not None and not _weights_unknown(report):
        return told("layers_text.open_partly")
    return told("layers_text.open_unjudged")


def _weights_unknown(report: LayerReport) -> bool:
    return any(text.startswith("weights are not judged") for text in report.verdict.not_judged)


def _damaged(report: LayerReport) -> bool:
    return any(row.output and row.accumulated and row.accumulated.status == "nonfinite" for row in report.rows)


def _gain(report: LayerReport) -> str:
    verdict = report.verdict
    if verdict.before is None or verdict.after is None:
        return ""
    return told(
        "layers_text.gain",
        tried=len(verdict.tried),
        outputs=len(verdict.outputs),
        before=_db(verdict.before.sqnr_db),
        after=_db(verdict.after.sqnr_db),
        samples=count_of(verdict.samples, "sample"),
    )


def _outputs(report: LayerReport) -> Iterator[_Line]:
    rows = {row.tensor: row for row in report.rows}
    outputs = report.verdict.outputs
    if not outputs or (report.verdict.kind == "open" and _weights_unknown(report)):
        return
    score = rows[outputs[0]].accumulated
    text = told("layers_text.score", name=outputs[0], score=_in_words(score))
    if len(outputs) > 1:
        text = told("layers_text.worst_output", text=text, count=len(outputs) - 1)
        mute = [name for name in outputs if (found := rows[name].accumulated) and found.sqnr_db is None]
        text = commas(text, told("layers_text.mute", names=_listed(mute)) if mute else "")
    if report.verdict.agrees is False:
        text = semicolons(text, told("layers_text.misses", limits=report.verdict.thresholds))
    yield told("layers_text.output") if len(outputs) == 1 else told("layers_text.outputs"), text


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:_LISTED])}{' ...' * (len(names) > _LISTED)}"


def _culprits(report: LayerReport) -> Iterator[_Line]:
    culprits = report.verdict.culprits
    rows = {row.tensor: row for row in report.rows}
    for index, each in enumerate(culprits[:_LISTED]):
        yield "" if index else told("layers_text.caused_by"), _culprit(each, rows.get(each.tensor))
    if len(culprits) > _LISTED:
        names = ", ".join(each.node or each.tensor for each in culprits[_LISTED:])
        yield "", told("layers_text.and_these", names=names)
    if culprits:
        rules = [rule for each in culprits for rule in each.remedy]
        yield told("layers_text.remedy"), " ".join(f"--set {shlex.quote(rule)}" for rule in rules)
    if report.verdict.masked:
        yield told("layers_text.also"), told("layers_text.masked", names=_listed(report.verdict.masked))


def _culprit(each: Culprit, row: LayerRow | None) -> str:
    local = None if row is None or row.local is None else row.local.sqnr_db
    local_text = "" if local is None else told("layers_text.local_db", db=_db(local))
    parts = [_how(each, row), commas(local_text, _channels(each, local))]
    if each.quantized_again is not None:
        parts.append(told("layers_text.again", db=_db(each.quantized_again.sqnr_db)))
    return told("layers_text.score", name=_who(each), score=semicolons(*parts))


def _who(each: Culprit) -> str:
    if not each.node:
        return told("layers_text.culprit_input", tensor=each.tensor)
    names = {"node": each.node, "op": each.op_type}
    if each.weighted != each.node:
        return told("layers_text.culprit_after", weighted=each.weighted, **names)
    if each.tensor != each.node:
        return told("layers_text.culprit_at", tensor=each.tensor, **names)
    return told("layers_text.culprit", **names)


def _how(each: Culprit, row: LayerRow | None) -> str:
    cause = each.introduced.cause
    if cause == "clipping":
        how = told("layers_text.clipping", share=_percent(each.clipped))
    elif cause == "rounding":
        how = told("layers_text.rounding", levels=_levels(row) if row else each.used_levels)
    else:
        how = told("layers_text.weights") if cause == "weights" else told("layers_text.integer")
    if each.result_again is not None and len(each.remedy) > 1:  # both parts were measured to matter
        more = told("layers_text.and_result") if cause == "weights" else told("layers_text.and_weights")
        return commas(how, more)
    return how


def _channels(each: Culprit, local: float | None) -> str:
    """The worst channel, where it is much worse than the tensor."""
    worst = each.worst_channel_sqnr_db
    if local is None or worst is None or worst > min(_BAD_CHANNEL_DB, local - _WORSE_DB):
        return ""
    text = told("layers_text.channel", channel=each.worst_channel, db=_db(worst))
    if not each.lost_channels:
        return text
    return told("layers_text.lost_channels", text=text, lost=each.lost_channels, all=each.channels)


def _adding_most(report: LayerReport, count: int) -> set[str]:
    """The tensors that are estimated to add most, by which the table is ordered."""
    shares = {row.tensor: row.introduced.output_share for row in report.rows if row.introduced is not None}
    return set(sorted(shares, key=shares.__getitem__, reverse=True)[:count])


def _tried(report: LayerReport) -> Iterator[_Line]:
    verdict = report.verdict
    if verdict.kind != "distributed":
        return
    if verdict.tried:
        names = ", ".join(verdict.tried)
        most = _adding_most(report, len(verdict.tried))
        if most and set(verdict.tried) != most:
            names = told("layers_text.tried_by_own", names=names)
        yield told("layers_text.tried"), names
    if verdict.float_weights is not None and verdict.float_activations is not None:
        weights, activations = verdict.float_weights.sqnr_db, verdict.float_activations.sqnr_db
        text = told("layers_text.sides", weights=_db(weights), activations=_db(activations))
        clear = abs(weights - activations) >= _CLEAR_DB
        side = "weights" if weights > activations else "activations"
        yield told("layers_text.besides"), told(f"layers_text.side_{side}", text=text) if clear else text
        yield told("layers_text.next"), told(f"layers_text.next_{side if clear else 'both'}")


def _limits(report: LayerReport) -> Iterator[_Line]:
    for text in report.verdict.not_judged:
        yield told("layers_text.beware"), sentence(text)
    samples = count_of(len(report.samples), "sample")
    yield told("layers_text.run"), semicolons(sentence(report.quantized), sentence(report.arithmetic), samples)


def _integers(report: LayerReport) -> Iterator[_Line]:
    if report.overflows:
        first = report.overflows[0]
        more = len(report.overflows) - 1
        text = f"{first.node} ({first.op_type}): {first.text}"
        text = told("layers_text.overflow_more", text=text, count=more) if more else text
        yield told("layers_text.overflow"), text
    if report.float_nodes:
        nodes = count_of(len(report.float_nodes), "node")
        yield (
            told("layers_text.run_float"),
            told("layers_text.score", name=nodes, score=_listed(tuple(report.float_nodes))),
        )


@dataclass(frozen=True, slots=True)
class _Column:
    """One column: its heading, what a row has in it, and whether only wide tables have room for it."""

    heading: str
    cell: Callable[[LayerRow], str]
    wide: bool = False


def _columns(report: LayerReport) -> list[_Column]:
    """The columns of a report in their order."""
    columns = [
        _Column(told("layers_text.column_type"), lambda row: row.quantized),
        _Column(told("layers_text.column_shape"), lambda row: "x".join(map(str, row.shape)), wide=True),
    ]
    if report.method != "accumulated":
        columns += _score_columns("local", lambda row: row.local)
    if report.method != "local":
        columns += _score_columns("accumulated", lambda row: row.accumulated)
    columns.append(_Column(told("layers_text.column_clip"), lambda row: _percent(row.clipped)))
    columns.append(_Column(told("layers_text.column_levels"), _levels))
    if report.method == "both":
        columns.append(_Column(told("layers_text.column_adds"), _adds))
    if report.mode == "integer":
        differ = told("layers_text.column_differ")
        columns.append(_Column(differ, lambda row: _percent(row.differing_codes), wide=True))
    return columns


def _adds(row: LayerRow) -> str:
    return _percent(row.introduced.output_share) if row.introduced else ""


def _score_columns(name: str, score: Callable[[LayerRow], LayerScore | None]) -> list[_Column]:
    def cell(show: Callable[[LayerScore], str]) -> Callable[[LayerRow], str]:
        def shown(row: LayerRow) -> str:
            found = score(row)
            return "" if found is None else show(found)

        return shown

    heading = told(f"layers_text.column_{name}")
    return [
        _Column(f"{heading}\ndB", cell(_score_db)),
        _Column(
            told("layers_text.column_cosine"), cell(lambda found: _cosine(found.cosine)), wide=name == "local"
        ),
        _Column(
            told("layers_text.column_steps"), cell(lambda found: _number(found.rms_steps)), wide=name != "local"
        ),
        _Column(told("layers_text.column_max"), cell(lambda found: _number(found.max_steps)), wide=True),
        _Column("mse", cell(lambda found: "" if found.mse is None else f"{found.mse:.2e}"), wide=True),
        _Column(told("layers_text.column_channel"), cell(_worst_channel), wide=True),
    ]


@dataclass(frozen=True, slots=True)
class _LayerTable:
    """A table that has as many columns as there is room for."""

    report: LayerReport
    rows: Sequence[LayerRow]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = [
            column for column in _columns(self.report) if not column.wide or options.max_width >= _WIDE_COLUMNS
        ]
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        table.add_column("#", justify="right", no_wrap=True)
        table.add_column(told("common.tensor"), overflow="fold", min_width=10)
        table.add_column(told("terminal.operation"), overflow="ellipsis", no_wrap=True, max_width=8)
        for column in columns:
            table.add_column(column.heading, justify="right", no_wrap=True)
        for row in self.rows:
            name = Text(short_name(row.tensor), style="bold" if row.output else "")
            table.add_row(str(row.order), name, Text(row.op_type), *(column.cell(row) for column in columns))
        yield table


def layers_table(report: LayerReport, *, sort: LayerSort = "worst", most: int | None = None) -> RenderableType:
    """One line per tensor.

    Args:
        report: What to show.
        sort: What matters most first, or execution order.
        most: Show at most so many rows, and say how many were left out; all when None.
    """
    rows = sorted_rows(report.rows, sort)
    # In execution order too it is the rows that matter least for which there is no room.
    chosen = {row.order for row in sorted_rows(report.rows, "worst")[:most]}
    kept = [row for row in rows if row.order in chosen]
    parts: list[RenderableType] = [_LayerTable(report, kept)]
    parts += left_out_lines(len(rows) - len(kept))
    parts.append(Text(_legend(report), style="dim"))
    parts += note_lines(report.notes, report.preparation)
    return Group(*parts)


def _legend(report: LayerReport) -> str:
    """What the columns mean that do not say it themselves."""
    words = [told("layers_text.legend_db")]
    if report.method != "accumulated":
        words.append(told("layers_text.legend_local"))
    if report.method != "local":
        words.append(told("layers_text.legend_accumulated"))
    words += [told("layers_text.legend_steps"), told("layers_text.legend_levels")]
    if report.method == "both":
        words.append(told("layers_text.legend_adds"))
    return semicolons(*words)


def _in_words(score: LayerScore | None) -> str:
    if score is None or score.sqnr_db is None:
        return told("terminal.no_score") if score is None else score.detail
    text = told("layers_text.in_words", db=_db(score.sqnr_db), cosine=_cosine(score.cosine))
    return told("layers_text.nonfinite", text=text, detail=score.detail) if score.status == "nonfinite" else text


def _score_db(score: LayerScore) -> str:
    if score.sqnr_db is None and score.status == "degenerate":
        return told("layers_text.empty")
    if score.sqnr_db is None:
        return _NO_SCORE.get(score.status, score.status)
    return f"({_db(score.sqnr_db)})" if score.status == "nonfinite" else _db(score.sqnr_db)


def _worst_channel(score: LayerScore) -> str:
    if score.worst_channel is None or score.worst_channel_sqnr_db is None:
        return ""
    return f"{score.worst_channel}: {_db(score.worst_channel_sqnr_db)}"


def _levels(row: LayerRow) -> str:
    score = row.local or row.accumulated
    return "" if score is None or score.used_levels is None else f"{score.used_levels}/{row.levels}"


def _db(value: float) -> str:
    return f"{value:.1f}"


def _cosine(value: float | None) -> str:
    # 1.00000 is shown only for what really is 1: rounding up would hide a difference.
    return "" if value is None else f"{math.floor(value * 1e5) / 1e5:.5f}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if value < 100 else f"{value:.0f}" if value < 1e5 else f"{value:.0e}"


def _percent(share: float | None) -> str:
    """A share in per cent that is 0 or 100 only when it really is."""
    if share is None:
        return ""
    if 0 < share < 0.0005:
        return "<0.1%"
    if share < 0.0995:
        return f"{100 * share:.1f}%"
    return ">99%" if 0.995 <= share < 1 else f"{100 * share:.0f}%"
