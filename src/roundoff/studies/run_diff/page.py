"""Two runs side by side: what a gate says, the verdict, the change along the network, what was not the same."""

from collections.abc import Iterator, Sequence
from typing import Any

from roundoff import pages
from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import (
    Phrase,
    bilingual,
    commas,
    count_of,
    in_all_languages,
    named,
    plain,
    semicolons,
    translate,
)
from roundoff.messages.message import phrase_of, short_name, shown
from roundoff.messages.numbers import counted, decibels
from roundoff.pages.cards import HeroCard, NetworkRole, ScoreFigure, StripCard, first_screen, score_figure
from roundoff.pages.coverage import judged_line
from roundoff.studies.run_diff.result import (
    CEILING_DB,
    Change,
    Gate,
    GateMetric,
    GateRow,
    RowDiff,
    RunDiff,
    RunInputChange,
    names_of,
)

_LISTED = 4
_TONES: dict[str, pages.Tone] = {"same": "good", "better": "good", "worse": "bad", "mixed": "bad"}
# What is shown first.
_RANKS: dict[Change, int] = {"worse": 0, "untested": 1, "unclear": 2, "better": 3, "same": 4}
_NOTABLE: tuple[Change, ...] = ("worse", "better", "unclear", "untested")
# Scores that have a name in words.
_MEASURES = ("local", "accumulated", "compared", "diagnosed")
# GitHub shows no more of one step.
_MOST_ANNOTATIONS = 10
_AXES = (bilingual("common.place_axis"), bilingual("run_diff.change_axis"))
_Line = tuple[str, str]


def diff_page(document: RunDocument, view: pages.View = pages.View()) -> pages.Page | None:  # noqa: B008 - frozen
    """The page on what differs between two runs; None when none were compared.

    Args:
        document: The run.
        view: Rows in a terminal; ``order`` keeps those that changed in execution order, otherwise it is where it
            starts and the largest loss first. After a gate they are what is over its budget.
    """
    diff = document.diff
    if diff is None:
        return None
    judged: tuple[pages.Block, ...] = ()
    if diff.gate is not None:
        gate = diff.gate
        judged = (_gate_headline(gate), pages.bilingual_facts(lambda: _gate_lines(diff, gate)))
    text = in_all_languages(lambda: translate("run_diff.headline", text=_headline(diff)))
    verdict = pages.Headline(_TONES.get(diff.kind, "open"), text, word=bilingual(f"run_diff.word_{diff.kind}"))
    facts = pages.bilingual_facts(lambda: (*_changes(diff), *_conditions(diff)))
    table = _table(diff, view)
    legend = (pages.Paragraph(bilingual("run_diff.legend")),) if table.order else ()
    first = _first_screen(
        document, diff, next(each for each in (*judged, verdict) if isinstance(each, pages.Headline))
    )
    blocks = (
        first,
        *judged,
        verdict,
        facts,
        *_strip(diff),
        *_chart(diff),
        table,
        *legend,
        *pages.notes(diff.notes),
    )
    return pages.Page("diff", bilingual("run_diff.title"), blocks)


def _first_screen(document: RunDocument, diff: RunDiff, headline: pages.Headline) -> HeroCard:
    """What both runs keep of the output that lost most, or gained least; without outputs, of what changed most."""
    scored = [row for row in diff.rows if row.before is not None and row.after is not None]
    outputs = [row for row in diff.outputs if row in scored]
    told = min(outputs, key=lambda row: row.change_db or 0.0) if outputs else diff.largest
    scores: list[ScoreFigure] = []
    if told is not None and told.before is not None and told.after is not None:
        where = bilingual("run_diff.hero_at", name=told.node or told.tensor, measure=_measure(told.measure))
        roles: dict[Change, NetworkRole] = {"better": "repaired", "worse": "quantized"}
        sides = (("before", diff.before, told.before), ("after", diff.after, told.after))
        for side, run, value in sides:
            label = bilingual("run_diff.hero_run", which=bilingual(f"run_diff.{side}"), run=run)
            role = roles.get(told.change, "float") if side == "after" else "float"
            scores.append(score_figure(label, role, metric="sqnr_db", value=value, detail=where))
    gate = diff.gate
    if gate is None:
        return first_screen(document, headline, scores=scores)
    text = in_all_languages(lambda: _headline(diff))
    return first_screen(document, headline, scores=scores, covered=gate.coverage, text=text)


