"""What the first screen of a report is made of: the score, cards of culprits, and the pictures of their evidence.

Texts and numbers are given; renderers place them. Terminals and files have the same in facts and tables.
"""

import math
from dataclasses import dataclass
from typing import Literal

from roundoff.messages.catalogue import Phrase

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
    """

    caption: Phrase
    steps: tuple[tuple[int | None, float], ...]
    most: float
    few: float
    leader: Phrase
    conclusion: Phrase
    median: Phrase
    node: str = ""


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


Drawing = ChannelDrawing | HistogramDrawing


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
    """

    id: str
    title: Phrase
    text: Phrase
    points: tuple[ErrorPoint, ...]
    limit: tuple[float, Phrase]


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
