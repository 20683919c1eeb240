"""What the first screen of a report is made of: the score, cards of culprits, and the pictures of their evidence.

Texts and numbers are given; renderers place them. Terminals and files have the same in facts and tables.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

from rich.cells import cell_len, set_cell_size

from roundoff.messages.catalogue import (
    Phrase,
    bilingual,
    current_language,
    few,
    in_all_languages,
    plain,
    translate,
)
from roundoff.messages.numbers import EXACT_DB, in_decibels, percent_digits, score_heading, score_text, time_text

if TYPE_CHECKING:
    from roundoff.core.coverage import Coverage
    from roundoff.core.document import RunDocument
    from roundoff.pages.blocks import Headline

Mark = Literal["good", "bad", "open", "plain"]
NetworkRole = Literal["float", "quantized", "repaired", "expected"]

DB_LIMITS = (40.0, 30.0, 20.0, 10.0, 0.0)
"""Ends of the six classes of decibels, the same in every report, so that two can be compared by eye."""


USUAL_LIMIT_DB = -20 * math.log10(0.15)
"""The relative error of the usual limit in decibels."""


def db_class(value: float) -> int:
    """The class of a signal to noise ratio: 0 for rounding alone, 5 for an error louder than the signal."""
    return sum(value < limit for limit in DB_LIMITS)


@dataclass(frozen=True, slots=True)
class ScoreFigure:
    """One number of the score.

    Attributes:
        label: What it is of.
        role: Which network, for its colour.
        value: The number, without its unit.
        unit: Its unit.
        detail: What it was measured on.
        place: Where it stands between 0 and 1; None where it is no share.
        interval: Where it lies for other samples, likewise.
    """

    label: Phrase
    role: NetworkRole
    value: Phrase
    unit: str
    detail: Phrase
    place: float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class HeroCard:
    """What was asked, the score, and the answer.

    Attributes:
        title: The answer in a sentence.
        pills: Verdicts in one word each.
        text: The answer with its numbers.
        scores: The numbers that matter most.
        axis: What is said below the shared axis of shares; None where there is none.
        notice: Whether other samples confirm it.
        facts: What was asked, on what, at what cost: a word and lines.
        coverage: How many of how many tensors were judged; None where that is not known.
    """

    title: Phrase
    pills: tuple[tuple[Mark, Phrase], ...]
    text: Phrase
    scores: tuple[ScoreFigure, ...] = ()
    axis: Phrase | None = None
    notice: tuple[Mark, Phrase] | None = None
    facts: tuple[tuple[Phrase, tuple[Phrase, ...]], ...] = ()
    coverage: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ChannelDrawing:
    """How many steps of one shared scale each channel can use.

    Attributes:
        caption: What it shows.
        steps: Channels and their steps, widest first; no channel's number where they are quantiles.
        most: Steps that the codes have.
        few: Channels with fewer steps than this are marked.
        leader: What is said of the channel that sets the scale.
        conclusion: What the picture shows, in a sentence.
        median: What is said of the median channel.
        node: Of which node it is.
        over: Whether channels with more steps than `few` are marked, those that do not fit, not those with fewer.
    """

    caption: Phrase
    steps: tuple[tuple[int | None, float], ...]
    most: float
    few: float
    leader: Phrase
    conclusion: Phrase
    median: Phrase
    node: str = ""
    over: bool = False


@dataclass(frozen=True, slots=True)
class HistogramDrawing:
    """What values a tensor holds, and what its codes can.

    Attributes:
        caption: What it shows.
        counts: Values in each of some bins of equal width.
        start: Where the first bin begins.
        end: Where the last bin ends.
        codes: Values of the codes, where they are few enough to be drawn.
        zero: Ends of what becomes zero; None where that is nothing to speak of.
        zero_text: How much that is.
        limits: Ends of the range, with what is said of each.
        node: Of which node it is.
    """

    caption: Phrase
    counts: tuple[int, ...]
    start: float
    end: float
    codes: tuple[float, ...] = ()
    zero: tuple[float, float] | None = None
    zero_text: Phrase | None = None
    limits: tuple[tuple[float, Phrase], ...] = ()
    node: str = ""


@dataclass(frozen=True, slots=True)
class ScatterDrawing:
    """What a device wrote of one tensor against what its own inputs give.

    Attributes:
        caption: What it shows.
        points: What each value should be, and what it is.
        line: Gain and offset of the straight line through them; None where they lie on none.
        conclusion: What the picture shows, in a sentence.
        node: Of which node it is.
    """

    caption: Phrase
    points: tuple[tuple[float, float], ...]
    line: tuple[float, float] | None
    conclusion: Phrase
    node: str = ""


Drawing = ChannelDrawing | HistogramDrawing | ScatterDrawing


@dataclass(frozen=True, slots=True)
class Rung:
    """One measured set of changes.

    Attributes:
        label: What was changed.
        value: The number.
        text: The number as it is told.
        note: What it was measured on, where others were on something else.
        role: Of which network; ``expected`` is a mark and no bar.
        strong: Whether it is one of those to look at first.
    """

    label: Phrase
    value: float
    text: Phrase
    note: Phrase
    role: NetworkRole | Literal["changed"] = "changed"
    strong: bool = False


@dataclass(frozen=True, slots=True)
class CulpritCard:
    """One cause, where it is, how that was proven, and what to do.

    Attributes:
        number: Of the finding.
        title: The cause.
        text: Sentences about it.
        where: How many places.
        places: Their nodes, the worst first.
        drawings: The picture of each of the first places.
        ladder: What was measured, one bar for each set of changes.
        ladder_caption: What the bars are.
        remedy: What to do.
        cost: What that costs.
        settings: The same as lines to be copied; a script writes them for other tools, too.
        commands: What carries it out and measures it.
        chip: For which tool they are written first.
    """

    number: int
    title: Phrase
    text: tuple[Phrase, ...]
    where: Phrase
    places: tuple[str, ...]
    drawings: tuple[Drawing, ...] = ()
    ladder: tuple[Rung, ...] = ()
    ladder_caption: Phrase | None = None
    remedy: Phrase | None = None
    cost: Phrase | None = None
    settings: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    chip: str = ""


@dataclass(frozen=True, slots=True)
class ErrorPoint:
    """One unit of the network along the bottom of the error chart.

    Attributes:
        node: By which it is selected.
        local: Signal to noise of the unit alone; None where it was not judged.
        accumulated: Signal to noise while the whole network runs.
        repaired: The same of the repaired network.
        finding: Number of the finding that accuses it; 0 where none does.
        output: Whether it is an output of the network.
    """

    node: str
    local: float | None
    accumulated: float | None
    repaired: float | None = None
    finding: int = 0
    output: bool = False


@dataclass(frozen=True, slots=True)
class ErrorChart:
    """Where the error comes from along the network.

    Attributes:
        id: Unique in the report.
        title: What it is.
        text: How it is read, and on what it was measured.
        points: Units in execution order.
        limit: Signal to noise of the usual threshold, and its name.
        drawings: Pictures of what some of the units hold.
    """

    id: str
    title: Phrase
    text: Phrase
    points: tuple[ErrorPoint, ...]
    limit: tuple[float, Phrase]
    drawings: tuple[Drawing, ...] = ()


@dataclass(frozen=True, slots=True)
class StripCard:
    """Tensors along the network as rows of cells, in the classes of decibels, with gaps where nothing was judged.

    Attributes:
        id: Unique in the report.
        title: What it is.
        text: What it shows, in a sentence.
        names: Tensors in execution order.
        rows: What is said of a row, and the decibels of each tensor in it; None where it was not judged.
        parts: How many agree, differ and were not judged; empty where that is not the question.
        marked: Places of tensors that are to blame.
        between: First and last place of where the fault must lie, and what is said of it.
    """

    id: str
    title: Phrase
    text: Phrase
    names: tuple[str, ...]
    rows: tuple[tuple[Phrase, tuple[float | None, ...]], ...]
    parts: tuple[tuple[Mark, Phrase, int], ...] = ()
    marked: tuple[int, ...] = ()
    between: tuple[int, int, Phrase] | None = None


Card = HeroCard | CulpritCard | ErrorChart | StripCard

# Bars of a ladder in a terminal; shorter ones where notes behind them need room.
_BAR, _LEAST_BAR = 20, 8


def ladder_lines(rungs: Sequence[Rung], unit: str, width: int) -> Iterator[str]:
    """What was measured as bars of characters, in the language of the terminal.

    Args:
        rungs: What was measured.
        unit: Of decibels; others say theirs.
        width: How long lines may be; notes that find no room are left out.
    """
    language = current_language()
    texts = [each.text.within(language).replace("\u2212", "-") for each in rungs]
    values = [f"{text} {unit}" if unit == "dB" and text[-1:].isdigit() else text for text in texts]
    labels = [each.label.within(language) for each in rungs]
    # What a strong one did to other measures is told in sentences.
    notes = ["" if each.strong else each.note.within(language).replace("\u2212", "-") for each in rungs]
    room = [max(map(cell_len, texts)) for texts in (labels, values, notes)]
    bar = min(_BAR, max(_LEAST_BAR, width - sum(room) - 6))
    finite = [each.value for each in rungs if math.isfinite(each.value)]
    most = max([*finite, 0.0]) or 1.0
    for rung, label, value, note in zip(rungs, labels, values, notes, strict=True):
        share = max(0.0, rung.value / most) if math.isfinite(rung.value) else float(rung.value > 0)
        filled = round(bar * min(share, 1.0))
        drawn = f"{' ' * filled}^" if rung.role == "expected" else "#" * filled
        line = f"{set_cell_size(label, room[0])}  {' ' * (room[1] - cell_len(value))}{value} |{drawn}"
        whole = f"{set_cell_size(line, room[0] + room[1] + bar + 5)} {note}" if note else line
        yield whole if cell_len(whole) <= width else line


# The first screen of any study: what was asked, the score, what was judged, the answer.

_SHARES = frozenset({"accuracy", "same_top1"})
# Who is asked about, in the order of a report; a quantized file alone is its own model.
_SUBJECTS = ("model", "quantized", "reference", "candidate", "before", "after")
_NAMED = 3
_Fact = tuple[Phrase, tuple[Phrase, ...]]


def first_screen(
    document: "RunDocument",
    headline: "Headline",
    *,
    scores: Sequence[ScoreFigure] = (),
    covered: "Coverage | None" = None,
    text: Phrase | None = None,
    notice: tuple[Mark, Phrase] | None = None,
) -> HeroCard:
    """What a study begins with.

    Args:
        document: The run.
        headline: Its verdict.
        scores: The numbers that matter most.
        covered: What the verdict rests on; None where the study does not say it.
        text: A sentence behind the verdict.
        notice: Whether other samples confirm it.
    """
    word, said = headline.word, headline.text
    if word is not None and not said.en.startswith(":"):
        said = Phrase(f"{word.en.lower()} {said.en}", headline.whole.zh)
    said = Phrase(said.en.lstrip(": "), said.zh.lstrip(":\uff1a "))
    pills = () if word is None else ((headline.tone, word),)
    judged = None if covered is None else covered.tensors or covered.samples
    placed = [each for each in scores if each.place is not None]
    return HeroCard(
        said if word is None else Phrase(said.en[:1].upper() + said.en[1:], said.zh),
        pills,
        plain("") if text is None else text,
        scores=tuple(scores),
        axis=bilingual("card.shared_axis") if len(placed) > 1 and len(placed) == len(scores) else None,
        notice=notice,
        facts=tuple(_asked(document, covered)),
        coverage=None if judged is None else (judged.judged, judged.there),
    )


def input_names(document: "RunDocument") -> dict[str, str]:
    """Names of the files that a run read, by what they are to it."""
    return {each.role: _file_name(PurePath(each.path)) for each in reversed(document.inputs)}


def _file_name(path: PurePath) -> str:
    """A run is known by its folder."""
    return path.parent.name or path.name if path.name == "run.json" else path.name


def _asked(document: "RunDocument", covered: "Coverage | None") -> Iterator[_Fact]:
    files = input_names(document)
    subjects = [plain(files[role]) for role in _SUBJECTS if role in files]
    if document.network is not None:
        subjects.append(bilingual("card.nodes", count=len(document.network.nodes)))
    if subjects:
        yield bilingual("card.model"), tuple(subjects)
    if chip := chip_of(document):
        yield bilingual("card.chip"), (plain(chip),)
    if "data" in files:
        yield bilingual("card.data"), tuple(plain(files[role]) for role in ("data", "labels") if role in files)
    if covered is not None:
        yield bilingual("card.coverage"), tuple(coverage_facts(covered))
    yield ran(document)


def chip_of(document: "RunDocument") -> str:
    """The name of the chip that a run was asked for; empty where it was none."""
    words = (*document.command, "")
    asked = [then if word == "--target" else word for word, then in pairwise(words) if word.startswith("--target")]
    chip = input_names(document).get("target") or (asked[0].removeprefix("--target=") if asked else "")
    return PurePath(chip).name.removesuffix(".toml")


def coverage_facts(covered: "Coverage", *, samples: bool = True) -> Iterator[Phrase]:
    """How many tensors and samples were judged, and whether all outputs are among them.

    Args:
        covered: What a verdict rests on.
        samples: Whether it is told of samples, too.
    """
    for share, key in ((covered.tensors, "card.judged"), (covered.samples, "card.judged_samples")):
        if share is not None and (samples or key == "card.judged"):
            yield bilingual(key, judged=share.judged, there=share.there)
    outputs = covered.outputs
    if outputs.complete:
        yield bilingual("card.outputs_all", count=len(outputs.judged))
    elif outputs.not_judged:
        names = [each.name for each in outputs.not_judged]
        yield in_all_languages(lambda: translate("card.outputs_some", names=few(names, _NAMED)))


def ran(document: "RunDocument") -> _Fact:
    """When, and how long."""
    parts = [finished_at(document), time_text(document.environment.elapsed_s)]
    return bilingual("card.run"), (plain(", ".join(filter(None, parts))),)


def finished_at(document: "RunDocument") -> str:
    """When a run ended, to the minute; empty where its document does not say."""
    said = document.environment.finished
    return said and datetime.fromisoformat(said).strftime("%Y-%m-%d %H:%M")


def decibels_shown(value: float) -> Phrase:
    """Decibels with one decimal and a true minus sign; ``exact`` without noise."""
    if value >= EXACT_DB:
        return bilingual("card.exact")
    return plain(f"{value:.1f}".replace("-", "\u2212"))


def score_figure(
    label: Phrase,
    role: NetworkRole,
    *,
    metric: str,
    value: float,
    detail: Phrase,
    interval: tuple[float, float] | None = None,
) -> ScoreFigure:
    """A score by the name of its metric: shares in per cent, with their place between 0 and 100.

    Args:
        label: What it is of.
        role: Which network.
        metric: What was measured.
        value: The score.
        detail: What it was measured on.
        interval: Where a share lies for other samples.
    """
    if in_decibels(metric):
        return ScoreFigure(label, role, decibels_shown(value), "" if value >= EXACT_DB else "dB", detail)
    if metric in _SHARES and 0 <= value <= 1:
        return ScoreFigure(label, role, plain(percent_digits(value, 1)), "%", detail, value, interval)
    shown = score_text(metric, value, decimals=4).replace("-", "\u2212")
    return ScoreFigure(label, role, plain(shown), score_heading(metric), detail)