def _gate_headline(gate: Gate) -> pages.Headline:
    count = sum(row.passed is not None for row in gate.rows)
    if gate.passed:
        text = bilingual("run_diff.gate_passed", count=count, limit=f"{gate.max_regression_db:g}")
        return pages.Headline("good", text, word=bilingual("run_diff.word_pass"))

    if not gate.failed:
        text = bilingual("run_diff.gate_doubted", count=count)
        return pages.Headline("open", text, word=bilingual("run_diff.word_no_evidence"))

    def failed() -> str:
        over = sum(row.passed is False for row in gate.rows)
        other = translate("run_diff.gate_problems", count=len(gate.problems)) if gate.problems else ""
        lost = sum(not each.passed and not each.unclear for each in gate.metrics)
        metrics = translate("run_diff.gate_metrics", count=lost) if lost else ""
        return commas(translate("run_diff.gate_failed", over=over, count=count), metrics, other)

    return pages.Headline("bad", in_all_languages(failed), word=bilingual("run_diff.word_fail"))


def _chart(diff: RunDiff) -> tuple[pages.Chart, ...]:
    """Bars for each kind of score along the network; none where scores have no place in it."""
    measures = dict.fromkeys(row.measure for row in diff.rows if row.order is not None)
    labels = [_measure(each) for each in measures]
    series = tuple(pages.Series(("change_db",), label, "bars", only=("measure", label.en)) for label in labels)
    chart = pages.Chart("diff-along", bilingual("run_diff.along"), "diff", "order", series, *_AXES)
    return (chart,) if series else ()


def _strip(diff: RunDiff) -> tuple[StripCard, ...]:
    """Both runs one below the other along the network, by what they hand on; none where scores have no place."""
    measures = dict.fromkeys(row.measure for row in diff.rows if row.order is not None)
    chosen = next((each for each in ("accumulated", "compared", *measures) if each in measures), None)
    rows = sorted(
        (row for row in diff.rows if row.measure == chosen and row.order is not None),
        key=lambda row: row.order or 0,
    )
    if chosen is None or not rows:
        return ()
    sides = (
        (bilingual("run_diff.before"), tuple(row.before for row in rows)),
        (bilingual("run_diff.after"), tuple(row.after for row in rows)),
    )
    text = bilingual("run_diff.strip_text", measure=_measure(chosen), before=diff.before, after=diff.after)
    marked = tuple(at for at, row in enumerate(rows) if row.tensor == diff.first)
    names = tuple(row.node or row.tensor for row in rows)
    return (StripCard("both", bilingual("run_diff.strip"), text, names, sides, marked=marked),)


def _measure(name: str) -> Phrase:
    return named(f"run_diff.measure_{name}") or plain(name)


def _headline(diff: RunDiff) -> str:
    nodes = len(names_of(diff.rows))
    counts = {kind: len(diff.tensors(kind)) for kind in _RANKS}
    if diff.compared == "diagnosis":
        return translate("run_diff.findings", gone=len(diff.only_before), new=len(diff.only_after))
    floor = f"{diff.floor_db:g}"
    if diff.kind == "same":
        if any(abs(row.change_db or 0.0) >= diff.floor_db for row in diff.rows):
            return translate("run_diff.same_chance", nodes=nodes)
        return translate("run_diff.same_floor", nodes=nodes, floor=floor)
    if diff.kind == "unclear":
        return translate("run_diff.unclear", count=counts["unclear"], nodes=nodes)
    if diff.kind == "untested":
        return translate("run_diff.untested", count=counts["untested"], nodes=nodes, floor=floor)
    texts = [
        translate("run_diff.count", count=counts[kind], change=translate(f"run_diff.change_{kind}"))
        for kind in _NOTABLE
        if counts[kind]
    ]
    most = None if diff.first is None else diff.largest
    named = "" if most is None else translate("run_diff.most", name=short_name(most.node or most.tensor))
    return semicolons(translate("run_diff.of_nodes", nodes=nodes, counts=commas(*texts)), named)


