"""What quantization costs each layer: verdict, curve along the network, table."""

import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, cast

from roundoff import pages
from roundoff.core.document import RunDocument
from roundoff.core.tensors import Topology
from roundoff.messages.catalogue import (
    Phrase,
    bilingual,
    commas,
    count_of,
    explained,
    in_all_languages,
    plain,
    semicolons,
    translate,
)
from roundoff.messages.message import phrase_of, shown
from roundoff.messages.numbers import decibels_with_unit, percentage, score_text, shape_text
from roundoff.pages.cards import (
    USUAL_LIMIT_DB,
    ErrorChart,
    ErrorPoint,
    HeroCard,
    NetworkRole,
    first_screen,
    score_figure,
)
from roundoff.pages.coverage import judgement_lines
from roundoff.studies.layers.result import WEIGHTS_UNKNOWN, Culprit, LayerReport, LayerRow, LayerScore

_LISTED = 3
# A channel is told of when it is this bad, and so much worse than its tensor.
_BAD_CHANNEL_DB, _WORSE_DB = 10.0, 10.0
# So much better without weights than without activations, or the reverse: it is the former, or the latter.
_CLEAR_DB = 6.0
# What stands in a narrow column for a tensor without a score; documents have the whole word.
_NO_SCORE = {"nonfinite": "NaN/inf", "unreadable": "n/a"}
_AXES = (bilingual("common.place_axis"), pages.metric_axis("sqnr_db"))
_Line = tuple[str, str]


def layers_page(document: RunDocument, view: pages.View = pages.View()) -> pages.Page | None:  # noqa: B008 - frozen
    """The page on layers; None when none were measured.

    Args:
        document: The run.
        view: Rows in a terminal; ``order`` sorts them by execution, otherwise those that matter most come first.
    """
    report = document.layers
    if report is None:
        return None
    headline, curve = _headline(report), cast("pages.Block", _errors(report, document.network))
    if report.method != "both":
        series = _series(report)
        curve = pages.Chart("layers-along", bilingual("layers.along"), "layers", "order", series, *_AXES)
    return pages.Page(
        "layers",
        bilingual("layers.title"),
        (
            _first_screen(document, report, headline),
            headline,
            *_facts(report),
            curve,
            _table(report, view),
            pages.Paragraph(in_all_languages(lambda: _legend(report))),
            *pages.notes(report.notes),
            *pages.preparation_note(report.preparation),
        ),
    )


def _headline(report: LayerReport) -> pages.Headline:
    kind, verdict = report.verdict.kind, report.verdict
    tone: pages.Tone = "bad"
    if kind == "open":
        tone, text = "open", in_all_languages(lambda: _why_open(report))
    elif verdict.culprits:
        tone = "good" if kind == "fine" else "bad"
        few, all_units = len(verdict.culprits), verdict.contributors
        text = in_all_languages(
            lambda: translate(
                f"layers.{'fine_though' if kind == 'fine' else 'local'}",
                few=few,
                all=all_units,
                gain=_gain(report),
            ).rstrip()
        )
    elif kind == "distributed" and verdict.after is not None:
        tone = "open" if verdict.agrees else "bad"
        text = in_all_languages(
            lambda: translate("layers.distributed_tried", tried=len(verdict.tried), gain=_gain(report))
        )
    elif kind == "distributed":
        tone, text = "open" if verdict.agrees else "bad", bilingual("layers.distributed")
    else:
        unknown = _weights_unknown(report)
        tone, text = (
            ("open", bilingual("layers.fine_activations")) if unknown else ("good", bilingual("layers.fine"))
        )
    return pages.Headline(tone, text, f"layers_{kind}", bilingual(f"layers.word_{kind}"))


def _first_screen(document: RunDocument, report: LayerReport, headline: pages.Headline) -> HeroCard:
    """What the worst output keeps, and with the units that were tried in float."""
    verdict, covered = report.verdict, None if report.judgement is None else report.judgement.coverage
    row = next((each for each in report.rows if verdict.outputs and each.tensor == verdict.outputs[0]), None)
    score = None if row is None else row.accumulated
    figures = []
    if row is not None and score is not None and score.sqnr_db is not None:
        cosine = in_all_languages(
            lambda: translate("layers.hero_cosine", value=score_text("cosine", score.cosine))
        )
        role: NetworkRole = "repaired" if verdict.agrees else "quantized"
        figures.append(score_figure(plain(row.tensor), role, metric="sqnr_db", value=score.sqnr_db, detail=cosine))
    if figures and verdict.before is not None and verdict.after is not None:
        label = bilingual("layers.hero_float", count=len(verdict.culprits) or len(verdict.tried))
        detail = bilingual("layers.hero_before", db=_db(verdict.before.sqnr_db), samples=verdict.samples)
        figures.append(score_figure(label, "float", metric="sqnr_db", value=verdict.after.sqnr_db, detail=detail))
    return first_screen(document, headline, scores=figures, covered=covered)


