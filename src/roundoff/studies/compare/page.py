"""Two sets of tensors: passed or not, where it started, who is only a victim, how tensors were matched."""

import math
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import PurePath

from roundoff import pages
from roundoff.core.coverage import Coverage
from roundoff.core.document import RunDocument
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
from roundoff.messages.message import phrase_of, short_name, shown
from roundoff.messages.numbers import decibels_with_unit, score_text, shape_text
from roundoff.pages.cards import (
    HeroCard,
    Mark,
    NetworkRole,
    ScoreFigure,
    StripCard,
    coverage_facts,
    input_names,
    ran,
    score_figure,
)
from roundoff.pages.coverage import coverage_lines, doubt_lines, gap_line, judgement_lines
from roundoff.studies.compare.result import Comparison, TensorComparison, was_not_read

_LISTED = 5
_TONES: dict[str, pages.Tone] = {"pass": "good", "fail": "bad", "incomplete": "open", "no_evidence": "open"}
# A change of layout that concerns no more tensors than this is said with their names.
_NAMED_LAYOUT = 3
# Longer remarks are cut in a terminal; JSON and CSV have all of them.
_REMARK_COLUMNS = 60
# Metrics that reports show, and whether more of them is better; files have all.
_METRICS = {"cosine": True, "sqnr_db": True, "relative_euclidean": False, "max_abs_error": False}
_HEADINGS = {
    "cosine": bilingual("compare.column_cosine"),
    "sqnr_db": plain("sqnr dB"),
    "relative_euclidean": bilingual("compare.column_relative"),
}
# Louder than the signal: where a tensor holds NaN, or is not there at all.
_WORST_DB = -100.0
_Line = tuple[str, str]
_Rows = Sequence[TensorComparison]


def comparison_page(document: RunDocument, view: pages.View = pages.View()) -> pages.Page | None:  # noqa: B008 - frozen
    """The page on a comparison; None when none was made.

    Args:
        document: The run.
        view: Rows in a terminal: failing ones before all others, and of the others those next to them. ``worst``
            puts the worst on top, otherwise they are in execution order.
    """
    found = document.comparison
    if found is None:
        return None
    rows = {row.reference: row for row in found.rows}
    doubts = () if found.judgement is None else found.judgement.doubts
    # Samples that are not finite are the user's own to mend: said before anything else.
    broken = any(each.kind == "nonfinite_inputs" for each in doubts)

    def lines(*, brief: bool) -> Iterator[_Line]:
        if broken:
            yield from doubt_lines(doubts)
        yield from _start(found, rows)
        if brief:
            yield from _map(found)
        # Where it starts matters more than where it is worst.
        if not brief or found.verdict.first_divergence is None:
            yield from _worst(found, rows)
        yield from _culprits(found, brief=brief)
        yield from _not_read(found)
        if found.judgement is None:
            yield from coverage_lines(found.outputs, other="candidate")
        yield from judgement_lines(found.judgement, other="candidate", doubts=not broken)
        yield from _alignment(found, brief=brief)
        # With a judgement the coverage says the same of tensors without a partner.
        if not brief or found.judgement is None:
            yield from _unmatched(found)
        yield from _judged(found)

    headline, strip = _headline(found, rows), tuple(_strip(found, rows))
    series = (pages.Series(("sqnr_db",), plain("sqnr_db"), "points"),)
    axes = (bilingual("common.place_axis"), pages.metric_axis("sqnr_db"))
    chart = pages.Chart("tensors-along", bilingual("compare.along"), "tensors", "order", series, *axes)
    blocks: tuple[pages.Block, ...] = (
        comparison_hero(document, found, rows, said=headline.text),
        headline,
        *strip,
        replace(pages.bilingual_facts(lambda: lines(brief=True)), on=("terminal",)),
        replace(pages.bilingual_facts(lambda: lines(brief=False)), on=("html", "csv")),
        # The strip shows the same at the true places.
        *(() if strip else (chart,)),
        _table(found, view),
        *pages.notes(found.notes),
    )
    return pages.Page("comparison", bilingual("compare.title"), blocks)


