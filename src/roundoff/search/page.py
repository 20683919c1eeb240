"""A search for the cheapest quantization that meets a goal: its answer, and every trial."""

import math
from collections.abc import Iterator

from roundoff.core.document import RunDocument
from roundoff.core.plan import inputs_text
from roundoff.messages.catalogue import Phrase, in_all, plain, say, told
from roundoff.messages.numbers import decibels_with_unit, in_decibels, score_heading, score_text, share_text
from roundoff.messages.phrases import commas, count_of, few, semicolons
from roundoff.messages.sentences import known, sentence
from roundoff.pages.blocks import (
    Cell,
    Chart,
    Column,
    Headline,
    Page,
    Place,
    Series,
    TableBlock,
    Tone,
    metric_axis,
    metric_column,
    notes,
    spoken_facts,
)
from roundoff.search.result import Trial, Tuning

__all__ = ["trial_line", "tuning_page"]

_LISTED = 6
_LONGEST_CHANGE = 40
_SHARES = frozenset({"accuracy", "same_top1"})
_KEPT: tuple[Place, ...] = ("html", "csv")
_Line = tuple[str, str]


def tuning_page(document: RunDocument) -> Page | None:
    """The page on a search: whether the goal is met, by what, what is left; None when there was none."""
    found = document.tuning
    if found is None:
        return None
    series = [Series((found.metric,), say("search.one_trial"), "points")]
    if found.front:
        series.append(Series((found.metric,), say("search.on_front"), "line", only=("front", "1")))
    axes = (say("search.cost_axis"), metric_axis(found.metric))
    chart = Chart("trials-chart", say("search.chart"), "trials", "cost", tuple(series), *axes)
    facts = spoken_facts(lambda: _lines(found))
    return Page(
        "tuning", say("search.title"), (_headline(found), facts, chart, _table(found), *notes(found.notes))
    )


def _headline(found: Tuning) -> Headline:
    best, term = found.best, f"tuning_{found.verdict}"
    goal = {"metric": in_all(lambda: _name(found)), "goal": known(found.goal)}
    if found.verdict == "nothing_to_do":
        return Headline("good", say("search.nothing", **goal), term, say("search.word_nothing"))
    if found.verdict == "met":
        others = None if found.holdout is None else found.holdout.met
        word = "met" if others is None else "met_others" if others else "met_alone"
        tone: Tone = "open" if others is False else "good"
        return Headline(tone, say("search.met", change=known(best.change)), term, say(f"search.word_{word}"))
    text = say("search.short", **goal)
    if found.goal_value is not None:
        short = abs(found.goal_value - best.score)
        text = say("search.short_by", difference=in_all(lambda: _difference(found, short)), **goal)
    return Headline("bad", text, term, say("search.word_best_effort"))


def _lines(found: Tuning) -> Iterator[_Line]:
    best, kept = found.best, found.remaining
    goal = "" if found.goal_value is None else _score(found, found.goal_value)
    if found.verdict == "met":
        yield told("search.goal"), commas(f"{_name(found)} {sentence(found.goal)}", goal)
    yield _name(found), _loss(found)
    if found.holdout is not None:
        held = found.holdout
        scores = _scores(found, held.score, held.float_score)
        others = commas(count_of(held.samples, "other_sample"), _interval(found, held.interval))
        yield told("search.not_searched"), semicolons(scores, others)
        if held.met is False and found.verdict != "best_effort":
            yield "", told("search.less", goal=sentence(found.goal))
    if found.verdict == "best_effort":
        yield told("search.best_is"), sentence(best.change)
    elif _unsure(found):
        text = told("search.too_few", count=found.samples)
        yield told("search.beware"), semicolons(text, "" if found.holdout else told("search.hold_out"))
    wide = told("search.wide", count=kept.wide_nodes) if kept.wide_nodes else ""
    nodes = commas(told("search.nodes", count=kept.nodes, all=kept.all_nodes), wide)
    yield told("search.quantized"), semicolons(nodes, _work(found))
    if found.verdict != "nothing_to_do":
        yield told("search.cost"), told("search.times", cost=f"{best.cost:.3g}")
    yield from _nodes(found)
    if found.minimal is not None:
        needed = told("search.minimal") if found.minimal else told("search.not_minimal")
        yield told("search.needed"), needed
    yield told("search.search"), _effort(found)
    if found.stopped:
        yield told("search.ended"), told("search.early", why=sentence(found.stopped))


def _scores(found: Tuning, score: float, float_score: float) -> str:
    return told("search.scores", score=_score(found, score), float_score=_score(found, float_score))


def _unsure(found: Tuning) -> bool:
    """Whether the loss on other samples may well be more than the goal allows."""
    if found.goal_value is None or found.interval is None:
        return found.samples == 1
    return found.interval[1] > abs(found.float_score - found.goal_value)


def _loss(found: Tuning) -> str:
    text = _scores(found, found.best.score, found.float_score)
    if found.samples:
        text = semicolons(text, count_of(found.samples, "sample"))
    return commas(text, _interval(found, found.interval))


def _interval(found: Tuning, interval: tuple[float, float] | None) -> str:
    if interval is None or in_decibels(found.metric):
        return ""
    shares = found.metric in _SHARES
    low, high = (f"{(100 if shares else 1) * end:.3g}" for end in interval)
    return told("search.interval_points" if shares else "search.interval", low=low, high=high)