def _errors(report: LayerReport, network: Topology | None) -> ErrorChart:
    """What each unit loses alone and what it hands on; a unit is named by the node that has its weights."""
    guilty = {
        name: at for at, each in enumerate(report.verdict.culprits, 1) for name in (each.node, each.weighted)
    }
    known = set() if network is None else {node.name for node in network.nodes}
    points = tuple(
        ErrorPoint(
            row.unit if row.unit in known else row.node,
            None if row.local is None else row.local.sqnr_db,
            None if row.accumulated is None else row.accumulated.sqnr_db,
            finding=guilty.get(row.unit, guilty.get(row.node, 0)),
            output=row.output,
        )
        for row in report.rows
        if row.quantized != "fused" or row.output
    )
    text = bilingual("card.error_text", samples=max((row.samples for row in report.rows), default=0))
    limit = USUAL_LIMIT_DB, bilingual("card.limit", value=f"{USUAL_LIMIT_DB:.1f}")
    return ErrorChart("layers-along", bilingual("layers.along"), text, points, limit)


def _series(report: LayerReport) -> tuple[pages.Series, ...]:
    found = (("local", "accumulated"), ("accumulated", "local"))
    return tuple(
        pages.Series((f"{method}_sqnr_db",), bilingual(f"layers.{method}_db"))
        for method, other in found
        if report.method != other
    )


def _why_open(report: LayerReport) -> str:
    if report.method != "both":
        return translate("layers.open_method", method=translate(f"layers.method_{report.method}"))
    if _damaged(report):
        return translate("layers.open_damaged")
    if report.judgement is not None and report.judgement.doubts:
        return translate("layers.open_doubts")
    if report.verdict.agrees is not None and not _weights_unknown(report):
        return translate("layers.open_partly")
    return translate("layers.open_unjudged")


def _weights_unknown(report: LayerReport) -> bool:
    # Documents of the first schema have it as a sentence.
    return str(WEIGHTS_UNKNOWN) in map(str, report.verdict.not_judged)


def _damaged(report: LayerReport) -> bool:
    return any(row.output and row.accumulated and row.accumulated.status == "nonfinite" for row in report.rows)


def _gain(report: LayerReport) -> str:
    verdict = report.verdict
    if verdict.before is None or verdict.after is None:
        return ""
    return translate(
        "layers.gain",
        tried=len(verdict.tried),
        outputs=len(verdict.outputs),
        before=_db(verdict.before.sqnr_db),
        after=_db(verdict.after.sqnr_db),
        samples=count_of(verdict.samples, "sample"),
    )


# A part of an output that is worse than the whole by so much is told with it.
_FAR_WORSE_DB = 6.0


def _outputs(report: LayerReport) -> Iterator[_Line]:
    rows = {row.tensor: row for row in report.rows}
    outputs = report.verdict.outputs
    if not outputs or (report.verdict.kind == "open" and _weights_unknown(report)):
        return
    first = rows.get(outputs[0])
    score = None if first is None else first.accumulated
    text = translate("layers.score", name=outputs[0], score=_in_words(score))
    if len(outputs) > 1:
        text = translate("layers.worst_output", text=text, count=len(outputs) - 1)
        known = [rows[name] for name in outputs if name in rows]
        mute = [row.tensor for row in known if row.accumulated is not None and row.accumulated.sqnr_db is None]
        text = commas(text, translate("layers.mute", names=_listed(mute)) if mute else "")
    before, known_db = report.verdict.before, None if score is None else score.sqnr_db
    if before is not None and known_db is not None and before.sqnr_db < known_db - _FAR_WORSE_DB:
        part = translate("layers.worst_part", db=decibels_with_unit(before.sqnr_db))
        text = commas(text, part)
    if report.verdict.agrees is False and not (report.judgement is not None and report.judgement.flat):
        text = semicolons(text, translate("layers.misses", limits=report.verdict.thresholds))
    yield translate("layers.output") if len(outputs) == 1 else translate("layers.outputs"), text


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:_LISTED])}{' ...' * (len(names) > _LISTED)}"


