"""A search for people: whether the goal is met, with what, and a line for each trial."""

import csv
import io
import math
from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.core.plan import inputs_text
from roundoff.messages.catalogue import told
from roundoff.messages.numbers import decibels_with_unit, in_decibels, score_heading, score_text, share_text
from roundoff.messages.phrases import commas, count_of, few, headline, semicolons
from roundoff.messages.sanitize import safe_cell
from roundoff.messages.sentences import sentence
from roundoff.pages.terminal import VerdictLine, verdict_page
from roundoff.search.result import HoldOut, Trial, Tuning

__all__ = ["trial_line", "tuning_csv", "tuning_table", "tuning_verdict"]

_LISTED = 6
_LONGEST_CHANGE = 40
_SHARES = frozenset({"accuracy", "same_top1"})


def tuning_verdict(found: Tuning) -> RenderableType:
    """What a busy person reads: whether the goal is met, by what, what is still quantized, and what it costs."""
    return verdict_page(_headline(found), _lines(found))


def _headline(found: Tuning) -> Text:
    best = found.best
    goal = {"metric": _name(found), "goal": sentence(found.goal)}
    if found.verdict == "nothing_to_do":
        return headline(told("tuning_text.word_nothing"), "bold green", told("tuning_text.nothing", **goal))
    if found.verdict == "met":
        word, style = _met(found.holdout)
        return headline(word, style, told("tuning_text.met", change=sentence(best.change)))
    text = told("tuning_text.short", **goal)
    if found.goal_value is not None:
        difference = _difference(found, abs(found.goal_value - best.score))
        text = told("tuning_text.short_by", difference=difference, **goal)
    return headline(told("tuning_text.word_best_effort"), "bold red", text)


def _met(held: HoldOut | None) -> tuple[str, str]:
    """The verdict where the goal is met, and its style."""
    if held is None or held.met is None:
        return told("tuning_text.word_met"), "bold green"
    if held.met:
        return told("tuning_text.word_met_others"), "bold green"
    return told("tuning_text.word_met_alone"), "bold yellow"


def _lines(found: Tuning) -> Iterator[VerdictLine]:
    best, kept = found.best, found.remaining
    goal = "" if found.goal_value is None else _score(found, found.goal_value)
    if found.verdict == "met":
        yield told("tuning_text.goal"), commas(f"{_name(found)} {sentence(found.goal)}", goal)
    yield _name(found), _loss(found)
    if found.holdout is not None:
        held = found.holdout
        scores = _scores(found, held.score, held.float_score)
        others = commas(count_of(held.samples, "other_sample"), _interval(found, held.interval))
        yield told("tuning_text.not_searched"), semicolons(scores, others)
        if held.met is False and found.verdict != "best_effort":
            yield "", told("tuning_text.less", goal=sentence(found.goal))
    if found.verdict == "best_effort":
        yield told("tuning_text.best_is"), sentence(best.change)
    elif _unsure(found):
        text = told("tuning_text.too_few", count=found.samples)
        yield told("tuning_text.beware"), semicolons(text, "" if found.holdout else told("tuning_text.hold_out"))
    wide = told("tuning_text.wide", count=kept.wide_nodes) if kept.wide_nodes else ""
    nodes = commas(told("tuning_text.nodes", count=kept.nodes, all=kept.all_nodes), wide)
    yield told("tuning_text.quantized"), semicolons(nodes, _work(found))
    if found.verdict != "nothing_to_do":
        yield told("tuning_text.cost"), told("tuning_text.times", cost=f"{best.cost:.3g}")
    yield from _nodes(found)
    if found.minimal is not None:
        needed = told("tuning_text.minimal") if found.minimal else told("tuning_text.not_minimal")
        yield told("tuning_text.needed"), needed
    yield told("tuning_text.search"), _effort(found)
    if found.stopped:
        yield told("tuning_text.ended"), told("tuning_text.early", why=sentence(found.stopped))


def _scores(found: Tuning, score: float, float_score: float) -> str:
    return told("tuning_text.scores", score=_score(found, score), float_score=_score(found, float_score))


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
    return told("tuning_text.interval_points" if shares else "tuning_text.interval", low=low, high=high)


