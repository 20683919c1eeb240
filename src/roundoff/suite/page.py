"""What is shown of a suite: one page for the zoo, with a table, the worst, trends, and links to runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from roundoff import pages
from roundoff.messages.catalogue import Phrase, bilingual, plain
from roundoff.messages.message import Message, Remark, phrase_of, sanitize_for_display
from roundoff.messages.numbers import duration_text
from roundoff.pages import Block, Chart, Facts, Headline, Page, Series, TableBlock
from roundoff.suite.judging import GatedUnit
from roundoff.suite.matrix import EVALUATE
from roundoff.suite.store import STAMP, SuiteRun
from roundoff.suite.unit import SuiteEstimate

_MOST_ROWS, _MOST_TRENDS, _WORST = 40, 6, 5
_SHOWN_PROBLEMS = 8


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """A line of the table."""

    model: str
    chip: str
    command: str
    verdict: Phrase
    output_db: float | None
    accuracy: float | None
    state: Phrase
    seconds: float | None
    why: Phrase
    label: str
    key: str


def suite_rows(units: Sequence[GatedUnit]) -> tuple[SuiteRow, ...]:
    """A row for each unit, or for all ranges of an evaluation."""
    return tuple(_row(each) for each in sanitize_for_display(tuple(units)))


def _row(gated: GatedUnit) -> SuiteRow:
    figures, unit = gated.figures, gated.unit
    word = figures.get("verdict")
    state = "failed" if any(each.state == "failed" for each in gated.states) else "waiting"
    if gated.done:
        state = "known" if all(each.state == "known" for each in gated.states) else "done"
    said: list[Remark] = [*gated.failures, *gated.doubts]
    output_db, accuracy = figures.get("output_db"), figures.get("accuracy")
    return SuiteRow(
        model=unit.model,
        chip=unit.target,
        command=gated.label.rpartition("/")[2],
        verdict=Phrase(*map(str, word)) if isinstance(word, list | tuple) else plain(""),
        output_db=float(output_db) if isinstance(output_db, int | float | str) else None,
        accuracy=float(accuracy) if isinstance(accuracy, int | float) else None,
        state=bilingual(f"suite.state_{state}"),
        seconds=gated.seconds or None,
        why=plain("") if not said else phrase_of(said[0]),
        label=gated.label,
        key=unit.key,
    )


_COLUMNS: tuple[pages.ColumnOf[SuiteRow], ...] = (
    pages.column("model", "suite.model"),
    pages.column("chip", "suite.chip"),
    pages.column("command", "suite.command"),
    pages.column("verdict", "suite.verdict"),
    pages.column("output_db", "suite.output_db", "decibels", higher_is_better=True),
    # A terminal that is not wide has it in the words of an evaluation.
    pages.column("accuracy", "suite.accuracy", "share", higher_is_better=True, on="terminal html csv", wide=True),
    pages.column("state", "suite.state", on="terminal html csv", wide=True),
    pages.column("seconds", "suite.seconds", "seconds", on="html csv"),
    pages.column("why", "suite.why", on="html csv"),
    *pages.csv_columns("label key"),
)


def suite_table(units: Sequence[GatedUnit], *, links: str = "") -> TableBlock:
    """All units.

    Args:
        units: As the gate sees them.
        links: Where a run lies: ``runs/{}.html``; empty where it is shown nowhere.
    """
    rows = suite_rows(units)
    linked = [each.done and each.unit.command != EVALUATE for each in units]
    addresses = tuple(links.format(row.key) if there else "" for row, there in zip(rows, linked, strict=True))
    return pages.table(
        "suite",
        "suite.table",
        _COLUMNS,
        rows,
        file="suite.csv",
        most=_MOST_ROWS,
        addresses=addresses if links else (),
    )


def run_page(name: str, units: Sequence[GatedUnit], *, known: int) -> Page:
    """What a run of a suite came to."""
    count, failed = len(units), [each for each in units if not each.done]
    if failed:
        text = bilingual("suite.some_failed", failed=len(failed), count=count)
        headline = Headline("bad", text, word=bilingual("suite.word_not_done"))
    else:
        text = bilingual("suite.all_done", count=count, known=known)
        headline = Headline("good", text, word=bilingual("suite.word_done"))
    return _page(name, headline, _problems(failed), suite_table(units))


def plan_page(name: str, units: Sequence[GatedUnit], expected: SuiteEstimate, *, workers: int, store: str) -> Page:
    """What there is to do, what is done, and how long it will take."""
    waiting = [each for each in units if not each.done]
    text = bilingual("suite.to_do", waiting=len(waiting), count=len(units))
    facts = [(bilingual("suite.store"), plain(store))]
    if expected.units:
        if expected.seconds is None:
            facts.append((bilingual("suite.time"), bilingual("suite.time_unknown")))
        else:
            work, wall = duration_text(expected.seconds), duration_text(expected.seconds / max(1, workers))
            said = bilingual("suite.time_text", work=work, wall=wall, workers=workers, known=expected.known)
            facts.append((bilingual("suite.time"), said))
    headline = Headline("good" if not waiting else "open", text)
    failed = [each for each in waiting if any(state.state == "failed" for state in each.states)]
    return _page(name, headline, Facts(tuple(facts)), _problems(failed), suite_table(units))


def gate_page(name: str, units: Sequence[GatedUnit], *, baseline: str = "", links: str = "") -> Page:
    """Whether a suite may pass."""
    failed = [each for each in units if each.failures or not each.done]
    unsure = [each for each in units if each not in failed and each.doubts]
    counts = {"count": len(units), "failed": len(failed), "unsure": len(unsure)}
    if failed:
        headline = Headline("bad", bilingual("suite.gate_failed", **counts), word=bilingual("suite.word_fail"))
    elif unsure:
        word = bilingual("suite.word_unsure")
        headline = Headline("open", bilingual("suite.gate_unsure", **counts), word=word)
    else:
        headline = Headline("good", bilingual("suite.gate_passed", **counts), word=bilingual("suite.word_pass"))
    compared = sum(each.compared for each in units)
    facts = (
        [
            (
                bilingual("suite.baseline"),
                bilingual("suite.baseline_text", when=shown_time(baseline), compared=compared),
            )
        ]
        if baseline
        else []
    )
    blocks = (Facts(tuple(facts)),) if facts else ()
    return _page(name, headline, *blocks, _problems([*failed, *unsure]), suite_table(units, links=links))


def report_page(
    name: str, units: Sequence[GatedUnit], runs: Sequence[SuiteRun], *, baseline: str = "", links: str = ""
) -> Page:
    """The zoo on one page."""
    gate = gate_page(name, units, baseline=baseline, links=links)
    worst = _worst(units)
    blocks = [*gate.blocks[:-1], *(() if worst is None else (worst,)), *_trends(runs), gate.blocks[-1]]
    return Page(gate.id, gate.title, tuple(blocks))


def _page(name: str, *blocks: Block | None) -> Page:
    return Page("suite", bilingual("suite.title", name=name), tuple(each for each in blocks if each is not None))


def _problems(units: Sequence[GatedUnit]) -> Facts | None:
    """What is wrong with units, the first ones by name."""
    rows = []
    for each in sanitize_for_display(tuple(units[:_SHOWN_PROBLEMS])):
        for place, said in enumerate((*each.failures, *each.doubts)):
            rows.append((plain("" if place else each.label), phrase_of(said)))
    if len(units) > _SHOWN_PROBLEMS:
        rows.append((plain(""), bilingual("suite.more_units", count=len(units) - _SHOWN_PROBLEMS)))
    return Facts(tuple(rows)) if rows else None


def _worst(units: Sequence[GatedUnit]) -> TableBlock | None:
    """The units that lose most, those first that do not pass."""
    rows = [row for row in suite_rows(units) if row.output_db is not None]
    if len(rows) <= _WORST:
        return None
    rows.sort(key=lambda row: float(row.output_db or 0.0))
    kept = ("model", "chip", "command", "verdict", "output_db")
    # A terminal shows no captions, and all of them just below.
    columns = [
        replace(each, column=replace(each.column, on=("html",))) for each in _COLUMNS if each.column.id in kept
    ]
    return pages.table("worst-units", "suite.worst", columns, rows[:_WORST])


@dataclass(frozen=True, slots=True)
class TrendRow:
    """A unit in one of the runs."""

    place: int
    when: str
    label: str
    output_db: float | None
    accuracy: float | None


# The terminal has no charts, and the table below them is long.
_TREND_COLUMNS: tuple[pages.ColumnOf[TrendRow], ...] = (
    pages.column("place", "suite.place", "count", on="html"),
    pages.column("when", "suite.when", on="html"),
    pages.column("label", "suite.unit", on="html"),
    pages.column("output_db", "suite.output_db", "decibels", on="html"),
    pages.column("accuracy", "suite.accuracy", "share", on="html"),
)


def _trends(runs: Sequence[SuiteRun]) -> Iterator[Block]:
    """Units that changed most over the runs, the oldest on the left."""
    rows = [row for place, run in enumerate(runs, 1) for row in _trend_rows(place, run)]
    every: set[str] = set()
    for key in ("output_db", "accuracy"):
        values: dict[str, list[float]] = {}
        for row in rows:
            if (value := getattr(row, key)) is not None:
                values.setdefault(row.label, []).append(value)
        moved = sorted(values, key=lambda label: min(values[label]) - max(values[label]))
        drawn = [label for label in moved if len(values[label]) > 1][:_MOST_TRENDS]
        if drawn:
            series = tuple(Series((key,), plain(label), only=("label", label)) for label in drawn)
            axes = (bilingual("suite.place"), bilingual(f"suite.{key}"))
            caption = bilingual(f"suite.trend_{key}")
            yield Chart(f"suite-trend-{key}", caption, "suite-trend", "place", series, *axes)
            every |= {*drawn}
    if every:
        shown = [row for row in rows if row.label in every]
        yield pages.table("suite-trend", "suite.trend_table", _TREND_COLUMNS, shown, folded=True)


def _trend_rows(place: int, run: SuiteRun) -> Iterator[TrendRow]:
    """What units came to in a run; ranges of one evaluation are one, each by its samples."""
    parts: dict[str, list[Any]] = {}
    for unit in run.units:
        parts.setdefault(str(unit.get("label")).partition("[")[0], []).append(unit.get("figures") or {})
    for label, figures in parts.items():
        known = [_mean(figures, key) for key in ("output_db", "accuracy")]
        if known != [None, None]:
            yield TrendRow(place, shown_time(run.when), label, *known)


def _mean(figures: Sequence[Any], key: str) -> float | None:
    """A number of all ranges together; None where one of them has none."""
    found = [(each.get(key), each.get("samples") or 1) for each in figures]
    if not all(isinstance(value, int | float) for value, _ in found):
        return None
    return float(sum(value * count for value, count in found) / sum(count for _, count in found))


def shown_time(when: str) -> str:
    """When a run was, as people write it; as it is where it is no time."""
    try:
        return f"{datetime.strptime(when, STAMP):%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return when


def message_text(said: Remark) -> str:
    """What is said, in English, for files of other programs."""
    return said.within("en") if isinstance(said, Message) else str(said)


def run_file(key: str) -> Path:
    """Where the report of a run lies, beside the page of the zoo."""
    return Path("runs", f"{key}.html")
