"""Two runs side by side for people: a verdict of a few lines, then what changed; and what a gate says to it."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.messages.catalogue import told
from roundoff.messages.numbers import counted, csv_text, decibels
from roundoff.messages.phrases import commas, count_of, headline, semicolons
from roundoff.messages.sanitize import short_name
from roundoff.messages.sentences import sentence
from roundoff.pages.terminal import VerdictLine, left_out_lines, note_lines, verdict_page
from roundoff.studies.run_diff.result import (
    CEILING_DB,
    Change,
    Gate,
    GateRow,
    InputChange,
    RowDiff,
    RunDiff,
    names_of,
)

__all__ = [
    "annotations",
    "diff_csv",
    "diff_table",
    "diff_verdict",
    "gate_table",
    "gate_verdict",
    "measure_name",
    "shown_rows",
]

_LISTED = 4
_STYLES = {"same": "bold green", "better": "bold green", "worse": "bold red", "mixed": "bold red"}
# What is shown first.
_RANKS: dict[Change, int] = {"worse": 0, "untested": 1, "unclear": 2, "better": 3, "same": 4}
_NOTABLE: tuple[Change, ...] = ("worse", "better", "unclear", "untested")
_COLUMNS = (
    "order", "node", "op_type", "tensor", "renamed_from", "measure", "output", "before_db", "after_db",
    "change_db", "samples", "probability", "loss_probability", "change", "starts", "detail",
    "allowed_db", "at_least_db", "passed", "why",
)  # fmt: skip
_OP_WIDTH = 9
# Scores that have a name in words.
_MEASURES = ("local", "accumulated", "compared", "diagnosed")
# GitHub shows no more of one step.
_MOST_ANNOTATIONS = 10


def diff_verdict(diff: RunDiff) -> RenderableType:
    """What a busy person reads: the same, better or worse, where it starts, and what was not the same."""
    word = told(f"run_diff_text.word_{diff.kind}")
    text = told("run_diff_text.headline", text=_headline(diff))
    first = headline(word, _STYLES.get(diff.kind, "bold yellow"), text)
    return verdict_page(first, [*_changes(diff), *_conditions(diff)])


def gate_verdict(diff: RunDiff, gate: Gate) -> RenderableType:
    """Whether it may pass, and what keeps it from that."""
    judged = sum(row.passed is not None for row in gate.rows)
    if gate.passed:
        text = told("run_diff_text.gate_passed", count=judged, limit=f"{gate.max_regression_db:g}")
        first = headline(told("run_diff_text.word_pass"), "bold green", text)
    else:
        over = sum(row.passed is False for row in gate.rows)
        text = told("run_diff_text.gate_failed", over=over, count=judged)
        if gate.problems:
            text = commas(text, told("run_diff_text.gate_problems", count=len(gate.problems)))
        first = headline(told("run_diff_text.word_fail"), "bold red", text)
    return verdict_page(first, [*_gate_lines(diff, gate), *_conditions(diff)])


def _headline(diff: RunDiff) -> str:
    nodes = len(names_of(diff.rows))
    counts = {kind: len(diff.tensors(kind)) for kind in _RANKS}
    if diff.compared == "diagnosis":
        return told("run_diff_text.findings", gone=len(diff.only_before), new=len(diff.only_after))
    floor = f"{diff.floor_db:g}"
    if diff.kind == "same":
        if any(abs(row.change_db or 0.0) >= diff.floor_db for row in diff.rows):
            return told("run_diff_text.same_chance", nodes=nodes)
        return told("run_diff_text.same_floor", nodes=nodes, floor=floor)
    if diff.kind == "unclear":
        return told("run_diff_text.unclear", count=counts["unclear"], nodes=nodes)
    if diff.kind == "untested":
        return told("run_diff_text.untested", count=counts["untested"], nodes=nodes, floor=floor)
    texts = [
        told("run_diff_text.count", count=counts[kind], change=told(f"run_diff_text.change_{kind}"))
        for kind in _NOTABLE
        if counts[kind]
    ]
    most = None if diff.first is None else diff.largest
    named = "" if most is None else told("run_diff_text.most", name=short_name(most.node or most.tensor))
    return semicolons(told("run_diff_text.of_nodes", nodes=nodes, counts=commas(*texts)), named)


def _changes(diff: RunDiff) -> Iterator[VerdictLine]:
    worse = diff.changed("worse")
    if diff.first is not None:
        yield told("run_diff_text.first"), _row_text(next(row for row in worse if row.tensor == diff.first))
    most, told_of = diff.largest, {diff.first}
    if most is not None and diff.first not in (None, most.tensor):
        told_of.add(most.tensor)
        yield told("run_diff_text.largest"), _row_text(most)
    starts = sorted((row for row in worse if row.starts), key=_rank)
    others = tuple(name for name in names_of(starts) if name not in told_of)
    if others:
        yield told("run_diff_text.also"), told("run_diff_text.by_themselves", names=_few(others))
    follow = tuple(name for name in names_of(worse) if name not in {*told_of, *others})
    if follow and diff.compared != "sensitivity":
        text = told("run_diff_text.computed_from", count=len(follow), names=_few(follow))
        yield told("run_diff_text.follow"), text
    better = diff.changed("better")
    if better:
        best = max(better, key=lambda row: row.change_db or 0.0)
        yield told("run_diff_text.best_gain"), _row_text(best)
    kind = "finding" if diff.compared == "diagnosis" else "node"
    for label, names in (("gone", diff.only_before), ("new", diff.only_after)):
        if names:
            text = told("run_diff_text.named", count=count_of(len(names), kind), names=_few(names))
            yield told(f"run_diff_text.{label}"), text
    if diff.renamed:
        named = tuple(f"{old} -> {new}" for old, new in diff.renamed)
        text = told("run_diff_text.by_place", count=len(named), names=_few(named))
        yield told("run_diff_text.renamed"), text


def _row_text(row: RowDiff) -> str:
    who = row.node or row.tensor
    what = f"{who} ({row.op_type})" if row.op_type else who
    gaps = {"what": what, "measure": measure_name(row), "change": _change_text(row)}
    if row.node and row.node != row.tensor:
        return told("run_diff_text.at", tensor=row.tensor, **gaps)
    return told("run_diff_text.row", **gaps)


def measure_name(row: RowDiff) -> str:
    """Which score a row is about."""
    return told(f"run_diff_text.measure_{row.measure}") if row.measure in _MEASURES else row.measure


def _change_text(row: RowDiff) -> str:
    if row.detail:
        return row.detail
    change = _signed(row.change_db)
    return told(
        "run_diff_text.change",
        before=decibels(row.before, exact=CEILING_DB),
        after=decibels(row.after, exact=CEILING_DB),
        change=change,
    )


def _conditions(diff: RunDiff) -> Iterator[VerdictLine]:
    before, after = diff.samples
    count = count_of(after, "sample")
    if before != after:
        count = told("run_diff_text.two_counts", before=before, after=count)
    pairing = told(f"run_diff_text.{diff.pairing}")
    yield (
        told("run_diff_text.runs"),
        told("run_diff_text.two_runs", before=diff.before, after=diff.after, samples=count, pairing=pairing),
    )
    changed = [each for each in diff.inputs if not each.environment]
    for at, each in enumerate(changed):
        text = told("run_diff_text.input", what=each.what, **_sides(each))
        yield "" if at else told("run_diff_text.differ"), text
    sides = [(each.what, _sides(each)) for each in diff.inputs if each.environment]
    around = [f"{what} {each['before']} -> {each['after']}" for what, each in sides]
    if around:
        yield told("run_diff_text.machine"), semicolons(*around)
    if not changed and diff.rows and diff.kind not in ("same",) and not around:
        yield told("run_diff_text.differ"), told("run_diff_text.not_repeatable")


def _sides(change: InputChange) -> dict[str, str]:
    """What it was, and what it is."""
    nothing = told("run_diff_text.nothing")
    return {"before": change.before or nothing, "after": change.after or nothing}


def _gate_lines(diff: RunDiff, gate: Gate) -> Iterator[VerdictLine]:
    failed = _failed(diff, gate)
    if failed:
        first = next(((row, judged) for row, judged in failed if row.order is not None), failed[0])
        row, judged = first
        yield told("run_diff_text.first"), _over_budget(row, judged)
        most = next((pair for pair in failed if pair[0] == diff.largest), None)
        if most is not None and most[0].tensor != row.tensor:
            yield told("run_diff_text.largest"), _over_budget(*most)
    for at, problem in enumerate(gate.problems[:_LISTED]):
        yield "" if at else told("run_diff_text.problems"), sentence(problem)
    unproven = [
        row for row in diff.changed("unclear", "untested") if (row.change_db or 0) < -gate.max_regression_db
    ]
    unproven = [row for row in unproven if row.tensor not in {each.tensor for each, _ in failed}]
    if unproven:
        text = told("run_diff_text.worse_by_chance", names=_few(names_of(unproven)))
        yield told("run_diff_text.not_sure"), text
    if diff.only_before:
        gone = diff.only_before
        text = told("run_diff_text.not_judged", count=len(gone), names=_few(gone))
        yield told("run_diff_text.gone"), text
    if gate.unused:
        yield told("run_diff_text.unused"), told("run_diff_text.unused_budgets", names=_few(gate.unused))


def _over_budget(row: RowDiff, judged: GateRow) -> str:
    who, why = row.node or row.tensor, sentence(judged.why)
    return told("run_diff_text.over_budget", who=who, measure=measure_name(row), why=why)


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
        parts.append(Text(told("run_diff_text.legend"), style="dim"))
    return Group(*parts, *note_lines(diff.notes))


def gate_table(diff: RunDiff, gate: Gate, *, most: int | None = None) -> RenderableType:
    """What is over its budget, one line for each score; see `diff_table`."""
    rows = [row for row, _ in _failed(diff, gate)]
    parts: list[RenderableType] = [_table(rows[:most])] if rows else []
    return Group(*parts, *left_out_lines(len(rows) - len(rows[:most])), *note_lines(diff.notes))


def _table(rows: Sequence[RowDiff]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right")
    table.add_column(told("common.tensor"), overflow="fold")
    table.add_column(told("terminal.operation"), overflow="ellipsis", no_wrap=True, max_width=_OP_WIDTH)
    table.add_column(told("run_diff_text.column_score"), no_wrap=True)
    for name in ("before", "after", "change", "chance"):
        table.add_column(told(f"run_diff_text.column_{name}"), justify="right", no_wrap=True)
    table.add_column("")
    for row in rows:
        table.add_row(
            "" if row.order is None else str(row.order),
            short_name(row.tensor),
            row.op_type,
            told("run_diff_text.accumulated") if row.measure == "accumulated" else measure_name(row),
            decibels(row.before, exact=CEILING_DB),
            decibels(row.after, exact=CEILING_DB),
            _signed(row.change_db),
            _chance(row.probability),
            f"{told(f'run_diff_text.change_{row.change}')}{'*' if row.starts else ''}",
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
    found = [*(("roundoff gate", problem) for problem in gate.problems), *nodes.items()]
    kept = found if len(found) <= _MOST_ANNOTATIONS else found[: _MOST_ANNOTATIONS - 1]
    if len(found) > len(kept):
        kept = [*kept, ("roundoff gate", f"and {counted(len(found) - len(kept), 'node')} more over budget")]
    return "".join(f"::error title={_escaped(name, more=':,')}::{_escaped(why)}\n" for name, why in kept)


def _escaped(text: str, *, more: str = "") -> str:
    """As GitHub reads it back."""
    for character in ("%", "\r", "\n", *more):
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.1f}"


def _chance(probability: float | None) -> str:
    if probability is None:
        return ""
    return "<0.1 %" if probability < 0.001 else f"{100 * probability:.{1 if probability < 0.1 else 0}f} %"


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(map(short_name, names[:_LISTED]))
    if len(names) <= _LISTED:
        return shown
    return told("run_diff_text.and_others", names=shown, count=len(names) - _LISTED)
