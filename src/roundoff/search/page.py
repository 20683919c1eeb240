"""A search for the cheapest quantization that meets a goal: its answer, and every trial."""

import math
from collections.abc import Iterator
from dataclasses import replace

from roundoff import pages
from roundoff.core.document import RunDocument
from roundoff.core.plan import inputs_text
from roundoff.measure.inference import share_interval
from roundoff.messages.catalogue import (
    Phrase,
    bilingual,
    commas,
    count_of,
    current_language,
    few,
    in_all_languages,
    named,
    plain,
    semicolons,
    translate,
)
from roundoff.messages.message import phrase_of, shown
from roundoff.messages.numbers import (
    decibels_with_unit,
    in_decibels,
    percent_digits,
    score_name,
    score_text,
    share_text,
)
from roundoff.pages.cards import HeroCard, Mark, NetworkRole, ScoreFigure, first_screen, score_figure
from roundoff.pages.coverage import doubt_line, judged_line
from roundoff.search.result import Trial, Tuning

_LISTED = 6
_LONGEST_CHANGE = 40
# A share of samples is a whole number of them, but for what float32 loses.
_COUNTED = 1e-3
_SHARES = frozenset({"accuracy", "same_top1"})
_KEPT: tuple[pages.Place, ...] = ("html", "csv")
_Line = tuple[str, str]


def tuning_page(document: RunDocument) -> pages.Page | None:
    """The page on a search: whether the goal is met, by what, what is left; None when there was none."""
    found = document.tuning
    if found is None:
        return None
    series = [pages.Series((found.metric,), bilingual("search.one_trial"), "points")]
    if found.front:
        series.append(pages.Series((found.metric,), bilingual("search.on_front"), "line", only=("front", "1")))
    axes = (bilingual("search.cost_axis"), pages.metric_axis(found.metric))
    chart = pages.Chart("trials-chart", bilingual("search.chart"), "trials", "cost", tuple(series), *axes)
    facts, headline = pages.bilingual_facts(lambda: _lines(found)), _headline(found)
    return pages.Page(
        "tuning",
        bilingual("search.title"),
        (
            _first_screen(document, found, headline),
            headline,
            facts,
            chart,
            _table(found),
            *pages.notes(found.notes),
        ),
    )


def _first_screen(document: RunDocument, found: Tuning, headline: pages.Headline) -> HeroCard:
    """Float, as it was, as it is: on samples outside of the search where there are any."""
    held = found.holdout
    notice: tuple[Mark, Phrase] | None = None
    if held is not None:
        sure = held.shown or (held.met and held.shown is None)
        mark: Mark = "good" if sure else "bad" if held.met is False else "open"
        notice = (
            mark,
            bilingual(
                f"search.hero_{'sure' if sure else 'less' if held.met is False else 'unsure'}", count=held.samples
            ),
        )
    screen = first_screen(
        document,
        headline,
        scores=tuple(_figures(found)),
        covered=found.coverage,
        text=_asked_for(found),
        notice=notice,
    )
    if found.doubts or found.verdict not in ("met", "unproven"):
        return screen
    key = "hero_met_here" if found.verdict == "unproven" else "hero_met"
    return replace(screen, title=bilingual(f"search.{key}", change=phrase_of(found.best.change)))


def _asked_for(found: Tuning) -> Phrase:
    def said() -> str:
        goal = "" if found.goal_value is None else _score(found, found.goal_value)
        return translate(
            "search.hero_goal",
            goal=commas(_goal_of(found), goal),
        )

    return in_all_languages(said)


def _figures(found: Tuning) -> Iterator[ScoreFigure]:
    held, first, best = found.holdout, found.trials[0], found.best
    exact, score, samples = found.float_score, best.score, found.samples
    if held is not None:
        exact, score, samples = held.float_score, held.score, held.samples
    outside = held is not None
    detail = "others" if outside else "searched"
    known: list[tuple[Phrase, NetworkRole, float, int, str]] = [
        (bilingual("card.float"), "float", exact, samples, detail)
    ]
    if first is not best:
        part = "searched" if first.whole else "estimated"
        known.append((phrase_of(first.change), "quantized", first.score, first.samples, part))
    role: NetworkRole = "repaired" if best.met else "quantized"
    known.append((phrase_of(best.change), role, score, samples, detail))
    for label, role, value, count, said in known:
        if not math.isfinite(value):
            continue
        ends = _share_ends(found, value, count)
        told = bilingual(f"search.hero_{said}", count=count) if count else plain("")
        if ends is not None:
            low, high = (percent_digits(end, 0) for end in ends)
            told = bilingual("search.hero_interval", samples=told, low=low, high=high)
        yield score_figure(label, role, metric=found.metric, value=value, detail=told, interval=ends)


def _share_ends(found: Tuning, value: float, samples: int) -> tuple[float, float] | None:
    """The interval of a share of samples; None where it is none, as an evaluator may weigh them."""
    right = value * samples
    if found.metric not in _SHARES or not samples or abs(right - round(right)) > _COUNTED:
        return None
    return share_interval(round(right), samples)


