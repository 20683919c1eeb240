"""A layer-by-layer report for people: a verdict of a few lines, then a table."""

import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from roundoff.core.harmless import short_name
from roundoff.core.layer_scores import Culprit, LayerReport, LayerRow, LayerScore
from roundoff.core.wording import counted
from roundoff.report.layer_rows import LayerSort, layers_csv, sorted_rows
from roundoff.report.notes import left_out_lines, note_lines

__all__ = ["LayerSort", "layers_csv", "layers_table", "layers_verdict"]

_LISTED = 3
# A channel is told of when it is this bad, and so much worse than its tensor.
_BAD_CHANNEL_DB, _WORSE_DB = 10.0, 10.0
# From this width on a table has room for every column.
_WIDE_COLUMNS = 150
# So much better without weights than without activations, or the reverse: it is the former, or the latter.
_CLEAR_DB = 6.0
# What stands in a narrow column for a tensor without a score; documents have the whole word.
_NO_SCORE = {"nonfinite": "NaN/inf", "unreadable": "n/a", "degenerate": "empty"}
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
    if verdict.kind == "open":
        text = ": outputs hold NaN or infinite values" if _damaged(report) else ": nothing of it could be judged"
        if verdict.agrees is not None and not _damaged(report) and not _weights_unknown(report):
            text = ": what could be judged agrees, but not all that is quantized could be"
        if report.method != "both":
            text = f": only {report.method} errors were measured; --method both tells local from distributed"
        return Text("OPEN", style="bold yellow") + Text(text)
    if verdict.kind == "local":
        few = f"{len(verdict.culprits)} of {counted(verdict.contributors, 'unit')}"
        return Text("LOCAL", style="bold red") + Text(f": {few} in float {_gain(report)}")
    if verdict.kind == "distributed":
        text = ": no few units are the cause"
        if verdict.after is not None:
            text = f": no few units are the cause; the {len(verdict.tried)} tried in float {_gain(report)}"
        return Text("DISTRIBUTED", style="bold red" if not verdict.agrees else "bold yellow") + Text(text)
    if _weights_unknown(report):
        text = " as far as activations go: the outputs agree and no unit stands out"
        return Text("FINE", style="bold yellow") + Text(text)
    return Text("FINE", style="bold green") + Text(": the outputs agree and no unit stands out")


def _weights_unknown(report: LayerReport) -> bool:
    return any(text.startswith("weights are not judged") for text in report.verdict.not_judged)


def _damaged(report: LayerReport) -> bool:
    return any(row.output and row.accumulated and row.accumulated.status == "nonfinite" for row in report.rows)


def _gain(report: LayerReport) -> str:
    verdict = report.verdict
    if verdict.before is None or verdict.after is None:
        return ""
    what = "the output" if len(verdict.outputs) == 1 else "the worst output"
    singular = len(verdict.tried) == 1
    change = f"{_db(verdict.before.sqnr_db)} to {_db(verdict.after.sqnr_db)} dB"
    where = f"measured on {counted(verdict.samples, 'sample')}"
    return f"{'brings' if singular else 'bring'} {what} from {change} ({where})"


def _outputs(report: LayerReport) -> Iterator[_Line]:
    rows = {row.tensor: row for row in report.rows}
    outputs = report.verdict.outputs
    if not outputs or (report.verdict.kind == "open" and _weights_unknown(report)):
        return
    score = rows[outputs[0]].accumulated
    text = f"{outputs[0]}: {_in_words(score)}"
    if len(outputs) > 1:
        text = f"worst is {text}; {counted(len(outputs) - 1, 'other')}"
        mute = [name for name in outputs if (found := rows[name].accumulated) and found.sqnr_db is None]
        text += f", without a score: {', '.join(mute[:_LISTED])}{' ...' * (len(mute) > _LISTED)}" if mute else ""
    if report.verdict.agrees is False:
        text += f"; misses {report.verdict.thresholds}"
    yield "output" if len(outputs) == 1 else "outputs", text


def _culprits(report: LayerReport) -> Iterator[_Line]:
    culprits = report.verdict.culprits
    rows = {row.tensor: row for row in report.rows}
    for index, each in enumerate(culprits[:_LISTED]):
        yield "" if index else "caused by", _culprit(each, rows.get(each.tensor))
    if len(culprits) > _LISTED:
        yield "", f"and {', '.join(each.node or each.tensor for each in culprits[_LISTED:])}"
    if culprits:
        rules = [rule for each in culprits for rule in each.remedy]
        yield "remedy", " ".join(f"--set {shlex.quote(rule)}" for rule in rules)
    if report.verdict.masked:
        few = ", ".join(report.verdict.masked[:_LISTED])
        more = " ..." if len(report.verdict.masked) > _LISTED else ""
        yield "also", f"{few}{more}: below 15 dB by itself, but not the cause as things are"


def _culprit(each: Culprit, row: LayerRow | None) -> str:
    who = f"input {each.tensor}"
    if each.node:
        after = "" if each.weighted == each.node else f" after {each.weighted}"
        at = "" if each.tensor == each.node or each.weighted != each.node else f" at {each.tensor}"
        who = f"{each.node} ({each.op_type}{after}){at}"
    how = {
        "clipping": f"{_percent(each.clipped)} of its values are clipped",
        "rounding": f"rounding of its values, {_levels(row) if row else each.used_levels} levels used",
        "weights": "its weights",
        "integer arithmetic": "integer arithmetic",
    }[each.introduced.cause]
    if each.result_again is not None and len(each.remedy) > 1:  # both parts were measured to matter
        how = (
            f"{how}, and the rounding of its result"
            if each.introduced.cause == "weights"
            else f"{how}, and weights"
        )
    local = None if row is None or row.local is None else row.local.sqnr_db
    parts = [how, f"{'' if local is None else f'local {_db(local)} dB'}{_channels(each, local)}"]
    if each.quantized_again is not None:
        parts.append(f"{_db(each.quantized_again.sqnr_db)} dB when this one alone is quantized again")
    return f"{who}: {'; '.join(filter(None, parts))}"


