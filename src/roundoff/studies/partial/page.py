"""What it brings to leave more and more in float or 16 bits: how many it takes, the curve, and its knee."""

import math
from collections.abc import Iterator
from dataclasses import replace

from roundoff import pages
from roundoff.core.document import RunDocument
from roundoff.measure.inference import share_interval
from roundoff.measure.metrics import is_metric, summary_of
from roundoff.messages.catalogue import (
    Phrase,
    bilingual,
    count_of,
    few,
    in_all_languages,
    semicolons,
    translate,
)
from roundoff.messages.message import shown
from roundoff.messages.numbers import (
    named_score,
    percent_number,
    score_heading,
    score_text,
    share_text,
    spaced_percent,
)
from roundoff.pages.cards import HeroCard, NetworkRole, first_screen, score_figure
from roundoff.pages.coverage import judgement_lines
from roundoff.studies.partial.result import ACCURACY, SAME_TOP1, PartialQuantization, PartialStep

_LISTED = 8
# A share times its samples that is nearer to a whole number is a count.
_WHOLE = 1e-6
_CHANGES = {"float": "to_float", "s16": "to_s_bits", "u16": "to_u_bits"}
_Line = tuple[str, str]


def partial_page(document: RunDocument) -> pages.Page | None:
    """The page on partial quantization; None when none was tried."""
    found = document.partial
    if found is None:
        return None
    chart = pages.Chart(
        "partial-chart",
        bilingual("partial.curve", to=found.to),
        "partial",
        "count",
        (pages.Series((found.score,), in_all_languages(lambda: score_heading(found.score))),),
        bilingual("partial.count_axis", to=found.to),
        pages.metric_axis(found.score),
        marks=() if found.knee is None else ((found.knee, bilingual("partial.mark")),),
    )
    headline = _headline(found)
    return pages.Page(
        "partial",
        bilingual("partial.title"),
        (
            _first_screen(document, found, headline),
            headline,
            pages.bilingual_facts(lambda: _lines(found)),
            chart,
            _table(found),
            *pages.notes(found.notes),
            *pages.preparation_note(found.preparation),
        ),
    )


def _first_screen(document: RunDocument, found: PartialQuantization, headline: pages.Headline) -> HeroCard:
    """All quantized, and what the fewest changes give that reach the goal, or all that were tried."""
    last = found.steps[-1 if found.knee is None else found.knee]
    samples = in_all_languages(lambda: count_of(found.samples, "sample"))
    shown: list[tuple[Phrase, NetworkRole, float]] = []
    if math.isfinite(found.float_score) and found.float_score != 1:  # else it is measured against float
        shown.append((bilingual("card.float"), "float", found.float_score))
    shown.append((bilingual("card.quantized"), "quantized", found.steps[0].score))
    if last.count:
        label = bilingual("partial.hero_top", count=last.count, changed=bilingual(f"partial.{_CHANGES[found.to]}"))
        shown.append((label, "quantized" if found.knee is None else "repaired", last.score))
    figures = [
        score_figure(
            label, role, metric=found.score, value=value, detail=samples, interval=_interval(found, value)
        )
        for label, role, value in shown
    ]
    covered = None if found.judgement is None else found.judgement.coverage
    names = in_all_languages(lambda: translate("partial.hero_these", names=few(found.chosen, _LISTED)))
    return first_screen(document, headline, scores=figures, covered=covered, text=names if found.chosen else None)


def _interval(found: PartialQuantization, value: float) -> tuple[float, float] | None:
    """Where a share of right samples lies for others; None where it is no such share."""
    right = value * found.samples
    counted = found.score in (ACCURACY, SAME_TOP1) and abs(right - round(right)) < _WHOLE
    return share_interval(round(right), found.samples) if counted else None


def _headline(found: PartialQuantization) -> pages.Headline:
    goal, changed = in_all_languages(lambda: _goal(found)), bilingual(f"partial.{_CHANGES[found.to]}")
    tone: pages.Tone = "good"
    if found.knee is not None and found.judgement is not None and not found.judgement.good:
        return pages.Headline(
            "open", bilingual("partial.no_evidence", goal=goal), "", bilingual("partial.word_no_evidence")
        )
    if found.knee == 0 and found.exact_weights and _against_float(found):
        tone, kind = "open", "open"
    elif found.knee is not None:
        kind = "top" if found.knee else "nothing"
    else:
        tone, kind = "bad", "missed"
    count = found.steps[-1].count if found.knee is None else found.knee
    text = bilingual(f"partial.{kind}", goal=goal, changed=changed, count=count)
    return pages.Headline(tone, text, "", bilingual(f"partial.word_{kind}", count=count))


def _against_float(found: PartialQuantization) -> bool:
    """Whether the goal means nothing without the true float network."""
    return found.goal.text.endswith("%") or found.score == SAME_TOP1 or is_metric(found.score)