def _headline(found: Comparison, rows: dict[str, TensorComparison]) -> pages.Headline:
    verdict, state = found.verdict, found.state
    judged = verdict.passed + verdict.failed

    def text(*, brief: bool) -> str:
        said = translate(
            "compare.headline",
            passed=verdict.passed,
            judged=judged,
            number=1 if 1 in (verdict.passed, judged) else judged,
            samples=count_of(len(found.samples), "sample"),
        )
        said = commas(said, translate("compare.not_all_outputs")) if state == "incomplete" else said
        return semicolons(said, _output(found, rows)) if brief else said

    whole, short = (in_all_languages(partial(text, brief=brief)) for brief in (False, True))
    return pages.Headline(_TONES[state], whole, word=bilingual(f"compare.word_{state}"), brief=short)


def _output(found: Comparison, rows: dict[str, TensorComparison]) -> str:
    """What the worst output keeps; empty where none was judged."""
    names = found.outputs.judged if found.outputs is not None and found.outputs.known else ()
    kept = {name: rows[name].score.values.get("sqnr_db") for name in names if name in rows}
    known = {name: value for name, value in kept.items() if value is not None}
    if not known:
        return ""
    worst = min(known, key=known.__getitem__)
    several = found.outputs is not None and found.outputs.total > 1
    key = "compare.worst_output" if several else "compare.output"
    return translate(key, name=short_name(worst), db=decibels_with_unit(known[worst]))


def _strip(found: Comparison, rows: dict[str, TensorComparison]) -> Iterator[StripCard]:
    """All tensors of the reference in their order: which agree, which differ, which nobody compared."""
    places = {row.order: row for row in found.rows}
    if not found.ordered or len(places) < len(found.rows):
        return
    left = iter(found.unmatched_reference)
    count = max([len(found.rows) + len(found.unmatched_reference), *(place + 1 for place in places)])
    names = tuple(places[at].reference if at in places else next(left, "") for at in range(count))
    values = tuple(_strip_value(places[at]) if at in places else None for at in range(count))
    judged = found.verdict.passed + found.verdict.failed
    parts: tuple[tuple[Mark, Phrase, int], ...] = (
        ("good", bilingual("compare.part_agree"), found.verdict.passed),
        ("bad", bilingual("compare.part_differ"), found.verdict.failed),
        ("open", bilingual("compare.part_not"), count - judged),
    )
    first, at = found.verdict.first_divergence, {name: place for place, name in enumerate(names)}
    between = _between(found, at)
    text = bilingual("compare.strip_none", judged=judged, count=count)
    if first is not None:
        text = bilingual("compare.strip_first", name=first, what=in_all_languages(lambda: _what(rows[first])))
    marked = tuple(at[name] for name in found.verdict.introduces if name in at)
    row = (bilingual("compare.strip_row"), values)
    yield StripCard("compared", bilingual("compare.strip"), text, names, (row,), parts, marked, between)


# Cells of the map in a terminal, with less to explain and with more; of more tensors each cell is a group.
_CELLS = {"compare.map_differs": 48, "compare.map_reads": 33}


