"""A layer-by-layer report for people: a verdict of a few lines, then a table."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from roundoff.core.layer_scores import Culprit, LayerReport, LayerRow, LayerScore
from roundoff.core.wording import counted
from roundoff.report.layer_rows import LayerSort, layers_csv, sorted_rows

__all__ = ["LayerSort", "layers_csv", "layers_table", "layers_verdict"]

_LISTED = 3
# From this width on a table has room for every column.
_WIDE_COLUMNS = 150
_Line = tuple[str, str]


def layers_verdict(report: LayerReport) -> RenderableType:
    """What a busy person reads: is the loss local, how good are the outputs, who introduces it."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in (*_outputs(report), *_culprits(report), *_integers(report)):
        grid.add_row(f"  {label}", Text(text))
    return Group(_headline(report), grid)


def _headline(report: LayerReport) -> Text:
    verdict = report.verdict
    units, samples = counted(verdict.contributors, "unit"), counted(len(report.samples), "sample")
    if verdict.kind == "open":
        only = "local" if report.method == "local" else "accumulated"
        text = f": only {only} errors were measured ({samples}); --method both tells local from distributed"
        return Text("OPEN", style="bold yellow") + Text(text)
    if verdict.kind == "local":
        few = f"{len(verdict.culprits)} of {units}"
        adds = "adds" if len(verdict.culprits) == 1 else "add"
        text = f": {few} {adds} {_percent(verdict.share)} of the error at the outputs ({samples})"
        return Text("LOCAL", style="bold red") + Text(text)
    if verdict.kind == "distributed":
        text = f", not local: half of the error at the outputs comes from {verdict.half} of {units}, "
        text += f"the largest adds {_percent(verdict.share)} ({samples})"
        return Text("DISTRIBUTED", style="bold red" if not verdict.agrees else "bold yellow") + Text(text)
    return Text("FINE", style="bold green") + Text(f": the outputs agree and no unit stands out ({samples})")


def _outputs(report: LayerReport) -> Iterator[_Line]:
    rows = {row.tensor: row for row in report.rows}
    outputs = report.verdict.outputs
    if not outputs:
        return
    score = rows[outputs[0]].accumulated
    text = f"{outputs[0]}: {_in_words(score)}"
    if len(outputs) > 1:
        text = f"worst is {text}; {counted(len(outputs) - 1, 'other')}"
    if report.verdict.agrees is False:
        text += f"; misses {report.verdict.thresholds}"
    yield "output" if len(outputs) == 1 else "outputs", text


def _culprits(report: LayerReport) -> Iterator[_Line]:
    culprits = report.verdict.culprits
    # Six lines in all are read; those of an integer run have more to say.
    lines = _LISTED - bool(report.overflows) - bool(report.float_nodes)
    for index, each in enumerate(culprits[:lines]):
        yield "" if index else "added by", _culprit(each)
    if len(culprits) > lines:
        yield "", f"and {', '.join(each.node or each.tensor for each in culprits[lines:])}"
    elif report.verdict.masked:
        few = ", ".join(report.verdict.masked[:_LISTED])
        more = " ..." if len(report.verdict.masked) > _LISTED else ""
        yield "also", f"{few}{more}: bad alone, but hardly shows at the outputs as things are"


def _culprit(each: Culprit) -> str:
    who = f"{each.node} ({each.op_type})" if each.node else f"input {each.tensor}"
    through = "" if each.tensor in (each.node, "") or not each.node else f" at {each.tensor}"
    how = {
        "clipping": f"{_percent(each.clipped)} of its values are clipped",
        "rounding": f"rounding, {each.used_levels} of {each.levels} levels used",
        "weights": "its weights",
        "integer arithmetic": "integer arithmetic",
    }[each.introduced.cause]
    share = _percent(each.introduced.output_share)
    return f"{who}{through}: {share} of it; alone {_db(each.introduced.sqnr_db)} dB; {how}"


def _integers(report: LayerReport) -> Iterator[_Line]:
    if report.overflows:
        first = report.overflows[0]
        more = len(report.overflows) - 1
        text = f"{first.node} ({first.op_type}): {first.text}"
        yield "overflow", f"{text}; and {more} more" if more else text
    if report.float_nodes:
        names = list(report.float_nodes)
        more_names = " ..." if len(names) > _LISTED else ""
        yield "in float", f"{counted(len(names), 'node')}: {', '.join(names[:_LISTED])}{more_names}"


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
            _Column("adds", lambda row: _percent(row.introduced.output_share) if row.introduced else "")
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
            name = Text(row.tensor, style="bold" if row.output else "")
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
    if len(kept) < len(rows):
        left = counted(len(rows) - len(kept), "row")
        parts.append(Text(f"{left} that matter less are left out; --top all shows them", style="dim"))
    parts += [Text(f"note: {note}", style="dim") for note in report.notes]
    return Group(*parts)


def _in_words(score: LayerScore | None) -> str:
    if score is None or score.sqnr_db is None:
        return "no score" if score is None else score.detail
    text = f"{_db(score.sqnr_db)} dB, cosine {_cosine(score.cosine)} accumulated"
    return f"{text}, without what is not finite ({score.detail})" if score.status == "nonfinite" else text


def _score_db(score: LayerScore) -> str:
    if score.sqnr_db is None:
        return score.status
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