def _culprits(report: LayerReport) -> Iterator[_Line]:
    culprits = report.verdict.culprits
    rows = {row.tensor: row for row in report.rows}
    for index, each in enumerate(culprits[:_LISTED]):
        label = "layers.mostly_from" if report.verdict.kind == "fine" else "layers.caused_by"
        yield "" if index else translate(label), _culprit(each, rows.get(each.tensor))
    if len(culprits) > _LISTED:
        names = ", ".join(each.node or each.tensor for each in culprits[_LISTED:])
        yield "", translate("layers.and_these", names=names)
    if culprits:
        rules = [rule for each in culprits for rule in each.remedy]
        yield translate("layers.remedy"), " ".join(f"--set {shlex.quote(rule)}" for rule in rules)
    if report.verdict.masked:
        yield translate("layers.also"), translate("layers.masked", names=_listed(report.verdict.masked))


def _culprit(each: Culprit, row: LayerRow | None) -> str:
    local = None if row is None or row.local is None else row.local.sqnr_db
    local_text = "" if local is None else translate("layers.unit_db", db=_db(local))
    parts = [_how(each, row), commas(local_text, _channels(each, local))]
    if each.quantized_again is not None:
        parts.append(translate("layers.again", db=_db(each.quantized_again.sqnr_db)))
    return translate("layers.score", name=_who(each), score=semicolons(*parts))


def _who(each: Culprit) -> str:
    if not each.node:
        return translate("layers.culprit_input", tensor=each.tensor)
    names = {"node": each.node, "op": each.op_type}
    if each.weighted != each.node:
        return translate("layers.culprit_after", weighted=each.weighted, **names)
    if each.tensor != each.node:
        return translate("layers.culprit_at", tensor=each.tensor, **names)
    return translate("layers.culprit", **names)


def _how(each: Culprit, row: LayerRow | None) -> str:
    cause = each.introduced.cause
    if cause == "clipping":
        how = translate("layers.clipping", share=percentage(each.clipped))
    elif cause == "rounding":
        how = translate("layers.rounding", levels=_levels(row) if row else each.used_levels)
    else:
        how = translate("layers.weights") if cause == "weights" else translate("layers.integer")
    if each.result_again is not None and len(each.remedy) > 1:  # both parts were measured to matter
        more = translate("layers.and_result") if cause == "weights" else translate("layers.and_weights")
        return commas(how, more)
    return how


def _channels(each: Culprit, local: float | None) -> str:
    """The worst channel, where it is much worse than the tensor."""
    worst = each.worst_channel_sqnr_db
    if local is None or worst is None or worst > min(_BAD_CHANNEL_DB, local - _WORSE_DB):
        return ""
    text = translate("layers.channel", channel=each.worst_channel, db=_db(worst))
    if not each.lost_channels:
        return text
    return translate("layers.lost_channels", text=text, lost=each.lost_channels, all=each.channels)


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
            names = translate("layers.tried_by_own", names=names)
        yield translate("layers.tried"), names
    if verdict.float_weights is not None and verdict.float_activations is not None:
        weights, activations = verdict.float_weights.sqnr_db, verdict.float_activations.sqnr_db
        text = translate("layers.sides", weights=_db(weights), activations=_db(activations))
        clear = abs(weights - activations) >= _CLEAR_DB
        side = "weights" if weights > activations else "activations"
        yield translate("layers.besides"), translate(f"layers.side_{side}", text=text) if clear else text
        yield translate("layers.try"), translate(f"layers.next_{side if clear else 'both'}")


def _limits(report: LayerReport) -> Iterator[_Line]:
    for text in report.verdict.not_judged:
        yield translate("layers.beware"), shown(text)


def _run(report: LayerReport) -> Iterator[_Line]:
    samples = count_of(len(report.samples), "sample")
    yield translate("layers.run"), semicolons(shown(report.quantized), shown(report.arithmetic), samples)


def _integers(report: LayerReport) -> Iterator[_Line]:
    if report.overflows:
        first = report.overflows[0]
        more = len(report.overflows) - 1
        name = translate("layers.culprit", node=first.node, op=first.op_type)
        text = translate("layers.score", name=name, score=shown(first.text))
        text = translate("layers.overflow_more", text=text, count=more) if more else text
        yield translate("layers.overflow"), text
    if report.float_nodes:
        nodes = count_of(len(report.float_nodes), "node")
        yield (
            translate("layers.run_float"),
            translate("layers.score", name=nodes, score=_listed(tuple(report.float_nodes))),
        )