def _changes(diff: RunDiff) -> Iterator[_Line]:
    worse = diff.changed("worse")
    most, told_of = diff.largest, {diff.first}
    if most is not None and diff.first not in (None, most.tensor):
        told_of.add(most.tensor)
        yield translate("run_diff.largest"), _row_text(most)
    if diff.first is not None:
        yield translate("run_diff.first"), _row_text(next(row for row in worse if row.tensor == diff.first))
    starts = sorted((row for row in worse if row.starts), key=_rank)
    others = tuple(name for name in names_of(starts) if name not in told_of)
    if others:
        yield translate("run_diff.also"), translate("run_diff.by_themselves", names=_few(others))
    follow = tuple(name for name in names_of(worse) if name not in {*told_of, *others})
    if follow and diff.compared != "sensitivity":
        text = translate("run_diff.computed_from", count=len(follow), names=_few(follow))
        yield translate("run_diff.follow"), text
    better = diff.changed("better")
    if better:
        best = max(better, key=lambda row: row.change_db or 0.0)
        yield translate("run_diff.best_gain"), _row_text(best)
    kind = "finding" if diff.compared == "diagnosis" else "node"
    for label, names in (("gone", diff.only_before), ("new", diff.only_after)):
        if names:
            text = translate("run_diff.named", count=count_of(len(names), kind), names=_few(names))
            yield translate(f"run_diff.{label}"), text
    if diff.renamed:
        named = tuple(f"{old} -> {new}" for old, new in diff.renamed)
        text = translate("run_diff.by_place", count=len(named), names=_few(named))
        yield translate("run_diff.renamed"), text


def _row_text(row: RowDiff) -> str:
    who = row.node or row.tensor
    what = f"{who} ({row.op_type})" if row.op_type else who
    gaps = {"what": what, "measure": measure_name(row), "change": _change_text(row)}
    if row.node and row.node != row.tensor:
        return translate("run_diff.at", tensor=row.tensor, **gaps)
    return translate("run_diff.row", **gaps)


def measure_name(row: RowDiff) -> str:
    """Which score a row is about."""
    return translate(f"run_diff.measure_{row.measure}") if row.measure in _MEASURES else row.measure


def _change_text(row: RowDiff) -> str:
    if row.detail:
        return row.detail
    change = _signed(row.change_db)
    return translate("run_diff.change", before=_db(row.before), after=_db(row.after), change=change)


def _conditions(diff: RunDiff) -> Iterator[_Line]:
    before, after = diff.samples
    count = count_of(after, "sample")
    if before != after:
        count = translate("run_diff.two_counts", before=before, after=count)
    pairing = translate(f"run_diff.{diff.pairing}")
    if diff.pairing == "paired" and diff.common is not None and diff.common != max(diff.samples):
        pairing = translate("run_diff.in_common", count=diff.common)
    yield (
        translate("run_diff.runs"),
        translate("run_diff.two_runs", before=diff.before, after=diff.after, samples=count, pairing=pairing),
    )
    changed = [each for each in diff.inputs if not each.environment]
    for at, each in enumerate(changed):
        text = translate("run_diff.input", what=each.what, **_sides(each))
        yield "" if at else translate("run_diff.differ"), text
    sides = [(each.what, _sides(each)) for each in diff.inputs if each.environment]
    around = [f"{what} {each['before']} -> {each['after']}" for what, each in sides]
    if around:
        yield translate("run_diff.machine"), semicolons(*around)
    if not changed and diff.rows and diff.kind not in ("same",) and not around:
        yield translate("run_diff.differ"), translate("run_diff.not_repeatable")


def _sides(change: RunInputChange) -> dict[str, str]:
    """What it was, and what it is."""
    nothing = translate("run_diff.nothing")
    return {"before": change.before or nothing, "after": change.after or nothing}


def _evidence_lines(gate: Gate) -> Iterator[_Line]:
    if gate.coverage is not None:
        yield translate("coverage.label"), judged_line(gate.coverage)
    if gate.lossy:
        yield translate("run_diff.label_limits"), translate("run_diff.still_lossy")


def _gate_lines(diff: RunDiff, gate: Gate) -> Iterator[_Line]:
    failed = _failed(diff, gate)
    yield from _output_lines(diff)
    if failed:
        first = next(((row, judged) for row, judged in failed if row.order is not None), failed[0])
        most = next((pair for pair in failed if pair[0] == diff.largest), None)
        if most is not None and most[0].tensor != first[0].tensor:
            yield translate("run_diff.largest"), _over_budget(*most)
        yield translate("run_diff.first"), _over_budget(*first)
    yield from _evidence_lines(gate)
    for at, each in enumerate(gate.metrics):
        yield "" if at else translate("run_diff.label_metric"), _metric_line(each)
    for at, problem in enumerate(gate.problems[:_LISTED]):
        yield "" if at else translate("run_diff.problems"), shown(problem)
    for at, doubt in enumerate(gate.doubts[:_LISTED]):
        yield "" if at else translate("coverage.label_doubt"), shown(doubt)
    unproven = [
        row for row in diff.changed("unclear", "untested") if (row.change_db or 0) < -gate.max_regression_db
    ]
    unproven = [row for row in unproven if row.tensor not in {each.tensor for each, _ in failed}]
    if unproven:
        text = translate("run_diff.worse_by_chance", names=_few(names_of(unproven)))
        yield translate("run_diff.not_sure"), text
    yield from _noted_lines(diff, gate)
    if diff.only_before:
        gone = diff.only_before
        text = translate("run_diff.not_judged", count=len(gone), names=_few(gone))
        yield translate("run_diff.gone"), text
    if gate.unused:
        yield translate("run_diff.unused"), translate("run_diff.unused_budgets", names=_few(gate.unused))