def _work(found: Tuning) -> str:
    kept = found.remaining
    parts = []
    if kept.all_products:
        parts.append(told("tuning_text.products", share=share_text(kept.products / kept.all_products)))
    if kept.float_bytes:
        parts.append(told("tuning_text.bytes", share=share_text(kept.weight_bytes / kept.float_bytes)))
    return commas(*parts)


def _nodes(found: Tuning) -> Iterator[VerdictLine]:
    by_precision: dict[str, list[str]] = {}
    for rule in (rule for rule in found.best.recipe.rules if rule.kind == "node"):
        by_precision.setdefault(inputs_text(rule.precision), []).extend(rule.selector)
    for precision, names in by_precision.items():
        yield precision, few(names, _LISTED)
    if found.dragged:
        dragged = [f"{each.node} ({each.precision})" for each in found.dragged]
        yield told("tuning_text.brought_along"), few(dragged, _LISTED)


def _effort(found: Tuning) -> str:
    whole = told("tuning_text.whole", count=found.evaluations)
    ranked = told("tuning_text.ranking", count=found.ranking_runs) if found.ranking_runs else ""
    tried = told("tuning_text.trials", count=len(found.trials))
    runs = commas(told("tuning_text.runs", count=found.sample_runs), ranked) if found.samples else ""
    return semicolons(commas(found.strategy, tried, whole), runs)


def _name(found: Tuning) -> str:
    if found.metric == "same_top1":
        return told("tuning_text.same_top")
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
    score = commas(_metric_text(metric, trial.score), told("tuning_text.trial_met") if trial.met else "")
    text = told("tuning_text.trial", number=trial.number, change=change, score=score)
    if best.recipe == trial.recipe:
        return text
    best_score = _metric_text(metric, best.score)
    return semicolons(text, told("tuning_text.best_so_far", score=best_score, number=best.number))


def _difference(found: Tuning, value: float) -> str:
    if found.metric in _SHARES:
        return told("tuning_text.points", value=f"{100 * value:.2f}")
    return f"{value:.1f} dB" if in_decibels(found.metric) else f"{value:.3g}"


def tuning_table(found: Tuning) -> RenderableType:
    """One line per trial; the answer is marked."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("", justify="right", no_wrap=True)
    table.add_column(told("tuning_text.column_change"), overflow="fold", min_width=20)
    table.add_column(Text(_name(found)), justify="right", no_wrap=True)
    table.add_column(told("tuning_text.column_loss"), justify="right", no_wrap=True)
    table.add_column(told("tuning_text.cost"), justify="right", no_wrap=True)
    table.add_column(told("tuning_text.column_samples"), justify="right", no_wrap=True)
    table.add_column(told("tuning_text.column_seconds"), justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for place, trial in enumerate(found.trials, 1):
        mark = told("tuning_text.trial_met") if trial.met else ""
        if place == found.answer:
            mark = told("tuning_text.answer")
        if trial.number in found.front:
            mark = f"{mark} {told('tuning_text.front')}".strip()
        loss = "-" if not math.isfinite(trial.loss) else _plain_loss(found, trial)
        cost = f"{trial.cost:.2f}" if math.isfinite(trial.cost) else "-"
        table.add_row(
            str(trial.number),
            Text(sentence(trial.change)),
            _score(found, trial.score).removesuffix(" dB"),
            loss,
            cost,
            str(trial.samples) if found.samples else "-",
            f"{trial.seconds:.1f}",
            mark,
        )
    return table


def _plain_loss(found: Tuning, trial: Trial) -> str:
    return f"{100 * trial.loss:.2f}" if found.metric in _SHARES else f"{trial.loss:.3g}"


def tuning_csv(found: Tuning) -> str:
    """All trials as CSV."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(
        ("trial", "change", "met", found.metric, "loss", "cost", "samples", "whole", "seconds", "answer")
    )
    for place, trial in enumerate(found.trials, 1):
        writer.writerow(
            (
                trial.number,
                safe_cell(trial.change),
                "yes" if trial.met else "no",
                repr(trial.score),
                repr(trial.loss),
                repr(trial.cost),
                trial.samples,
                "yes" if trial.whole else "no",
                f"{trial.seconds:.3f}",
                "yes" if place == found.answer else "",
            )
        )
    return out.getvalue()