def _headline(found: Tuning) -> pages.Headline:
    best, term = found.best, f"tuning_{found.verdict}"
    goal = {"metric": in_all_languages(lambda: _name(found)), "goal": phrase_of(found.goal)}
    if found.doubts and found.verdict != "best_effort" and all(each.kind == "time" for each in found.doubts):
        return pages.Headline("open", bilingual("search.cut", **goal), term, bilingual("search.word_cut"))
    if found.doubts and found.verdict != "best_effort":
        return pages.Headline(
            "open", bilingual("search.doubted", **goal), term, bilingual("search.word_no_evidence")
        )
    if found.verdict == "nothing_to_do":
        return pages.Headline("good", bilingual("search.nothing", **goal), term, bilingual("search.word_nothing"))
    if found.verdict in ("met", "unproven"):
        held = found.holdout
        others = None if held is None else held.met
        word = "met" if others is None else "met_others" if others else "met_alone"
        word = "unproven" if found.verdict == "unproven" and others is not False else word
        tone: pages.Tone = "open" if found.verdict == "unproven" or others is False else "good"
        return pages.Headline(
            tone, bilingual("search.met", change=phrase_of(best.change)), term, bilingual(f"search.word_{word}")
        )
    text = bilingual("search.short", **goal)
    if found.goal_value is not None:
        short = abs(found.goal_value - best.score)
        text = bilingual("search.short_by", difference=in_all_languages(lambda: _difference(found, short)), **goal)
    return pages.Headline("bad", text, term, bilingual("search.word_best_effort"))


def _evidence(found: Tuning) -> Iterator[_Line]:
    if found.coverage is not None:
        yield translate("coverage.label"), judged_line(found.coverage)
    for at, doubt in enumerate(found.doubts):
        yield "" if at else translate("coverage.label_doubt"), doubt_line(doubt)


def _lines(found: Tuning) -> Iterator[_Line]:
    best, kept = found.best, found.remaining
    goal = "" if found.goal_value is None else _score(found, found.goal_value)
    if found.verdict in ("met", "unproven"):
        yield (
            translate("search.goal"),
            commas(_goal_of(found), goal),
        )
    yield _name(found), _loss(found)
    yield from _evidence(found)
    yield from _others(found)
    if found.verdict == "best_effort":
        yield translate("search.best_is"), shown(best.change)
    elif _unsure(found) and not (found.holdout is not None and found.holdout.shown is False):
        text = translate("search.too_few", count=found.samples)
        yield translate("search.beware"), semicolons(text, "" if found.holdout else translate("search.hold_out"))
    wide = translate("search.wide", count=kept.wide_nodes) if kept.wide_nodes else ""
    nodes = commas(translate("search.nodes", count=kept.nodes, all=kept.all_nodes), wide)
    yield translate("search.quantized"), semicolons(nodes, _work(found))
    more, cost = "" if found.added is None else shown(found.added), f"{best.cost:.3g}"
    # What costs nothing is not told.
    if found.verdict != "nothing_to_do" and (more or cost != "1"):
        yield translate("search.cost"), semicolons(translate("search.times", cost=cost), more)
    yield from _nodes(found)
    if found.minimal is not None:
        needed = translate("search.minimal") if found.minimal else translate("search.not_minimal")
        yield translate("search.needed"), needed
    yield translate("search.search"), _effort(found)
    if found.stopped:
        yield translate("search.ended"), translate("search.early", why=shown(found.stopped))


def _others(found: Tuning) -> Iterator[_Line]:
    """What samples outside of the search say."""
    held = found.holdout
    if held is None:
        return
    scores = _scores(found, held.score, held.float_score)
    others = commas(count_of(held.samples, "other_sample"), _interval(found, held.interval))
    yield translate("search.held_out"), semicolons(scores, others)
    if held.met is False and found.verdict != "best_effort":
        yield "", translate("search.less", goal=shown(found.goal))
    elif held.shown is False and found.verdict == "unproven":
        yield "", translate("search.not_shown", count=held.samples, goal=shown(found.goal))


def _scores(found: Tuning, score: float, float_score: float) -> str:
    return translate("search.scores", score=_score(found, score), float_score=_score(found, float_score))


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
    return translate("search.interval_points" if shares else "search.interval", low=low, high=high)


def _work(found: Tuning) -> str:
    kept = found.remaining
    parts = []
    if kept.all_products:
        parts.append(translate("search.products", share=share_text(kept.products / kept.all_products, 1)))
    if kept.float_bytes:
        parts.append(translate("search.bytes", share=share_text(kept.weight_bytes / kept.float_bytes, 1)))
    return commas(*parts)


def _nodes(found: Tuning) -> Iterator[_Line]:
    by_precision: dict[str, list[str]] = {}
    for rule in (rule for rule in found.best.recipe.rules if rule.kind == "node"):
        by_precision.setdefault(inputs_text(rule.precision), []).extend(rule.selector)
    for precision, names in by_precision.items():
        yield precision, few(names, _LISTED)
    if found.dragged:
        dragged = [f"{each.node} ({each.precision})" for each in found.dragged]
        yield translate("search.brought_along"), few(dragged, _LISTED)