def _channels(each: Culprit, local: float | None) -> str:
    """The worst channel, where it is much worse than the tensor."""
    worst = each.worst_channel_sqnr_db
    if local is None or worst is None or worst > min(_BAD_CHANNEL_DB, local - _WORSE_DB):
        return ""
    text = f", but channel {each.worst_channel} has {_db(worst)} dB"
    lost = f"{each.lost_channels} of {counted(each.channels, 'channel')} below 3 dB"
    return f"{text} ({lost})" if each.lost_channels else text


_NEXT = {
    "weights": "roundoff transform with equalize,bias-correct evens out channels of different size that share a "
    "scale (roundoff channels with '*' --kind weight shows them); scales per channel or 16 bits help, too",
    "activations": "roundoff quantize with --calibration minmax,mse,percentile compares other ranges; "
    "roundoff partial with --to s16 tells how many need 16 bits",
    "both": "roundoff partial tells how many in float or, with --to s16, in 16 bits it takes",
}
"""What to type when the error is spread, by what makes most of it."""


def _tried(report: LayerReport) -> Iterator[_Line]:
    verdict = report.verdict
    if verdict.kind != "distributed":
        return
    if verdict.tried:
        yield "tried", ", ".join(verdict.tried)
    if verdict.float_weights is not None and verdict.float_activations is not None:
        weights, activations = verdict.float_weights.sqnr_db, verdict.float_activations.sqnr_db
        text = f"all weights in float give {_db(weights)} dB, all activations in float {_db(activations)} dB"
        clear = abs(weights - activations) >= _CLEAR_DB
        side = "weights" if weights > activations else "activations"
        yield "besides", f"{text}: it is the {side} of many units" if clear else text
        yield "next", _NEXT[side if clear else "both"]


def _limits(report: LayerReport) -> Iterator[_Line]:
    for text in report.verdict.not_judged:
        yield "beware", text
    subject = f"{report.quantized}; " if report.quantized else ""
    yield "run", f"{subject}{report.arithmetic}; {counted(len(report.samples), 'sample')}"


def _integers(report: LayerReport) -> Iterator[_Line]:
    if report.overflows:
        first = report.overflows[0]
        more = len(report.overflows) - 1
        text = f"{first.node} ({first.op_type}): {first.text}"
        yield "overflow", f"{text}; and {more} more" if more else text
    if report.float_nodes:
        names = list(report.float_nodes)
        more_names = " ..." if len(names) > _LISTED else ""
        yield "run float", f"{counted(len(names), 'node')}: {', '.join(names[:_LISTED])}{more_names}"


@dataclass(frozen=True, slots=True)
class _Column:
    """One column: its heading, what a row has in it, and whether only wide tables have room for it."""

    heading: str
    cell: Callable[[LayerRow], str]
    wide: bool = False


def _columns(report: LayerReport) -> list[_Column]:
    """The columns of a report in their order."""
    columns = [
        _Column("q", lambda row: row.quantized),
        _Column("shape", lambda row: "x".join(map(str, row.shape)), wide=True),
    ]
    if report.method != "accumulated":
        columns += _score_columns("local", lambda row: row.local)
    if report.method != "local":
        columns += _score_columns("accum", lambda row: row.accumulated)
    columns.append(_Column("clip", lambda row: _percent(row.clipped)))
    columns.append(_Column("levels", _levels))
    if report.method == "both":
        columns.append(
            _Column("adds\nest.", lambda row: _percent(row.introduced.output_share) if row.introduced else "")
        )
    if report.mode == "integer":
        columns.append(_Column("differ", lambda row: _percent(row.differing_codes), wide=True))
    return columns


def _score_columns(name: str, score: Callable[[LayerRow], LayerScore | None]) -> list[_Column]:
    def cell(show: Callable[[LayerScore], str]) -> Callable[[LayerRow], str]:
        def shown(row: LayerRow) -> str:
            found = score(row)
            return "" if found is None else show(found)

        return shown

    return [
        _Column(f"{name}\ndB", cell(_score_db)),
        _Column("cosine", cell(lambda found: _cosine(found.cosine)), wide=name == "local"),
        _Column("steps", cell(lambda found: _number(found.rms_steps)), wide=name != "local"),
        _Column("max", cell(lambda found: _number(found.max_steps)), wide=True),
        _Column("mse", cell(lambda found: "" if found.mse is None else f"{found.mse:.2e}"), wide=True),
        _Column("channel", cell(_worst_channel), wide=True),
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
        table.add_column("tensor", overflow="fold", min_width=10)
        table.add_column("op", overflow="ellipsis", no_wrap=True, max_width=8)
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
    words = ["dB: SQNR"]
    if report.method != "accumulated":
        words.append("local: the unit alone, fed with float tensors, quantized on entry")
    if report.method != "local":
        words.append("accum: the whole quantized model")
    words.append("steps: RMS error in quantization steps, 0.29 is rounding alone")
    words.append("levels: codes used")
    if report.method == "both":
        words.append("adds: estimated share of the outputs' error, only to rank what to try")
    return "; ".join(words)


def _in_words(score: LayerScore | None) -> str:
    if score is None or score.sqnr_db is None:
        return "no score" if score is None else score.detail
    text = f"{_db(score.sqnr_db)} dB, cosine {_cosine(score.cosine)} accumulated"
    return f"{text}, without what is not finite ({score.detail})" if score.status == "nonfinite" else text


def _score_db(score: LayerScore) -> str:
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
