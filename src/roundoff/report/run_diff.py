"""Two runs side by side for people: a verdict of a few lines, then what changed; and what a gate says to it."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.core.harmless import short_name
from roundoff.core.run_diff import Change, Gate, GateRow, RowDiff, RunDiff, names_of
from roundoff.core.wording import counted
from roundoff.report.figures import csv_text
from roundoff.report.notes import left_out_lines, note_lines

__all__ = ["annotations", "diff_csv", "diff_table", "diff_verdict", "gate_table", "gate_verdict", "shown_rows"]

_LISTED = 4
_STYLES = {"same": "bold green", "better": "bold green", "worse": "bold red", "mixed": "bold red"}
_WORDS = {"untested": "NOT TESTABLE"}
# What is shown first.
_RANKS: dict[Change, int] = {"worse": 0, "untested": 1, "unclear": 2, "better": 3, "same": 4}
_COLUMNS = (
    "order", "node", "op_type", "tensor", "renamed_from", "measure", "output", "before_db", "after_db",
    "change_db", "samples", "probability", "loss_probability", "change", "starts", "detail",
    "allowed_db", "at_least_db", "passed", "why",
)  # fmt: skip
# Above this an error counts as that of float arithmetic.
_EXACT_DB = 80.0
_Line = tuple[str, str]
_OP_WIDTH = 9
_SHORT = {"accumulated": "accum"}
# GitHub shows no more of one step.
_MOST_ANNOTATIONS = 10


def diff_verdict(diff: RunDiff) -> RenderableType:
    """What a busy person reads: the same, better or worse, where it starts, and what was not the same."""
    word = _WORDS.get(diff.kind, diff.kind.upper())
    headline = Text(word, style=_STYLES.get(diff.kind, "bold yellow")) + Text(f": {_headline(diff)}")
    return Group(headline, _grid([*_changes(diff), *_conditions(diff)]))


def gate_verdict(diff: RunDiff, gate: Gate) -> RenderableType:
    """Whether it may pass, and what keeps it from that."""
    judged = sum(row.passed is not None for row in gate.rows)
    if gate.passed:
        text = f": {counted(judged, 'score')} within budget ({gate.max_regression_db:g} dB unless said otherwise)"
        headline = Text("PASS", style="bold green") + Text(text)
    else:
        over = sum(row.passed is False for row in gate.rows)
        text = f": {over} of {counted(judged, 'score')} over budget"
        text += f", {counted(len(gate.problems), 'other problem')}" if gate.problems else ""
        headline = Text("FAIL", style="bold red") + Text(text)
    return Group(headline, _grid([*_gate_lines(diff, gate), *_conditions(diff)]))


def _grid(lines: Sequence[_Line]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in lines:
        grid.add_row(f"  {label}", Text(text))
    return grid


def _headline(diff: RunDiff) -> str:
    nodes = len(names_of(diff.rows))
    counts = {kind: len(diff.tensors(kind)) for kind in _RANKS}
    if diff.compared == "diagnosis":
        gone, new = counted(len(diff.only_before), "finding"), counted(len(diff.only_after), "new finding")
        return f"{gone} gone, {new}"
    if diff.kind == "same":
        large = any(abs(row.change_db or 0.0) >= diff.floor_db for row in diff.rows)
        return f"no node of {nodes} changed {'beyond chance' if large else f'by {diff.floor_db:g} dB or more'}"
    if diff.kind == "unclear":
        return (
            f"{counts['unclear']} of {counted(nodes, 'node')} differ, but chance is not excluded; try more samples"
        )
    if diff.kind == "untested":
        return f"{counts['untested']} of {counted(nodes, 'node')} differ by {diff.floor_db:g} dB or more"
    told = [f"{counts[kind]} {kind}" for kind in ("worse", "better") if counts[kind]]
    told += [f"{counts[kind]} {kind}" for kind in ("unclear", "untested") if counts[kind]]
    return f"of {counted(nodes, 'node')} {', '.join(told)}"


def _changes(diff: RunDiff) -> Iterator[_Line]:
    worse = diff.changed("worse")
    if diff.first is not None:
        yield "first", _told(next(row for row in worse if row.tensor == diff.first))
    starts = [row for row in worse if row.starts and row.tensor != diff.first]
    others = tuple(name for name in names_of(starts) if name != diff.first)
    if others:
        yield "also", f"worse by themselves: {_few(others)}"
    follow = tuple(name for name in names_of(worse) if name not in {diff.first, *others})
    if follow and diff.compared != "sensitivity":
        yield "follow", f"{counted(len(follow), 'node')} computed from these: {_few(follow)}"
    better = diff.changed("better")
    if better:
        best = max(better, key=lambda row: row.change_db or 0.0)
        yield "best gain", _told(best)
    kind = "finding" if diff.compared == "diagnosis" else "node"
    for label, names in (("gone", diff.only_before), ("new", diff.only_after)):
        if names:
            yield label, f"{counted(len(names), kind)}: {_few(names)}"
    if diff.renamed:
        named = tuple(f"{old} -> {new}" for old, new in diff.renamed)
        yield "renamed", f"{counted(len(named), 'node')} by operation, shape and place: {_few(named)}"


def _told(row: RowDiff) -> str:
    who = row.node or row.tensor
    what = f"{who} ({row.op_type})" if row.op_type else who
    at = f" at {row.tensor}" if row.node and row.node != row.tensor else ""
    return f"{what}{at}, {row.measure}: {_change_text(row)}"


def _change_text(row: RowDiff) -> str:
    if row.detail:
        return row.detail
    return f"{_db(row.before)} to {_db(row.after)} dB ({_signed(row.change_db)})"


def _conditions(diff: RunDiff) -> Iterator[_Line]:
    pairs = {"paired": "the same samples", "unpaired": "other samples", "none": "scores of all samples together"}
    before, after = diff.samples
    count = counted(after, "sample") if before == after else f"{before} and {counted(after, 'sample')}"
    yield "runs", f"{diff.before} and {diff.after}; {count}, {pairs[diff.pairing]}"
    changed = [each for each in diff.inputs if not each.environment]
    for at, each in enumerate(changed):
        yield "" if at else "differ", f"{each.what}: {each.before or 'none'} -> {each.after or 'none'}"
    around = [
        f"{each.what} {each.before or 'none'} -> {each.after or 'none'}"
        for each in diff.inputs
        if each.environment
    ]
    if around:
        yield "machine", "; ".join(around)
    if not changed and diff.rows and diff.kind not in ("same",) and not around:
        yield "differ", "nothing in inputs, options and environment: the run is not repeatable"


def _gate_lines(diff: RunDiff, gate: Gate) -> Iterator[_Line]:
    failed = _failed(diff, gate)
    if failed:
        first = next(((row, judged) for row, judged in failed if row.order is not None), failed[0])
        yield "first", f"{first[0].node or first[0].tensor}, {first[0].measure}: {first[1].why}"
    for at, problem in enumerate(gate.problems[:_LISTED]):
        yield "" if at else "problems", problem
    unproven = [
        row for row in diff.changed("unclear", "untested") if (row.change_db or 0) < -gate.max_regression_db
    ]
    unproven = [row for row in unproven if row.tensor not in {each.tensor for each, _ in failed}]
    if unproven:
        yield (
            "not sure",
            f"{_few(names_of(unproven))}: worse, but chance is not excluded; more samples tell, --strict fails",
        )
    if diff.only_before:
        yield "gone", f"{counted(len(diff.only_before), 'node')} not judged: {_few(diff.only_before)}"
    if gate.unused:
        yield "unused", f"budgets that fit nothing: {_few(gate.unused)}"


def _failed(diff: RunDiff, gate: Gate) -> list[tuple[RowDiff, GateRow]]:
    return [(row, judged) for row, judged in zip(diff.rows, gate.rows, strict=True) if judged.passed is False]


def shown_rows(diff: RunDiff, sort: str) -> list[RowDiff]:
    """The rows that changed: in execution order, or where it starts and the largest loss first."""
    changed = list(diff.changed("worse", "untested", "unclear", "better"))
    return changed if sort == "order" else sorted(changed, key=_rank)


def _rank(row: RowDiff) -> tuple[int, bool, float]:
    return _RANKS[row.change], not row.starts, row.change_db or 0.0


def diff_table(diff: RunDiff, *, sort: str = "worst", most: int | None = None) -> RenderableType:
    """What changed, one line for each score.

    Args:
        diff: What to show.
        sort: ``worst`` or ``order``.
        most: Show at most so many rows; all when None.
    """
    rows = shown_rows(diff, sort)
    kept = rows[:most]
    parts: list[RenderableType] = [_table(kept)] if kept else []
    parts += left_out_lines(len(rows) - len(kept))
    if kept:
        legend = "dB: SQNR, mean over samples; chance: of such a change without a cause; *: worse by itself"
        parts.append(Text(legend, style="dim"))
    return Group(*parts, *note_lines(diff.notes))


def gate_table(diff: RunDiff, gate: Gate, *, most: int | None = None) -> RenderableType:
    """What is over its budget, one line for each score; see `diff_table`."""
    rows = [row for row, _ in _failed(diff, gate)]
    parts: list[RenderableType] = [_table(rows[:most])] if rows else []
    return Group(*parts, *left_out_lines(len(rows) - len(rows[:most])), *note_lines(diff.notes))


def _table(rows: Sequence[RowDiff]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right")
    table.add_column("tensor", overflow="fold")
    table.add_column("op", overflow="ellipsis", no_wrap=True, max_width=_OP_WIDTH)
    table.add_column("score", no_wrap=True)
    for name in ("before", "after", "change", "chance"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for row in rows:
        table.add_row(
            "" if row.order is None else str(row.order),
            short_name(row.tensor),
            row.op_type,
            _SHORT.get(row.measure, row.measure),
            _db(row.before),
            _db(row.after),
            _signed(row.change_db),
            _chance(row.probability),
            f"{row.change}{'*' if row.starts else ''}",
        )
    return table


def diff_csv(diff: RunDiff) -> str:
    """All rows with everything that is known of them, and what only one of the runs has."""
    judged: Sequence[GateRow | None] = [None] * len(diff.rows) if diff.gate is None else diff.gate.rows
    rows: list[tuple[object, ...]] = [
        (
            row.order, row.node, row.op_type, row.tensor, row.renamed_from, row.measure, row.output, row.before,
            row.after, row.change_db, row.samples, row.probability, row.loss_probability, row.change,
            row.starts, row.detail,
            *((None,) * 4 if gate is None else (gate.allowed_db, gate.at_least_db, gate.passed, gate.why)),
        )
        for row, gate in zip(diff.rows, judged, strict=True)
    ]  # fmt: skip
    blank = dict.fromkeys(_COLUMNS)
    for names, change in ((diff.only_before, "gone"), (diff.only_after, "new")):
        rows += [tuple({**blank, "tensor": name, "change": change}.values()) for name in names]
    return csv_text(_COLUMNS, rows)


def annotations(diff: RunDiff, gate: Gate) -> str:
    """A line for each node that fails, as GitHub shows it beside a change; those first where it starts."""
    failed = sorted(_failed(diff, gate), key=lambda pair: not pair[0].starts)
    nodes: dict[str, str] = {}
    for row, judged in failed:
        nodes.setdefault(row.node or row.tensor, f"{row.measure}: {judged.why}")
    told = [*(("roundoff gate", problem) for problem in gate.problems), *nodes.items()]
    kept = told if len(told) <= _MOST_ANNOTATIONS else told[: _MOST_ANNOTATIONS - 1]
    if len(told) > len(kept):
        kept = [*kept, ("roundoff gate", f"and {counted(len(told) - len(kept), 'node')} more over budget")]
    return "".join(f"::error title={_escaped(name, more=':,')}::{_escaped(why)}\n" for name, why in kept)


def _escaped(text: str, *, more: str = "") -> str:
    """As GitHub reads it back."""
    for character in ("%", "\r", "\n", *more):
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def _db(value: float | None) -> str:
    if value is None:
        return ""
    return f">{_EXACT_DB:g}" if value >= _EXACT_DB else f"{value:.1f}"


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.1f}"


def _chance(probability: float | None) -> str:
    if probability is None:
        return ""
    return "<0.1 %" if probability < 0.001 else f"{100 * probability:.{1 if probability < 0.1 else 0}f} %"


def _few(names: Sequence[str]) -> str:
    more = f" and {counted(len(names) - _LISTED, 'other')}" if len(names) > _LISTED else ""
    return ", ".join(map(short_name, names[:_LISTED])) + more
