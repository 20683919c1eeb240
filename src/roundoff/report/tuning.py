"""A search for people: whether the goal is met, with what, and a line for each trial."""

import csv
import io
import math
from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.core.quant_plan import inputs_text
from roundoff.core.tuning import Trial, Tuning
from roundoff.core.wording import counted
from roundoff.report.cells import safe_cell
from roundoff.report.score_text import score_text, share_text
from roundoff.report.verdict import VerdictLine, verdict_page

__all__ = ["tuning_csv", "tuning_table", "tuning_verdict"]

_LISTED = 6
_SHARES = frozenset({"accuracy", "same_top1"})


def tuning_verdict(found: Tuning) -> RenderableType:
    """What a busy person reads: whether the goal is met, by what, what is still quantized, and what it costs."""
    return verdict_page(_headline(found), _lines(found))


def _headline(found: Tuning) -> Text:
    best = found.best
    goal = f"the goal, {_name(found)} {found.goal}"
    if found.verdict == "nothing_to_do":
        return Text("NOTHING TO DO", style="bold green") + Text(f": the plain quantized model meets {goal}")
    if found.verdict == "met":
        return Text("MET", style="bold green") + Text(f": {best.change}")
    short = "" if found.goal_value is None else f", {_difference(found, abs(found.goal_value - best.score))} short"
    return Text("BEST EFFORT", style="bold red") + Text(f": nothing tried meets {goal}{short}")


def _lines(found: Tuning) -> Iterator[VerdictLine]:
    best, kept = found.best, found.remaining
    goal = "" if found.goal_value is None else f", {_score(found, found.goal_value)}"
    if found.verdict == "met":
        yield "goal", f"{_name(found)} {found.goal}{goal}"
    yield _name(found), _loss(found)
    if found.holdout is not None:
        held = found.holdout
        other = f"{_score(found, held.score)}, float {_score(found, held.float_score)}"
        yield "not searched", f"{other}; {counted(held.samples, 'other sample')}{_interval(found, held.interval)}"
    if found.verdict == "best_effort":
        yield "best is", best.change
    elif _unsure(found):
        few = "1 sample is" if found.samples == 1 else f"{found.samples} samples are"
        yield "beware", f"{few} too few to tell whether others lose more than that"
    wide = f", {kept.wide_nodes} of them wide" if kept.wide_nodes else ""
    yield "quantized", f"{kept.nodes} of {counted(kept.all_nodes, 'node')}{wide}; {_work(found)}"
    if found.verdict != "nothing_to_do":
        yield "cost", f"{best.cost:.3g} times that of the plain quantized model"
    yield from _nodes(found)
    if found.minimal is not None:
        needed = "without any one of these changes the goal is missed"
        yield "needed", needed if found.minimal else "not every single change was tried without"
    yield "search", _effort(found)
    if found.stopped:
        yield "ended", f"early, {found.stopped}"


def _unsure(found: Tuning) -> bool:
    """Whether the loss on other samples may well be more than the goal allows."""
    if found.goal_value is None or found.interval is None:
        return found.samples == 1
    return found.interval[1] > abs(found.float_score - found.goal_value)


def _loss(found: Tuning) -> str:
    best = found.best
    text = f"{_score(found, best.score)}, float {_score(found, found.float_score)}"
    seen = f"; {counted(found.samples, 'sample')}" if found.samples else ""
    return f"{text}{seen}{_interval(found, found.interval)}"


def _interval(found: Tuning, interval: tuple[float, float] | None) -> str:
    if interval is None or found.metric == "sqnr_db":
        return ""
    scale, unit = (100, " points") if found.metric in _SHARES else (1, "")
    low, high = (f"{scale * end:.3g}" for end in interval)
    return f", loss {low} to {high}{unit} (95%)"


def _work(found: Tuning) -> str:
    kept = found.remaining
    parts = []
    if kept.all_products:
        parts.append(f"{share_text(kept.products / kept.all_products)} of products")
    if kept.float_bytes:
        parts.append(f"weights {share_text(kept.weight_bytes / kept.float_bytes)} of their float bytes")
    return ", ".join(parts)


def _nodes(found: Tuning) -> Iterator[VerdictLine]:
    by_precision: dict[str, list[str]] = {}
    for rule in (rule for rule in found.best.recipe.rules if rule.kind == "node"):
        by_precision.setdefault(inputs_text(rule.precision), []).extend(rule.selector)
    for precision, names in by_precision.items():
        yield precision, _few(names)
    if found.dragged:
        yield "brought along", _few([f"{each.node} ({each.precision})" for each in found.dragged])


def _few(names: list[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def _effort(found: Tuning) -> str:
    whole = counted(found.evaluations, "whole evaluation")
    ranked = f", {found.ranking_runs} for rankings" if found.ranking_runs else ""
    tried = counted(len(found.trials), "trial")
    runs = f"; {found.sample_runs} sample runs{ranked}" if found.samples else ""
    return f"{found.strategy}, {tried}, {whole}{runs}"


def _name(found: Tuning) -> str:
    return {"same_top1": "same top-1", "sqnr_db": "sqnr"}.get(found.metric, found.metric)


def _score(found: Tuning, value: float) -> str:
    if not math.isfinite(value):
        return "-"
    if found.metric in _SHARES:
        return share_text(value)
    return f"{value:.1f} dB" if found.metric == "sqnr_db" else score_text(found.metric, value)


def _difference(found: Tuning, value: float) -> str:
    if found.metric in _SHARES:
        return f"{100 * value:.2f} points"
    return f"{value:.1f} dB" if found.metric == "sqnr_db" else f"{value:.3g}"


def tuning_table(found: Tuning) -> RenderableType:
    """One line per trial; the answer is marked."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("what changed", overflow="fold", min_width=20)
    table.add_column(Text(_name(found)), justify="right", no_wrap=True)
    table.add_column("loss", justify="right", no_wrap=True)
    table.add_column("cost", justify="right", no_wrap=True)
    table.add_column("samples", justify="right", no_wrap=True)
    table.add_column("s", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for place, trial in enumerate(found.trials, 1):
        mark = "<- answer" if place == found.answer else "met" if trial.met else ""
        if trial.number in found.front:
            mark = f"{mark} front".strip()
        loss = "-" if not math.isfinite(trial.loss) else _plain_loss(found, trial)
        cost = f"{trial.cost:.2f}" if math.isfinite(trial.cost) else "-"
        table.add_row(
            str(trial.number),
            Text(trial.change),
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