def _coverage(report: LayerReport) -> Iterator[_Line]:
    return judgement_lines(report.judgement)


_PARTS = (_coverage, _outputs, _culprits, _tried, _integers, _limits)


def _facts(report: LayerReport) -> Iterator[pages.Facts]:
    """What a terminal says, and what stands in a report besides: how it was run, which whoever typed it knows."""

    def lines(*parts: Callable[[LayerReport], Iterator[_Line]]) -> pages.Facts:
        return pages.bilingual_facts(lambda: (line for part in parts for line in part(report)))

    yield replace(lines(*_PARTS), on=("terminal",))
    yield replace(lines(*_PARTS, _run), on=("html", "csv"))


def _table(report: LayerReport, view: pages.View) -> pages.TableBlock:
    """All rows in execution order; a terminal shows those first that matter most, unless asked for the order."""
    columns = _columns(report)
    worst = sorted(range(len(report.rows)), key=lambda index: _badness(report.rows[index]))
    # In execution order, too, it is the rows that matter least for which there is no room.
    order = sorted(worst[: view.most]) if view.sort == "order" else worst
    return pages.table(
        "layers",
        "layers.rows",
        columns,
        report.rows,
        sort="-output_share",
        file="layers.csv",
        most=view.most,
        order=tuple(order),
    )


def _columns(report: LayerReport) -> list[pages.ColumnOf[LayerRow]]:
    """The columns of a report: what terminals and browsers show, then the rest of what is known, for CSV files."""
    everywhere: tuple[pages.Place, ...] = ("terminal", "html", "csv")
    drawn: tuple[pages.Place, ...] = ("terminal", "html")
    found: list[pages.ColumnOf[LayerRow]] = [
        pages.column("order", "#", "count"),
        pages.column("node", "common.node", "node", on="html csv"),
        pages.column("shown_tensor", "common.tensor", "node", lambda row: row.tensor, on="terminal"),
        pages.column("op_type", "common.operation", short="terminal.operation", wide=True),
        pages.column("unit", "unit", on="csv"),
        pages.column("tensor", "common.tensor", on="html csv"),
        pages.column(
            "shown_type", "layers.column_type", cell=lambda row: pages.type_name(row.quantized), on="terminal html"
        ),
        pages.column(
            "shape", "layers.column_shape", cell=lambda row: shape_text(row.shape) if row.shape else "", wide=True
        ),
        *pages.csv_columns("dtype quantized output samples levels"),
        pages.column("clipped", "layers.clipped", "share", higher_is_better=False, short="layers.column_clip"),
    ]
    for method in ("local", "accumulated"):
        found += _score_columns(method, shown=report.method in (method, "both"))
    codes = pages.Column(
        "used_levels", bilingual("layers.levels"), "count", on=drawn, short=bilingual("layers.column_levels")
    )
    found.append(pages.ColumnOf(codes, lambda row: _levels(row) or None))
    found += _added_columns(shown=report.method == "both")
    differ: tuple[pages.Place, ...] = everywhere if report.mode == "integer" else ("csv",)
    different = pages.Column("differing_codes", bilingual("layers.column_differ"), "share", on=differ, wide=True)
    return [
        *found,
        pages.ColumnOf(different, lambda row: row.differing_codes),
        *pages.csv_columns("distant_codes"),
    ]