def _effort(found: Tuning) -> str:
    whole = translate("search.whole", count=found.evaluations)
    ranked = translate("search.ranking", count=found.ranking_runs) if found.ranking_runs else ""
    tried = translate("search.trials", count=len(found.trials))
    runs = commas(translate("search.runs", count=found.sample_runs), ranked) if found.samples else ""
    name = named(f"search.strategy_{found.strategy}")
    strategy = found.strategy if name is None else name.within(current_language())
    return semicolons(commas(strategy, tried, whole), runs)


def _goal_of(found: Tuning) -> str:
    return translate("search.goal_of", metric=_name(found), goal=shown(found.goal))


def _name(found: Tuning) -> str:
    return score_name(found.metric)


def _score(found: Tuning, value: float) -> str:
    return _metric_text(found.metric, value)


def _metric_text(metric: str, value: float) -> str:
    if not math.isfinite(value):
        return "-"
    if metric in _SHARES:
        return share_text(value, 1)
    return decibels_with_unit(value) if in_decibels(metric) else score_text(metric, value)


def trial_line(trial: Trial, best: Trial, metric: str) -> str:
    """One trial that is over, while others follow."""
    change = shown(trial.change)
    change = change if len(change) <= _LONGEST_CHANGE else change[: _LONGEST_CHANGE - 4] + " ..."
    part = "" if trial.whole else translate("search.hero_estimated", count=trial.samples)
    met = translate("search.trial_met") if trial.met else ""
    score = commas(_metric_text(metric, trial.score), part, met)
    text = translate("search.trial", number=trial.number, change=change, score=score)
    if best.recipe == trial.recipe:
        return text
    best_score = _metric_text(metric, best.score)
    return semicolons(text, translate("search.best_so_far", score=best_score, number=best.number))


def _difference(found: Tuning, value: float) -> str:
    if found.metric in _SHARES:
        return translate("search.points", value=f"{100 * value:.2f}")
    return f"{value:.1f} dB" if in_decibels(found.metric) else f"{value:.3g}"


def _table(found: Tuning) -> pages.TableBlock:
    drawn: tuple[pages.Place, ...] = ("terminal",)
    columns = (
        pages.Column("trial", plain("#"), "count"),
        pages.Column("change", bilingual("search.change"), "text"),
        pages.metric_column(found.metric, higher_is_better=found.higher_is_better, on=_KEPT),
        pages.Column("loss", bilingual("search.loss"), "number", higher_is_better=False, on=_KEPT),
        pages.Column("cost", bilingual("search.cost"), "number", higher_is_better=False, on=_KEPT),
        pages.Column("shown_score", in_all_languages(lambda: _name(found)), "number", on=drawn),
        pages.Column("shown_loss", bilingual("search.column_loss"), "number", on=drawn),
        pages.Column("shown_cost", bilingual("search.cost"), "number", on=drawn),
        pages.Column("met", bilingual("search.goal_met"), "truth", on=_KEPT),
        *(
            (
                pages.Column(
                    "front", bilingual("search.on_front"), "truth", bilingual("search.on_front_help"), on=("html",)
                ),
            )
            if found.front
            else ()
        ),
        pages.Column(
            "samples", bilingual("sensitivity.column_samples"), "count", short=bilingual("search.column_samples")
        ),
        pages.Column(
            "took",
            bilingual("search.seconds"),
            "seconds",
            on=("terminal", "html"),
            short=bilingual("search.column_seconds"),
        ),
        pages.Column("mark", plain(""), "text", on=drawn),
        *(pages.Column(name, plain(name), "text", on=("csv",)) for name in ("whole", "seconds", "answer")),
    )
    rows = tuple(_row(found, place, each) for place, each in enumerate(found.trials, 1))
    file = ("trial", "change", "met", found.metric, "loss", "cost", "samples", "whole", "seconds", "answer")
    return pages.TableBlock(
        "trials", bilingual("search.history"), columns, rows, file="trials.csv", csv_order=file
    )


def _row(found: Tuning, place: int, trial: Trial) -> tuple[pages.Cell, ...]:
    answer = place == found.answer
    loss = "-" if not math.isfinite(trial.loss) else _plain_loss(found, trial)
    return (
        trial.number,
        phrase_of(trial.change),
        trial.score,
        trial.loss,
        trial.cost,
        in_all_languages(lambda: _score(found, trial.score).removesuffix(" dB")),
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
    words = [bilingual("search.answer")] if answer else [bilingual("search.trial_met")] if trial.met else []
    words += [] if trial.whole else [bilingual("search.estimate")]
    words += [bilingual("search.on_the_front")] if trial.number in found.front else []
    return Phrase(" ".join(each.en for each in words), " ".join(each.zh for each in words))


def _plain_loss(found: Tuning, trial: Trial) -> str:
    return f"{100 * trial.loss:.2f}" if found.metric in _SHARES else f"{trial.loss:.3g}"