def _work(found: Tuning) -> str:
    kept = found.remaining
    parts = []
    if kept.all_products:
        parts.append(told("search.products", share=share_text(kept.products / kept.all_products)))
    if kept.float_bytes:
        parts.append(told("search.bytes", share=share_text(kept.weight_bytes / kept.float_bytes)))
    return commas(*parts)


def _nodes(found: Tuning) -> Iterator[_Line]:
    by_precision: dict[str, list[str]] = {}
    for rule in (rule for rule in found.best.recipe.rules if rule.kind == "node"):
        by_precision.setdefault(inputs_text(rule.precision), []).extend(rule.selector)
    for precision, names in by_precision.items():
        yield precision, few(names, _LISTED)
    if found.dragged:
        dragged = [f"{each.node} ({each.precision})" for each in found.dragged]
        yield told("search.brought_along"), few(dragged, _LISTED)


def _effort(found: Tuning) -> str:
    whole = told("search.whole", count=found.evaluations)
    ranked = told("search.ranking", count=found.ranking_runs) if found.ranking_runs else ""
    tried = told("search.trials", count=len(found.trials))
    runs = commas(told("search.runs", count=found.sample_runs), ranked) if found.samples else ""
    return semicolons(commas(found.strategy, tried, whole), runs)


def _name(found: Tuning) -> str:
    if found.metric == "same_top1":
        return told("search.same_top")
    return score_heading(found.metric).removesuffix(" dB")


def _score(found: Tuning, value: float) -> str:
    return _metric_text(found.metric, value)


def _metric_text(metric: str, value: float) -> str:
    if not math.isfinite(value):
        return "-"
    if metric in _SHARES:
        return share_text(value)
    return decibels_with_unit(value) if in_decibels(metric) else score_text(metric, value)


def trial_line(trial: Trial, best: Trial, metric: str) -> str:
    """One trial that is over, while others follow."""
    change = sentence(trial.change)
    change = change if len(change) <= _LONGEST_CHANGE else change[: _LONGEST_CHANGE - 4] + " ..."
    score = commas(_metric_text(metric, trial.score), told("search.trial_met") if trial.met else "")
    text = told("search.trial", number=trial.number, change=change, score=score)
    if best.recipe == trial.recipe:
        return text
    best_score = _metric_text(metric, best.score)
    return semicolons(text, told("search.best_so_far", score=best_score, number=best.number))


def _difference(found: Tuning, value: float) -> str:
    if found.metric in _SHARES:
        return told("search.points", value=f"{100 * value:.2f}")
    return f"{value:.1f} dB" if in_decibels(found.metric) else f"{value:.3g}"


def _table(found: Tuning) -> TableBlock:
    drawn: tuple[Place, ...] = ("terminal",)
    columns = (
        Column("trial", plain("#"), "count"),
        Column("change", say("search.change"), "text"),
        metric_column(found.metric, higher_is_better=found.higher_is_better, on=_KEPT),
        Column("loss", say("search.loss"), "number", higher_is_better=False, on=_KEPT),
        Column("cost", say("search.cost"), "number", higher_is_better=False, on=_KEPT),
        Column("shown_score", in_all(lambda: _name(found)), "number", on=drawn),
        Column("shown_loss", say("search.column_loss"), "number", on=drawn),
        Column("shown_cost", say("search.cost"), "number", on=drawn),
        Column("met", say("search.goal_met"), "truth", on=_KEPT),
        *(
            (Column("front", say("search.on_front"), "truth", say("search.on_front_help"), on=("html",)),)
            if found.front
            else ()
        ),
        Column("samples", say("sensitivity.column_samples"), "count", short=say("search.column_samples")),
        Column(
            "took", say("search.seconds"), "seconds", on=("terminal", "html"), short=say("search.column_seconds")
        ),
        Column("mark", plain(""), "text", on=drawn),
        *(Column(name, plain(name), "text", on=("csv",)) for name in ("whole", "seconds", "answer")),
    )
    rows = tuple(_row(found, place, each) for place, each in enumerate(found.trials, 1))
    file = ("trial", "change", "met", found.metric, "loss", "cost", "samples", "whole", "seconds", "answer")
    return TableBlock("trials", say("search.history"), columns, rows, file="trials.csv", csv_order=file)


def _row(found: Tuning, place: int, trial: Trial) -> tuple[Cell, ...]:
    answer = place == found.answer
    loss = "-" if not math.isfinite(trial.loss) else _plain_loss(found, trial)
    return (
        trial.number,
        known(trial.change),
        trial.score,
        trial.loss,
        trial.cost,
        in_all(lambda: _score(found, trial.score).removesuffix(" dB")),
        plain(loss),
        plain(f"{trial.cost:.2f}" if math.isfinite(trial.cost) else "-"),
        trial.met,
        *((trial.number in found.front,) if found.front else ()),
        trial.samples,
        trial.seconds,
        _mark(found, trial, answer=answer),
        trial.whole,
        f"{trial.seconds:.3f}",
        True if answer else None,
    )


def _mark(found: Tuning, trial: Trial, *, answer: bool) -> Phrase:
    words = [say("search.answer")] if answer else [say("search.trial_met")] if trial.met else []
    words += [say("search.on_the_front")] if trial.number in found.front else []
    return Phrase(" ".join(each.en for each in words), " ".join(each.zh for each in words))


def _plain_loss(found: Tuning, trial: Trial) -> str:
    return f"{100 * trial.loss:.2f}" if found.metric in _SHARES else f"{trial.loss:.3g}"