def _score_columns(method: str, *, shown: bool) -> list[pages.ColumnOf[LayerRow]]:
    """What is known of a tensor by one method; a terminal leaves most of it out."""

    def column(name: str, kind: Any, short: Phrase, *, wide: bool = False) -> pages.Column:
        label = bilingual(f"layers.{method}_db") if name == "sqnr_db" else plain(f"{method} {name}")
        meaning = explained(f"{method}_sqnr_db") if name == "sqnr_db" else None
        drawn: tuple[pages.Place, ...] = ("terminal", "html", "csv") if name == "sqnr_db" else ("terminal", "csv")
        better = True if name in ("sqnr_db", "cosine") else None
        on: tuple[pages.Place, ...] = drawn if shown else ("csv",)
        return pages.Column(
            f"{method}_{name}", label, kind, meaning, better, on=on, short=short, digits=3, wide=wide
        )

    def cell(name: str) -> Callable[[LayerRow], pages.Cell]:
        def value(row: LayerRow) -> pages.Cell:
            score: LayerScore | None = getattr(row, method)
            if score is not None and name == "sqnr_db" and score.sqnr_db is None:
                return _no_score(score)
            if score is not None and name == "detail":
                return phrase_of(score.detail)
            return None if score is None else getattr(score, name)

        return value

    heading = bilingual(f"layers.column_{method}")
    shapes: dict[str, tuple[Any, Phrase, bool]] = {
        "sqnr_db": ("decibels", Phrase(f"{heading.en}|dB", f"{heading.zh}|dB"), False),
        "cosine": ("score", bilingual("layers.column_cosine"), method == "local"),
        "rms_steps": ("number", bilingual("layers.column_steps"), method != "local"),
        "max_steps": ("number", bilingual("layers.column_max"), True),
        "mse": ("number", plain("mse"), True),
    }
    found = []
    for name in (field.name for field in fields(LayerScore) if field.name != "sample_sqnr_db"):
        if name in shapes:
            kind, short, wide = shapes[name]
            found.append(pages.ColumnOf(column(name, kind, short, wide=wide), cell(name)))
        else:
            hidden = pages.Column(f"{method}_{name}", plain(f"{method} {name}"), "text", on=("csv",))
            found.append(pages.ColumnOf(hidden, cell(name)))
    if shown:
        worst = pages.Column(
            f"shown_{method}_channel", bilingual("layers.column_channel"), "count", on=("terminal",), wide=True
        )
        found.append(pages.ColumnOf(worst, lambda row: _worst_channel(getattr(row, method))))
    return found


def _worst_channel(score: LayerScore | None) -> str:
    if score is None or score.worst_channel is None or score.worst_channel_sqnr_db is None:
        return ""
    return f"{score.worst_channel}: {_db(score.worst_channel_sqnr_db)}"


def _no_score(score: LayerScore) -> Phrase:
    """What stands in the place of decibels that there are none of; documents have the whole reason."""
    if score.status == "degenerate":
        return bilingual("layers.empty")
    return plain(_NO_SCORE.get(score.status, score.status))


def _added_columns(*, shown: bool) -> list[pages.ColumnOf[LayerRow]]:
    def cell(name: str) -> Callable[[LayerRow], pages.Cell]:
        return lambda row: None if row.introduced is None else getattr(row.introduced, name)

    share = pages.Column(
        "output_share",
        bilingual("layers.adds"),
        "share",
        higher_is_better=False,
        on=("terminal", "html", "csv") if shown else ("csv",),
        short=bilingual("layers.column_adds"),
    )
    names = {"introduced_sqnr_db": "sqnr_db", "introduced_channel_sqnr_db": "channel_sqnr_db"}
    hidden = [pages.column(id_, plain(id_), cell=cell(name), on="csv") for id_, name in names.items()]
    cause = pages.Column("cause", plain("cause"), "text", on=("csv",))
    return [*hidden, pages.ColumnOf(share, cell("output_share")), pages.ColumnOf(cause, cell("cause"))]


def _badness(row: LayerRow) -> tuple[bool, float, float]:
    """Smaller is worse: what has no score, then what adds most to the outputs' error, then the largest error."""
    scores = [score for score in (row.local, row.accumulated) if score is not None]
    scored = all(score.sqnr_db is not None and score.status != "nonfinite" for score in scores)
    share = 0.0 if row.introduced is None else row.introduced.output_share
    levels = [math.inf if score.sqnr_db is None else score.sqnr_db for score in scores]
    return scored, -share, min(levels, default=math.inf)


def _legend(report: LayerReport) -> str:
    """What the columns mean that do not say it themselves."""
    words = [translate("layers.legend_db")]
    if report.method != "accumulated":
        words.append(translate("layers.legend_local"))
    if report.method != "local":
        words.append(translate("layers.legend_accumulated"))
    words.append(translate("layers.legend_steps"))
    if report.method == "both":
        words.append(translate("layers.legend_adds"))
    return semicolons(*words)


def _in_words(score: LayerScore | None) -> str:
    if score is None or score.sqnr_db is None:
        return translate("terminal.no_score") if score is None else shown(score.detail)
    text = translate("layers.in_words", db=_db(score.sqnr_db), cosine=score_text("cosine", score.cosine))
    return translate("layers.nonfinite", text=text, detail=score.detail) if score.status == "nonfinite" else text


def _levels(row: LayerRow) -> str:
    score = row.local or row.accumulated
    return "" if score is None or score.used_levels is None else f"{score.used_levels}/{row.levels}"


def _db(value: float) -> str:
    return score_text("sqnr_db", value)