def _map(found: Comparison) -> Iterator[_Line]:
    """All tensors of the reference in their order as characters, where not all of them agree."""
    places = {row.order: row for row in found.rows}
    count = len(found.rows) + len(found.unmatched_reference)
    if not count or not found.ordered or found.state == "pass" or len(places) < len(found.rows):
        return
    count = max([count, *(place + 1 for place in places)])
    passed = [places[at].passed if at in places else None for at in range(count)]
    for key, most in _CELLS.items():
        cells = min(count, most)
        ends = [at * count // cells for at in range(cells + 1)]
        drawn = "".join(_cell(passed[low:high]) for low, high in pairwise(ends))
        if "?" not in drawn or key == "compare.map_reads":
            yield translate("compare.map"), translate(key, map=drawn)
            return


def _cell(passed: Sequence[bool | None]) -> str:
    """One character for a group: something differs, else something agrees; open where nothing was judged."""
    return "X" if False in passed else "." if True in passed else "?"


def _strip_value(row: TensorComparison) -> float | None:
    """The decibels of a tensor; where it is judged by something else, those of the best or the worst class."""
    value = row.score.values.get("sqnr_db")
    if row.score.status == "nonfinite" or was_not_read(row) or (value is None and row.passed is False):
        return _WORST_DB
    return value if value is not None or row.passed is None else math.inf


def _between(found: Comparison, at: dict[str, int]) -> tuple[int, int, Phrase] | None:
    """Where the fault must lie, if tensors there were not compared."""
    gap = None if found.judgement is None else found.judgement.coverage.gap
    if gap is None or gap.first not in at:
        return None
    start = at[gap.after] + 1 if gap.after in at else 0
    return start, at[gap.first], in_all_languages(lambda: gap_line(gap))


def _judged(comparison: Comparison) -> Iterator[_Line]:
    limits = comparison.thresholds
    text = limits.describe()
    if limits.name != "given":
        text = translate("compare.profile", limits=text, name=limits.name)
    yield translate("compare.judged_by"), text


def _start(comparison: Comparison, rows: dict[str, TensorComparison]) -> Iterator[_Line]:
    first = comparison.verdict.first_divergence
    if first is not None:
        row = rows[first]
        # Scores of the other elements would praise a tensor whose NaNs are its fault.
        score = "" if row.score.status == "nonfinite" else _score(row)
        yield translate("compare.starts_at"), _said(row, commas(score, _what(row)))
        gap = None if comparison.judgement is None else comparison.judgement.coverage.gap
        if gap is not None:
            yield "", gap_line(gap, brief=True)
    elif any(row.passed is False and not was_not_read(row) for row in comparison.rows):
        yield translate("compare.starts_at"), translate("compare.start_unknown")


def _worst(comparison: Comparison, rows: dict[str, TensorComparison]) -> Iterator[_Line]:
    worst = [name for name in comparison.verdict.worst if not was_not_read(rows[name])]
    if worst == [comparison.verdict.first_divergence]:
        return  # It has been named already.
    for index, name in enumerate(worst):
        label = "" if index else translate("compare.worst")
        yield label, _said(rows[name], _score_in_words(rows[name]))


def _not_read(comparison: Comparison) -> Iterator[_Line]:
    """Tensors that fail because nothing is known of them."""
    unread = [row for row in comparison.rows if row.passed is False and was_not_read(row)]
    for index, row in enumerate(unread[:_LISTED]):
        label = "" if index else translate("compare.not_read")
        yield label, _said(row, shown(row.score.detail))
    if len(unread) > _LISTED:
        yield "", few([row.reference for row in unread[_LISTED:]], _LISTED)


def _said(row: TensorComparison, text: str) -> str:
    return translate("compare.said", name=_named(row), text=text)


def _score_in_words(row: TensorComparison) -> str:
    # The scores of the other elements would praise a tensor whose NaNs are its fault.
    if row.score.status == "nonfinite" or not row.score.values:
        return _what(row)
    return commas(_score(row), shown(row.difference))


def _score(row: TensorComparison) -> str:
    cosine, noise = (row.score.values.get(name) for name in ("cosine", "sqnr_db"))
    parts = ["" if noise is None else decibels_with_unit(noise)]
    if cosine is not None:
        parts.append(translate("compare.hero_cosine", value=score_text("cosine", cosine)))
    return commas(*parts)


def _culprits(comparison: Comparison, *, brief: bool) -> Iterator[_Line]:
    verdict = comparison.verdict
    # In a terminal what starts it has been named.
    if verdict.introduces and not (brief and verdict.introduces == (verdict.first_divergence,)):
        yield translate("compare.introduced_by"), few(verdict.introduces, _LISTED)
    if verdict.victims:
        first, count = short_name(verdict.victims[0]), len(verdict.victims)
        names = few(verdict.victims, _LISTED)
        text = translate("compare.victims_brief", count=count, first=first)
        yield translate("compare.victims"), text if brief else translate("compare.victims_why", names=names)


def _alignment(comparison: Comparison, *, brief: bool) -> Iterator[_Line]:
    changed: dict[str, list[str]] = {}
    for row in comparison.rows:
        if row.layout:
            changed.setdefault(row.layout, []).append(row.reference)
    undone = ""
    if changed:
        layouts = few([_layout(name, who) for name, who in changed.items()], _LISTED)
        undone = translate("compare.undone", layouts=layouts)
    by_value = [row for row in comparison.rows if row.how == "value"]
    by_place = [row for row in comparison.rows if row.how in ("order", "elimination", "prediction")]
    by_shape = [row for row in comparison.rows if row.how == "shape"]
    paired = bool(by_value or by_place or by_shape)
    if undone and not (brief and paired):
        yield translate("compare.layouts"), undone
    if paired:
        least = min([*by_value, *by_place, *by_shape], key=lambda row: row.confidence)
        doubt = translate(
            "compare.least_sure",
            reference=least.reference,
            candidate=least.candidate,
            confidence=f"{least.confidence:.2f}",
        )
        placed = translate("compare.by_place", count=len(by_place)) if by_place else ""
        only_shape = translate("compare.by_shape", count=len(by_shape)) if by_shape else ""
        many = translate("compare.by_value", count=len(by_value), all=len(comparison.rows))
        said = commas(many, placed, only_shape)
        if brief:
            said = semicolons(said, undone if not by_shape else doubt)
        yield translate("compare.matching"), said if brief else semicolons(said, doubt)


def _layout(name: str, tensors: list[str]) -> str:
    who = ", ".join(tensors) if len(tensors) <= _NAMED_LAYOUT else count_of(len(tensors), "tensor")
    return f"{shown(name)} ({who})"


def _usual_layout(comparison: Comparison) -> str:
    """The change of layout that most tensors share: no news in a single row."""
    [(layout, count)] = Counter(row.layout for row in comparison.rows).most_common(1) or [("", 0)]
    return layout if 2 * count > len(comparison.rows) else ""


def _unmatched(comparison: Comparison) -> Iterator[_Line]:
    for side, names in (
        ("reference", comparison.unmatched_reference),
        ("candidate", comparison.unmatched_candidate),
    ):
        # Tensors of the candidate were listed with the reasons.
        if names and not (side == "candidate" and comparison.judgement is not None):
            text = translate(f"compare.only_{side}", count=len(names), names=few(names, _LISTED))
            yield translate("compare.unmatched"), text


def _named(row: TensorComparison) -> str:
    return f"{row.reference} ({row.op_type})" if row.op_type else row.reference


def _what(row: TensorComparison) -> str:
    """What differs, or why nothing is known of it."""
    return shown(row.difference) if row.difference else shown(row.score.detail)


# The table: all pairs, and for files the tensors of both sides that have no partner.

_FILE = (
    "order", "reference", "candidate", "node", "op_type", "reference_dtype", "candidate_dtype", "reference_shape",
    "candidate_shape", "matched_by", "confidence", "layout", "samples", "status", "passed", "kind", "difference",
    "role", "detail",
)  # fmt: skip


def _table(found: Comparison, view: pages.View) -> pages.TableBlock:
    columns = _columns(found)
    order = _order(found.rows, view)
    rows = [tuple(each.cell(row) for each in columns) for row in found.rows]
    for side, names in (
        ("reference", found.unmatched_reference),
        ("candidate", found.unmatched_candidate),
    ):
        for name in names:
            cells: dict[str, pages.Cell] = {side: name, "status": "missing", "detail": f"only in the {side}"}
            cells["shown_difference"] = bilingual(f"compare.only_in_{side}")
            rows.append(tuple(cells.get(each.column.id) for each in columns))
    return pages.TableBlock(
        "tensors",
        bilingual("compare.table"),
        tuple(each.column for each in columns),
        tuple(rows),
        file="tensors.csv",
        most=len(order),
        order=tuple(order),
        csv_order=(*_FILE, *dict.fromkeys((*_metrics(found), *_METRICS))),
        left_out=_left_out(found.rows, order),
    )


def _metrics(found: Comparison) -> list[str]:
    return list(dict.fromkeys(name for row in found.rows for name in row.score.values))


def _columns(found: Comparison) -> list[pages.ColumnOf[TensorComparison]]:
    usual = _usual_layout(found)
    # What is the same in all rows is no news in a report.
    renamed = bool(found.unmatched_candidate) or any(row.candidate != row.reference for row in found.rows)
    matched = any(row.how != "name" or row.confidence < 1 for row in found.rows)
    turned = any(row.layout for row in found.rows)
    return [
        pages.column("order", "#", "count"),
        pages.column("reference", "common.tensor", "node"),
        pages.column("op_type", "common.operation", short="terminal.operation", wide=True),
        *(_shown_metric(name, heading) for name, heading in _HEADINGS.items()),
        *(_metric(name) for name in dict.fromkeys((*_METRICS, *_metrics(found)))),
        pages.column(
            "shown_passed",
            plain(""),
            cell=lambda row: (
                plain("-") if row.passed is None else bilingual(f"compare.{'ok' if row.passed else 'fail'}")
            ),
            on="terminal",
        ),
        pages.column("passed", "compare.passed", "truth", on="html csv"),
        pages.column(
            "shown_role",
            "compare.role",
            cell=lambda row: bilingual(f"compare.role_{row.role}") if row.role else None,
            on="html",
        ),
        pages.column(
            "remark",
            "compare.column_difference",
            cell=lambda row: in_all_languages(
                lambda: _remark(row, "" if row.layout == usual else shown(row.layout))
            ),
            on="terminal",
        ),
        pages.column(
            "shown_difference",
            "compare.difference",
            cell=lambda row: phrase_of(row.difference) if row.difference else phrase_of(row.score.detail),
            on="html",
        ),
        pages.column("node", "common.node", "node", on="html csv"),
        pages.column("candidate", "compare.partner", on=_where(renamed)),
        pages.column("shape", "common.shape", cell=lambda row: shape_text(row.shapes[0]), on="html"),
        pages.column("matched_by", "compare.matched_by", cell=lambda row: row.how, on=_where(matched)),
        *([pages.column("sure", "compare.confidence", "share", _confidence, on="html")] if matched else []),
        pages.column("layout", "compare.layout", cell=lambda row: phrase_of(row.layout), on=_where(turned)),
        *pages.csv_columns(_FILE_ALONE),
    ]


def _where(told: bool) -> str:
    return "html csv" if told else "csv"


def _confidence(row: TensorComparison) -> float:
    return row.confidence


_FILE_ALONE: dict[str, Callable[[TensorComparison], pages.Cell]] = {
    "reference_dtype": lambda row: row.dtypes[0],
    "candidate_dtype": lambda row: row.dtypes[1],
    "reference_shape": lambda row: "x".join(map(str, row.shapes[0])),
    "candidate_shape": lambda row: "x".join(map(str, row.shapes[1])),
    "confidence": lambda row: f"{row.confidence:.3f}",
    "samples": lambda row: row.samples,
    "status": lambda row: row.score.status,
    "kind": lambda row: row.kind,
    "difference": lambda row: str(row.difference),
    "role": lambda row: row.role,
    "detail": lambda row: row.score.detail,
}


def _metric(name: str) -> pages.ColumnOf[TensorComparison]:
    """A metric: in a report the usual ones, in files all."""
    kind: pages.ColumnKind = "decibels" if name.endswith("_db") else "score"
    on: tuple[pages.Place, ...] = ("html", "csv") if name in _METRICS else ("csv",)
    column = pages.Column(name, plain(name), kind, higher_is_better=_METRICS.get(name), on=on)
    return pages.ColumnOf(column, lambda row: row.score.values.get(name))


def _shown_metric(name: str, heading: Phrase) -> pages.ColumnOf[TensorComparison]:
    """A metric in a terminal; in parentheses where it is that of the finite elements alone, not of the tensor."""
    kinds: dict[str, pages.ColumnKind] = {"cosine": "score", "sqnr_db": "decibels"}
    column = pages.Column(f"shown_{name}", heading, kinds.get(name, "number"), on=("terminal",), digits=3)

    def cell(row: TensorComparison) -> pages.Cell:
        value = row.score.values.get(name)
        if value is None:
            return plain("-")
        if row.score.status != "nonfinite":
            return value
        text = pages.cell_text(value, column)
        return Phrase(f"({text.en})", f"({text.zh})")

    return pages.ColumnOf(column, cell)


def _remark(row: TensorComparison, layout: str) -> str:
    turned = translate("compare.text_layout", layout=layout) if layout else ""
    text = _what(row)
    text = text if len(text) <= _REMARK_COLUMNS else text[: _REMARK_COLUMNS - 3].rstrip() + "..."
    remark = semicolons(text, turned)
    return f"[{translate(f'compare.mark_{row.role}')}] {remark}" if row.role else remark


def _order(rows: _Rows, view: pages.View) -> list[int]:
    """The places of the rows that a terminal shows, in its order."""
    places = range(len(rows))
    if view.sort == "worst":
        return sorted(places, key=lambda place: _badness(rows[place]), reverse=True)[: view.most]
    if view.most is None or len(rows) <= view.most:
        return list(places)
    failing = [place for place in places if rows[place].passed is False]
    return sorted(sorted(places, key=lambda place: _distance(place, failing))[: view.most])


def _left_out(rows: _Rows, order: Sequence[int]) -> Phrase:
    """A sentence on the rows that are not shown; empty when all are."""
    left = [row for place, row in enumerate(rows) if place not in set(order)]
    if not left or not order:  # no table was asked for
        return plain("")
    failing = sum(row.passed is False for row in left)
    if failing:
        return bilingual("compare.left_failing", count=len(left), failing=failing)
    return bilingual(
        f"compare.left_{'passing' if all(row.passed for row in left) else 'unjudged'}", count=len(left)
    )


def _badness(row: TensorComparison) -> tuple[bool, float]:
    """Larger is worse: failing before all others, then by error; a score of a part only, or none, is worst."""
    partial = row.score.status in ("nonfinite", "unreadable", "shape")
    error = math.inf if partial else row.score.values.get("relative_euclidean", math.inf)
    return row.passed is False, error


def _distance(index: int, failing: Sequence[int]) -> int:
    """How many rows away the nearest failing row is; with none of them, the first rows are the nearest."""
    position = bisect(failing, index)
    return min((abs(index - other) for other in failing[max(0, position - 1) : position + 1]), default=index)


_MARKS: Mapping[str, Mark] = {"pass": "good", "fail": "bad", "incomplete": "open", "no_evidence": "open"}
_OUTPUTS = 3


def comparison_hero(
    document: RunDocument, found: Comparison, rows: Mapping[str, TensorComparison], *, said: Phrase
) -> HeroCard:
    """The score of a comparison.

    Args:
        document: The run.
        found: The comparison.
        rows: Its tensors by their names.
        said: The verdict with its numbers.
    """
    judged = found.verdict.passed + found.verdict.failed
    there = len(found.rows) + len(found.unmatched_reference)
    pills: list[tuple[Mark, Phrase]] = [(_MARKS[found.state], bilingual(f"compare.word_{found.state}"))]
    if judged < there:
        pills.append(("open", bilingual("compare.hero_not_judged", count=there - judged)))
    return HeroCard(
        _title(found, rows),
        tuple(pills),
        Phrase(said.en.lstrip(": ") + ".", said.zh.lstrip(":\uff1a ") + "\u3002"),
        scores=tuple(_scores(found, rows)),
        facts=tuple(_facts(document, found, judged, there)),
        coverage=(judged, there),
    )


def _title(found: Comparison, rows: Mapping[str, TensorComparison]) -> Phrase:
    first = found.verdict.first_divergence
    if found.state != "fail":
        return bilingual(f"compare.hero_{found.state}")
    if first is None:
        return bilingual("compare.hero_fail")
    row = rows[first]
    what = phrase_of(row.difference) if row.difference else phrase_of(row.score.detail)
    return bilingual("compare.hero_first", name=first, what=what)


def _scores(found: Comparison, rows: Mapping[str, TensorComparison]) -> Iterator[ScoreFigure]:
    """What the outputs keep, the worst first."""
    names = () if found.outputs is None else found.outputs.judged
    scored = [rows[name] for name in names if name in rows]
    known = [(value, row) for row in scored if (value := row.score.values.get("sqnr_db")) is not None]
    for value, row in sorted(known, key=lambda each: each[0])[:_OUTPUTS]:
        cosine = row.score.values.get("cosine")
        detail = plain("")
        if cosine is not None:
            detail = bilingual("compare.hero_cosine", value=score_text("cosine", cosine))
        role: NetworkRole = "repaired" if row.passed else "quantized"
        yield score_figure(plain(row.reference), role, metric="sqnr_db", value=value, detail=detail)


def _facts(
    document: RunDocument, found: Comparison, judged: int, there: int
) -> Iterator[tuple[Phrase, tuple[Phrase, ...]]]:
    files = input_names(document)
    given = [files[role] for role in ("model", "reference") if role in files]
    yield bilingual("compare.hero_reference"), tuple(map(plain, given or [PurePath(found.reference).name]))
    other = files.get("candidate") or PurePath(found.candidate).name
    yield bilingual("compare.hero_candidate"), (plain(other),)
    data = [plain(files["data"])] if "data" in files else []
    yield (
        bilingual("card.data"),
        (
            *data,
            bilingual("compare.hero_samples", count=len(found.samples)),
        ),
    )
    yield bilingual("compare.judged_by"), (plain(found.thresholds.describe()),)
    lines = [bilingual("card.judged", judged=judged, there=there)]
    if found.outputs is not None:
        lines += coverage_facts(Coverage(found.outputs))
    yield bilingual("card.coverage"), tuple(lines)
    yield ran(document)