def _goal(found: PartialQuantization) -> str:
    value = named_score(found.score, found.goal.value)
    if not found.goal.text.endswith("%"):
        return value
    return translate("partial.goal", share=spaced_percent(found.goal.text), value=value)


def _lines(found: PartialQuantization) -> Iterator[_Line]:
    yield from judgement_lines(found.judgement)
    first = found.steps[0]
    known = math.isfinite(found.float_score) and found.float_score != 1
    float_score = translate("partial.float", score=score_text(found.score, found.float_score)) if known else ""
    samples = count_of(found.samples, "sample")
    yield translate("partial.quantized"), semicolons(_score(found, first), float_score, samples)
    if found.knee:
        yield translate("partial.label_top", count=found.knee), _score(found, found.steps[found.knee])
    if found.chosen:
        label = translate("partial.these_are") if found.knee else translate("partial.best_are")
        yield label, few(found.chosen, _LISTED)
    yield translate("partial.levels_off"), _levels_off(found)
    if found.drops:
        worst = max(found.drops, key=lambda count: _loss(found, count))
        loss = _loss(found, worst)
        by = f"{percent_number(loss)} %" if found.score == "accuracy" else f"{loss:.2g}"
        text = translate("partial.drops", count=len(found.drops), loss=by, worst=worst)
        yield translate("partial.not_monotonic"), text
    else:
        yield translate("partial.monotonic"), translate("partial.no_drops")
    yield translate("partial.order"), shown(found.ranking)
    if found.knee is None:
        yield translate("partial.next"), _next(found)


def _next(found: PartialQuantization) -> str:
    """What to try when nothing reaches the goal."""
    more = translate("partial.next_more") if found.steps[-1].count < len(found.subjects) else ""
    other = translate("partial.next_bits") if found.to == "float" else translate("partial.next_other")
    return semicolons(more, other)


def _loss(found: PartialQuantization, count: int) -> float:
    change = found.steps[count - 1].score - found.steps[count].score
    return change if found.higher_is_better else -change


def _levels_off(found: PartialQuantization) -> str:
    if found.levels_off is None:
        return translate("partial.nothing_gained")
    step, last = found.steps[found.levels_off], found.steps[-1].count
    if found.levels_off == last:
        return translate("partial.not_before", count=last)
    return translate("partial.off_at", count=step.count, score=named_score(found.score, step.score), last=last)


def _score(found: PartialQuantization, step: PartialStep) -> str:
    text = named_score(found.score, step.score)
    if step.share is None or found.float_score == 1:
        return text
    return translate("partial.of_float", score=text, share=share_text(step.share, 1))


def _table(found: PartialQuantization) -> pages.TableBlock:
    """One line per step; the knee is marked."""
    compared = found.float_score != 1 and found.steps[0].share is not None
    others = list(dict.fromkeys(name for step in found.steps for name in step.scores))
    measured = {name for name in others if all(name in step.scores for step in found.steps)}
    columns: list[pages.ColumnOf[PartialStep]] = [
        pages.column("count", "partial.count", "count", short="partial.column_top"),
        pages.column("subject", "partial.subject", "node", on="csv"),
        pages.column(
            "shown_subject",
            "partial.subject",
            "node",
            lambda step: step.subject or bilingual("partial.all_quantized"),
            on="terminal html",
            short="partial.column_added",
        ),
        pages.column("op_type", "common.operation", short="terminal.operation"),
        pages.ColumnOf(
            _score_column(found.score, higher_is_better=found.higher_is_better), lambda step: step.score
        ),
        pages.column(
            "of_float",
            "partial.share",
            "score",
            lambda step: step.share,
            higher_is_better=True,
            on="terminal html csv" if compared else "csv",
            metric="accuracy",
        ),
        *(_other(name, shown=name in measured) for name in others),
        pages.column(
            "mark",
            "",
            cell=lambda step: bilingual("partial.column_mark") if step.count == found.knee else "",
            on="terminal",
        ),
        pages.column("reaches_goal", "reaches goal", "truth", lambda step: _reaches(found, step), on="csv"),
        pages.column("quantizers", "quantizers", cell=lambda step: " ".join(step.quantizers), on="csv"),
    ]
    return pages.table("partial", "partial.table", columns, found.steps, file="partial.csv")


def _other(name: str, *, shown: bool) -> pages.ColumnOf[PartialStep]:
    column = _score_column(name)
    return pages.ColumnOf(column if shown else replace(column, on=("csv",)), lambda step: step.scores.get(name))


def _score_column(name: str, *, higher_is_better: bool | None = None) -> pages.Column:
    return pages.metric_column(name, higher_is_better=higher_is_better, summary=summary_of(name))


def _reaches(found: PartialQuantization, step: PartialStep) -> bool:
    return step.score >= found.goal.value if found.higher_is_better else step.score <= found.goal.value