def _output_lines(diff: RunDiff) -> Iterator[_Line]:
    """What the outputs did, the one that lost most first."""
    outputs = sorted(diff.outputs, key=lambda row: row.change_db or 0.0)
    for at, row in enumerate(outputs[:_LISTED]):
        yield "" if at else translate("run_diff.label_outputs"), _output_text(row)


def _noted_lines(diff: RunDiff, gate: Gate) -> Iterator[_Line]:
    """What passes although it lost more than it may."""
    noted = [pair for pair in zip(diff.rows, gate.rows, strict=True) if pair[1].passed and pair[1].why]
    for at, pair in enumerate(noted[:_LISTED]):
        yield "" if at else translate("run_diff.noted"), _over_budget(*pair)
    if len(noted) > _LISTED:
        yield "", translate("run_diff.noted_more", count=len(noted) - _LISTED)


def _output_text(row: RowDiff) -> str:
    """An output over all samples, which is what every other command prints, then the mean that is tested."""
    if row.pooled is None:
        return translate("run_diff.row", what=row.tensor, measure=measure_name(row), change=_change_text(row))
    before, after = row.pooled
    sides = {"before": _db(before), "after": _db(after), "change": _signed(after - before)}
    return translate("run_diff.output", name=row.tensor, **sides, mean=_change_text(row))


def _metric_line(each: GateMetric) -> str:
    """A metric before and after, its loss with the interval, and what that means."""
    if each.after is None or each.loss is None:
        return translate("run_diff.metric_gone", name=each.name, before=f"{each.before:.4g}")
    text = translate(
        "run_diff.metric",
        name=each.name,
        before=f"{each.before:.4g}",
        after=f"{each.after:.4g}",
        loss=f"{each.loss:.4g}",
        allowed=f"{each.allowed:.4g}",
    )
    if each.low is not None and each.high is not None:
        text = commas(text, translate("run_diff.metric_interval", low=f"{each.low:.4g}", high=f"{each.high:.4g}"))
    on = translate("run_diff.metric_paired" if each.paired else "run_diff.metric_unpaired", count=each.samples)
    judged = "within" if each.passed else "over"
    if each.unclear:
        judged = "chance" if each.loss > each.allowed else "lacking"
    if each.lacking:
        on = translate("run_diff.metric_of", text=on, there=each.samples + each.lacking)
    return semicolons(commas(text, on), translate(f"run_diff.metric_{judged}"))


def _over_budget(row: RowDiff, judged: GateRow) -> str:
    who, why = row.node or row.tensor, shown(judged.why)
    return translate("run_diff.over_budget", who=who, measure=measure_name(row), why=why)


def _failed(diff: RunDiff, gate: Gate) -> list[tuple[RowDiff, GateRow]]:
    return [(row, judged) for row, judged in zip(diff.rows, gate.rows, strict=True) if judged.passed is False]


def _rank(row: RowDiff) -> tuple[int, bool, float]:
    return _RANKS[row.change], not row.starts, row.change_db or 0.0


# The table: all scores; a terminal shows those that changed, or that fail.


def _table(diff: RunDiff, view: pages.View) -> pages.TableBlock:
    judged: Sequence[GateRow | None] = [None] * len(diff.rows) if diff.gate is None else diff.gate.rows
    columns = [*(each.column for each in _COLUMNS), *(each.column for each in _JUDGED)]
    rows = [
        (*(each.cell(row) for each in _COLUMNS), *(None if gate is None else each.cell(gate) for each in _JUDGED))
        for row, gate in zip(diff.rows, judged, strict=True)
    ]
    for names, change in ((diff.only_before, "gone"), (diff.only_after, "new")):
        for name in names:
            cells: dict[str, pages.Cell] = {
                "tensor": name,
                "change": change,
                "verdict": bilingual(f"run_diff.{change}"),
            }
            rows.append(tuple(cells.get(each.id) for each in columns))
    chosen = _chosen(diff, view)
    order = tuple(chosen[: view.most])
    left = len(chosen) - len(order)
    return pages.TableBlock(
        "diff",
        bilingual("run_diff.table"),
        tuple(columns),
        tuple(rows),
        sort="change_db",
        file="diff.csv",
        most=len(order),
        order=order,
        csv_order=_FILE,
        left_out=bilingual("terminal.left_out", count=left) if left else plain(""),
    )


def _chosen(diff: RunDiff, view: pages.View) -> list[int]:
    """The places of the rows that matter, in the order of a terminal."""
    if diff.gate is not None:
        return [place for place, row in enumerate(diff.gate.rows) if row.passed is False]
    changed = [place for place, row in enumerate(diff.rows) if row.change in _NOTABLE]
    return changed if view.sort == "order" else sorted(changed, key=lambda place: _rank(diff.rows[place]))


_FILE = (
    "order", "node", "op_type", "tensor", "renamed_from", "measure", "output", "before_db", "after_db",
    "change_db", "samples", "probability", "loss_probability", "change", "starts", "detail",
    "allowed_db", "at_least_db", "passed", "why",
)  # fmt: skip


def _of_side(side: str) -> dict[str, Any]:
    return {"higher_is_better": True, "short": f"run_diff.column_{side}", "exact": CEILING_DB}


_COLUMNS: list[pages.ColumnOf[RowDiff]] = [
    pages.column("order", "#", "count"),
    pages.column("node", "common.node", "node", on="html csv"),
    pages.column("tensor", "common.tensor", "node"),
    pages.column("op_type", "common.operation", short="terminal.operation"),
    pages.column(
        "measure", "run_diff.measure", cell=lambda row: _measure(row.measure), short="run_diff.column_score"
    ),
    pages.column("before_db", "run_diff.before_db", "decibels", lambda row: row.before, **_of_side("before")),
    pages.column("after_db", "run_diff.after_db", "decibels", lambda row: row.after, **_of_side("after")),
    pages.column("change_db", "run_diff.change_db", "decibels", higher_is_better=True, on="html csv"),
    pages.column(
        "shown_change",
        "run_diff.column_change",
        "number",
        lambda row: plain(_signed(row.change_db)),
        on="terminal",
    ),
    pages.column(
        "probability",
        "run_diff.probability",
        "share",
        help=bilingual("run_diff.probability_help"),
        short="run_diff.column_chance",
    ),
    pages.column(
        "mark",
        "",
        cell=lambda row: in_all_languages(
            lambda: f"{translate(f'run_diff.change_{row.change}')}{'*' if row.starts else ''}"
        ),
        on="terminal",
    ),
    pages.column(
        "verdict",
        "run_diff.verdict",
        cell=lambda row: row.detail or bilingual(f"run_diff.row_{row.change}"),
        on="html",
    ),
    pages.column(
        "by_itself",
        "run_diff.starts",
        "truth",
        lambda row: row.starts if row.change == "worse" else None,
        help=bilingual("run_diff.starts_help"),
        on="html",
    ),
    *pages.csv_columns("renamed_from output samples loss_probability change starts detail"),
]
_JUDGED: list[pages.ColumnOf[GateRow]] = [
    *pages.csv_columns("allowed_db at_least_db passed"),
    pages.column("why", "why", cell=lambda gate: phrase_of(gate.why) if gate.why else "", on="csv"),
]


def annotations(diff: RunDiff, gate: Gate) -> str:
    """A line for each node that fails, as GitHub shows it beside a change; those first where it starts."""
    failed = sorted(_failed(diff, gate), key=lambda pair: not pair[0].starts)
    nodes: dict[str, str] = {}
    for row, judged in failed:
        nodes.setdefault(row.node or row.tensor, f"{row.measure}: {judged.why}")
    found = [*(("roundoff gate", str(problem)) for problem in gate.problems), *nodes.items()]
    kept = found if len(found) <= _MOST_ANNOTATIONS else found[: _MOST_ANNOTATIONS - 1]
    if len(found) > len(kept):
        kept = [*kept, ("roundoff gate", f"and {counted(len(found) - len(kept), 'node')} more over budget")]
    return "".join(f"::error title={_escaped(name, more=':,')}::{_escaped(why)}\n" for name, why in kept)


def _escaped(text: str, *, more: str = "") -> str:
    """As GitHub reads it back."""
    for character in ("%", "\r", "\n", *more):
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def _db(value: float | None) -> str:
    return decibels(value, exact=CEILING_DB)


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.1f}"


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(map(short_name, names[:_LISTED]))
    if len(names) <= _LISTED:
        return shown
    return translate("run_diff.and_others", names=shown, count=len(names) - _LISTED)
