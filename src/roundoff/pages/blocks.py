"""What a page is made of. Renderers know these alone; pages know nothing of HTML, Markdown or terminals.

A chart draws columns of a table of its page, so that every chart has its table and no number is written twice.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar, cast

from roundoff.messages.catalogue import (
    LANGUAGES,
    Phrase,
    bilingual,
    explained,
    in_all_languages,
    named,
    plain,
    use_language,
)
from roundoff.messages.message import Message, Remark, phrase_of
from roundoff.messages.numbers import (
    EXACT_DB,
    counted,
    decibels,
    in_decibels,
    number,
    percentage,
    score_heading,
    score_name,
    score_text,
    time_text,
)
from roundoff.pages.cards import Card

__all__ = [
    "NODE_COLUMNS",
    "NUMBERS",
    "Block",
    "Cell",
    "Chart",
    "Column",
    "ColumnKind",
    "ColumnOf",
    "Commands",
    "Contents",
    "Entry",
    "Facts",
    "Headline",
    "NetworkBlock",
    "NetworkBox",
    "NetworkNode",
    "Page",
    "Paragraph",
    "Picture",
    "Pictures",
    "Place",
    "Series",
    "TableBlock",
    "Tone",
    "View",
    "bilingual_facts",
    "cell_text",
    "cell_value",
    "column",
    "csv_columns",
    "few_names",
    "headline_text",
    "is_hidden",
    "metric_axis",
    "metric_column",
    "notes",
    "preparation_note",
    "role_name",
    "table",
    "type_name",
]


Tone = Literal["good", "bad", "open", "plain"]
# What a cell holds decides how it is written, aligned and compared: node and tensor names become links, decibels
# have one decimal and may be exact, shares are shown in per cent, seconds in the unit that suits them. A phrase in
# the place of a number says why there is none.
NUMBERS = frozenset({"count", "number", "decibels", "share", "score", "seconds"})
"""Kinds of columns that hold numbers."""
ColumnKind = Literal["node", "text", "count", "number", "decibels", "share", "score", "truth", "seconds"]
Cell = str | int | float | bool | Phrase | tuple[float, ...] | None
Place = Literal["terminal", "html", "csv"]


@dataclass(frozen=True, slots=True)
class View:
    """What a reader asked of a page.

    Attributes:
        most: Rows of each table in a terminal; all when None.
        sort: Name of an order that the page offers; its own when empty.
    """

    most: int | None = None
    sort: str = ""


def headline_text(word: str, text: str) -> str:
    """A verdict's word and what it is about: no space stands before a colon or between Chinese characters."""
    return f"{word}{' ' if text[:1].isascii() and text[:1] != ':' else ''}{text}"


@dataclass(frozen=True, slots=True)
class Headline:
    """The answer in one sentence.

    Attributes:
        tone: Whether it is good news.
        text: The answer; where there is a word, what follows it, which may begin with a colon.
        term: Entry of the glossary that explains the verdict; empty when there is none.
        word: The verdict in one word, in capitals where the language has them; None when the sentence is all.
        brief: What a terminal says of it, where its numbers stand below; as `text` when None.
    """

    tone: Tone
    text: Phrase
    term: str = ""
    word: Phrase | None = None
    brief: Phrase | None = None

    @property
    def whole(self) -> Phrase:
        """Word and sentence together."""
        if self.word is None:
            return self.text
        return Phrase(*(headline_text(self.word.within(each), self.text.within(each)) for each in LANGUAGES))


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Sentences.

    Attributes:
        text: What they say.
        note: Whether they are what the reader should know of how the result came about.
        first: Whether they are to be read before all else, right behind the verdict, wherever a page lists them.
        on: Where they are shown.
    """

    text: Phrase
    note: bool = False
    first: bool = False
    on: tuple[Place, ...] = ("terminal", "html")


@dataclass(frozen=True, slots=True)
class Facts:
    """Words and what is said of each, one below the other.

    Attributes:
        rows: A word, which is empty where a line goes on with what the one above is about, and what is said.
        on: Where they are shown.
    """

    rows: tuple[tuple[Phrase, Phrase], ...]
    on: tuple[Place, ...] = ("terminal", "html")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        id: Name in CSV and JSON, and for charts.
        label: Its heading.
        kind: What its cells hold.
        help: What it means, in one sentence; None when its heading says it all.
        higher_is_better: For colouring; None when neither way is better.
        on: Where it is shown; CSV files have everything, terminals little.
        short: Its heading in a terminal, with a bar between two lines; the label when None.
        digits: Significant digits of a plain number.
        wide: Whether only a wide terminal has room for it.
        exact: Decibels from which on nothing is left of an error.
        metric: The metric of a score; its id when empty.
    """

    id: str
    label: Phrase
    kind: ColumnKind
    help: Phrase | None = None
    higher_is_better: bool | None = None
    on: tuple[Place, ...] = ("terminal", "html", "csv")
    short: Phrase | None = None
    digits: int = 4
    wide: bool = False
    exact: float = EXACT_DB
    metric: str = ""


@dataclass(frozen=True, slots=True)
class TableBlock:
    """Rows under columns.

    Attributes:
        id: Unique in the report.
        caption: What it shows.
        columns: In their order.
        rows: One cell for each column; what does not exist is None.
        sort: Column by which it is sorted at first, with a minus before it for the largest first; empty to leave
            the rows as they are.
        folded: Whether it waits behind its caption to be opened.
        cards: Whether each row is a story of its own that is read whole, rather than compared with the others.
        file: The CSV file of a run directory that has these rows; empty when it has none.
        most: In a terminal, show at most so many rows, and say how many were left out; all when None.
        order: In a terminal, the rows by their places here, what matters most first; as they stand when empty.
        csv_order: Ids of the columns of the file, where it has them in another order than the page.
        left_out: What a terminal says of rows that found no room; how many they are when None.
        addresses: Where the first cell of each row leads in a report; empty where they lead nowhere.
        picks: By which each row can be picked in a form, and `pick_to` where the picked ones are sent.
        pick_to: See `picks`.
        pick_label: What the button says.
    """

    id: str
    caption: Phrase
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    sort: str = ""
    folded: bool = False
    cards: bool = False
    file: str = ""
    most: int | None = None
    order: tuple[int, ...] = ()
    csv_order: tuple[str, ...] = ()
    left_out: Phrase | None = None
    addresses: tuple[str, ...] = ()
    picks: tuple[str, ...] = ()
    pick_to: str = ""
    pick_label: Phrase | None = None

    def shown_on(self, place: Place) -> "TableBlock":
        """The table with only the columns of one place."""
        kept = [index for index, column in enumerate(self.columns) if place in column.on]
        if place == "csv" and self.csv_order:
            kept.sort(key=lambda index: self.csv_order.index(self.columns[index].id))
        elif len(kept) == len(self.columns):
            return self
        rows = tuple(tuple(row[index] for index in kept) for row in self.rows)
        return replace(self, columns=tuple(self.columns[index] for index in kept), rows=rows)


_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class ColumnOf(Generic[_Row]):
    """A column of a table whose rows are results, and what such a result has in it."""

    column: Column
    cell: Callable[[_Row], Cell]


def column(
    id: str,  # noqa: A002 - as of a column
    label: Phrase | str,
    kind: ColumnKind = "text",
    cell: Callable[[_Row], Cell] | None = None,
    *,
    on: str = "terminal html csv",
    short: Phrase | str = "",
    **more: Any,
) -> ColumnOf[_Row]:
    """A column of results.

    Args:
        id: Its id; without `cell` the attribute that it shows.
        label: Its heading: the key of a text (with a dot in it), or what is the same in every language.
        kind: What its cells hold.
        cell: What a result has in it.
        on: Where it is shown: words of ``terminal html csv``.
        short: Its heading in a terminal, if it is another one.
        more: Other attributes of the column.
    """
    places = cast("tuple[Place, ...]", tuple(on.split()))
    made = Column(id, _heading(label), kind, on=places, short=_heading(short) if short else None, **more)
    return ColumnOf(made, cell or attrgetter(id))


def _heading(label: Phrase | str) -> Phrase:
    if isinstance(label, Phrase):
        return label
    return bilingual(label) if "." in label else plain(label)


def csv_columns(of: str | Mapping[str, Callable[[_Row], Cell]]) -> list[ColumnOf[_Row]]:
    """Columns that files alone have.

    Args:
        of: What they hold, by their names; or names of attributes, with blanks between them.
    """
    cells = of if not isinstance(of, str) else {name: attrgetter(name) for name in of.split()}
    return [ColumnOf(Column(name, plain(name), "text", on=("csv",)), cell) for name, cell in cells.items()]


def table(
    id: str,  # noqa: A002 - as of a table
    caption: Phrase | str,
    columns: Sequence[ColumnOf[_Row]],
    rows: Iterable[_Row],
    **more: Any,
) -> TableBlock:
    """A table of results.

    Args:
        id: Its id.
        caption: What it shows, or the key of that.
        columns: In their order.
        rows: The results.
        more: Other attributes of the table.
    """
    cells = tuple(tuple(each.cell(row) for each in columns) for row in rows)
    return TableBlock(id, _heading(caption), tuple(each.column for each in columns), cells, **more)


@dataclass(frozen=True, slots=True)
class Series:
    """One line, or one set of bars, points or boxes, of a chart.

    Attributes:
        columns: Columns of the table it is drawn from: one for a line or bars; the lower and the upper end for a
            band; the smallest value, lower quartile, median, upper quartile and largest for a box; one per row
            of a heat map.
        label: For the legend.
        role: How it is drawn.
        tables: The table of each column, where they are several; empty when all are in the chart's.
        names: Of the rows of a heat map.
        only: A column and what stands in it in the rows that are drawn: its value, else its English text; None for
            all rows.
    """

    columns: tuple[str, ...]
    label: Phrase
    role: Literal["line", "bars", "steps", "points", "band", "box", "heat"] = "line"
    tables: tuple[str, ...] = ()
    names: tuple[Phrase, ...] = ()
    only: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture of a table.

    Attributes:
        id: Unique in the report.
        caption: What it shows, for those who cannot see it too.
        table: Id of the table.
        x: Column along the bottom; names take places in their order.
        series: What is drawn.
        x_label: What the bottom shows, with its unit.
        y_label: What the left axis shows, with its unit.
        y_scale: How the left axis is divided.
        marks: Places along the bottom with a line and a word, such as clipping limits or the knee.
    """

    id: str
    caption: Phrase
    table: str
    x: str
    series: tuple[Series, ...]
    x_label: Phrase
    y_label: Phrase
    y_scale: Literal["linear", "log"] = "linear"
    marks: tuple[tuple[float | str, Phrase], ...] = ()


@dataclass(frozen=True, slots=True)
class NetworkNode:
    """A node of the network as it is drawn.

    Attributes:
        name: Its name.
        op_type: Its operation.
        inputs: Tensors it reads.
        outputs: Tensors it writes.
        value: By which it is coloured; None when nothing is known.
        facts: What its card says.
    """

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    value: float | None = None
    facts: tuple[tuple[Phrase, Phrase], ...] = ()


@dataclass(frozen=True, slots=True)
class NetworkBox:
    """Nodes that are drawn as one: a unit, an idiom, or a block of those that repeat.

    Attributes:
        label: What stands in it.
        nodes: Their names, the one to look at first.
        detail: Operations and shape.
        dtype: Type of the codes it hands on; empty where that is not known.
        value: The worst number of its nodes; None when nothing is known.
        mark: ``culprit`` where it is to blame, ``inherited`` where its error comes from its inputs, ``block`` for
            several boxes folded into one.
        inside: Name of the open block that it belongs to; empty for none.
        parts: Boxes that a folded block is made of, in execution order.
    """

    label: Phrase
    nodes: tuple[str, ...]
    detail: str
    dtype: str = ""
    value: float | None = None
    mark: Literal["", "culprit", "inherited", "block"] = ""
    inside: str = ""
    parts: tuple["NetworkBox", ...] = ()


@dataclass(frozen=True, slots=True)
class NetworkView:
    """Other numbers that the same graph can show.

    Attributes:
        name: What they are.
        values: The worst number of each box; None where nothing is known.
    """

    name: Phrase
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class NetworkBlock:
    """The network as a graph coloured by one number per node.

    Attributes:
        id: Unique in the report.
        caption: What it shows, and what the colours mean.
        nodes: In execution order.
        kind: What the number is.
        higher_is_better: Which way it is better.
        best: From which value on it is as good as can be; None where the best one among the nodes is.
        boxes: What is drawn, in execution order.
        summary: How many nodes are how many boxes.
        views: What else its boxes can be coloured by, beginning with what they are; empty where nothing is.
    """

    id: str
    caption: Phrase
    nodes: tuple[NetworkNode, ...]
    kind: ColumnKind
    higher_is_better: bool
    best: float | None = None
    boxes: tuple[NetworkBox, ...] = ()
    summary: Phrase | None = None
    views: tuple[NetworkView, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG and what it shows."""

    caption: Phrase
    png: bytes


@dataclass(frozen=True, slots=True)
class Pictures:
    """Pictures side by side."""

    pictures: tuple[Picture, ...]


@dataclass(frozen=True, slots=True)
class Commands:
    """Lines to be copied into a shell, and where they are shown."""

    lines: tuple[str, ...]
    on: tuple[Place, ...] = ("terminal", "html")


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in a list that leads to it.

    Attributes:
        page: Id of a page of this report; empty when it leads elsewhere.
        title: Its name.
        tone: Whether its verdict is good news.
        text: Its verdict, which may be empty.
        address: Where it is, when it is no page of this report.
        also: What else can be done with it: words and addresses.
    """

    page: str
    title: Phrase
    tone: Tone
    text: Phrase
    address: str = ""
    also: tuple[tuple[Phrase, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Contents:
    """A list of pages, or of reports."""

    entries: tuple[Entry, ...]


Block = Headline | Paragraph | Facts | TableBlock | Chart | NetworkBlock | Pictures | Commands | Contents | Card


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a report.

    Attributes:
        id: By which it is linked.
        title: Its name in the list of pages.
        blocks: From top to bottom.
        sections: Pages below it, for tensors or nodes of their own.
    """

    id: str
    title: Phrase
    blocks: tuple[Block, ...]
    sections: tuple["Page", ...] = field(default=())

    def __post_init__(self) -> None:
        first = [each for each in self.blocks if isinstance(each, Paragraph) and each.first]
        if first:
            rest = [each for each in self.blocks if each not in first]
            place = next((at + 1 for at, each in enumerate(rest) if isinstance(each, Headline)), 0)
            object.__setattr__(self, "blocks", (*rest[:place], *first, *rest[place:]))


def is_hidden(block: Block, place: Place) -> bool:
    """Whether a block has nothing to show in a place: sentences for another one, a table of columns for others."""
    if isinstance(block, Paragraph | Facts | Commands):
        return place not in block.on
    if isinstance(block, Card):
        return place != "html"
    return isinstance(block, TableBlock) and not any(place in column.on for column in block.columns)


# Cells of tables as people read them, and the values behind them as programs do.


def cell_text(value: Cell, column: Column) -> Phrase:
    """What stands in a cell."""
    if value is None:
        return plain("")
    if isinstance(value, Phrase):
        return value
    if isinstance(value, tuple):
        return in_all_languages(lambda: ", ".join(_number_text(each, column) for each in value))
    if isinstance(value, bool):
        return Phrase("yes" if value else "no", "是" if value else "否")
    if isinstance(value, int | float) and column.kind not in ("node", "text"):
        count = column.kind == "count"
        return plain(str(value)) if count else in_all_languages(lambda: _number_text(float(value), column))
    return plain(str(value))


def _number_text(value: float, column: Column) -> str:
    if column.kind == "decibels":
        return decibels(value, exact=column.exact)
    if column.kind == "share":
        return percentage(value)
    if column.kind == "seconds":
        return time_text(value)
    if column.kind == "score":
        return score_text(column.metric or ("cosine" if column.id.endswith("cosine") else column.id), value)
    return number(value, column.digits)


# More tell nothing in a report; files have all.
_DIGITS = 7


def cell_value(value: Cell) -> str:
    """The number behind a cell, by which it is sorted; empty for text, which is its own value."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}" if math.isfinite(value) else _beyond(value)
    return ""


def _beyond(value: float) -> str:
    """As JavaScript writes what JSON lacks."""
    return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"


# Blocks that many pages share.

NODE_COLUMNS = (
    Column("node", bilingual("common.node"), "node"),
    Column("op_type", bilingual("common.operation"), "text"),
)

_MOST_NAMED = 5
_SHARES = frozenset({"accuracy", "same_top1"})


def notes(*groups: Iterable[Remark]) -> tuple[Paragraph, ...]:
    """Remarks of a run, each as a note; plain texts that are not known again are in English."""
    return tuple(
        Paragraph(phrase_of(note), note=True, first=_is_first(note)) for group in groups for note in group
    )


def _is_first(note: object) -> bool:
    """Whether a remark casts doubt on all of a result: texts of any folder that are called so."""
    return isinstance(note, Message) and note.key.endswith("said_first")


def few_names(names: Sequence[str]) -> Phrase:
    """The first names, and how many more there are."""
    listed, more = ", ".join(names[:_MOST_NAMED]), len(names) - _MOST_NAMED
    if more <= 0:
        return plain(listed)
    return Phrase(f"{listed} and {counted(more, 'other')}", f"{listed} 等 {len(names)} 个")


def metric_column(
    name: str,
    *,
    higher_is_better: bool | None,
    summary: str = "",
    on: tuple[Place, ...] = ("terminal", "html", "csv"),
) -> Column:
    """A column of scores, called as users know the metric.

    Args:
        name: The metric.
        higher_is_better: Which way it is better; None where nothing is to be coloured.
        summary: What it tells, for metrics that the glossary does not have.
        on: Where it is shown.
    """
    kind: ColumnKind = "decibels" if in_decibels(name) else "score"
    meaning = None if explained(name) or not summary else plain(summary)
    label = in_all_languages(lambda: score_heading(name))
    return Column(name, label, kind, meaning, higher_is_better=higher_is_better, on=on)


def type_name(dtype: str) -> Phrase:
    """The type of a tensor: of codes as it is, in a word where there are none."""
    return named(f"common.type_{dtype}") or plain(dtype)


def metric_axis(name: str) -> Phrase:
    """What an axis of scores is called: the metric, and its unit where it has one."""
    called = in_all_languages(lambda: score_name(name))
    if name in _SHARES:
        return bilingual("common.share_axis", name=called)
    return bilingual("common.decibels_axis", name=called) if in_decibels(name) else called


def role_name(role: str) -> Phrase:
    """What a file was to a run: the model, its samples, the other side."""
    return named(f"about.role_{role}") or plain(role)


def bilingual_facts(lines: Callable[[], Iterable[tuple[str, str]]]) -> Facts:
    """Lines that a function says in the language of the terminal, in every language.

    Args:
        lines: Gives a word, which is empty where a line goes on with what the one above is about, and a text; as
            many in each language.
    """
    said = []
    for language in LANGUAGES:
        with use_language(language):
            said.append(list(lines()))
    rows = [[Phrase(*texts) for texts in zip(*both, strict=True)] for both in zip(*said, strict=True)]
    return Facts(tuple((word, text) for word, text in rows))


def preparation_note(preparation: Sequence[Remark]) -> tuple[Paragraph, ...]:
    """A single note for all remarks on how a model was prepared, the same in every run that looks into it.

    What is to be said first is said nevertheless.
    """
    first = notes(
        each
        for each in preparation
        if _is_first(each) or (isinstance(each, Message) and each.key.endswith(".fewer_samples"))
    )
    count = len(preparation) - len(first)
    rest = Paragraph(bilingual("terminal.preparation", count=count), note=True)
    return (*first, rest) if count else first


# The glossary: every number, column and verdict that the other pages use and the catalogue explains.


def glossary_page(pages: Sequence[Page]) -> Page | None:
    """The page of meanings; None where nothing needs one.

    Args:
        pages: Those whose words are explained.
    """
    found = dict.fromkeys(_terms(pages))
    if not found:
        return None
    return Page(
        "glossary", bilingual("glossary.title"), (Paragraph(bilingual("glossary.intro")), Facts(tuple(found)))
    )


def _terms(pages: Sequence[Page]) -> Iterator[tuple[Phrase, Phrase]]:
    for page in pages:
        for block in page.blocks:
            if isinstance(block, Headline):
                meaning = explained(block.term)
                if meaning is not None:
                    yield bilingual(f"glossary.word_{block.term}"), meaning
            elif isinstance(block, TableBlock):
                yield from _causes(block)
                for column in block.shown_on("html").columns:
                    meaning = column_meaning(block, column)
                    if meaning is not None:
                        yield column.label, meaning
        yield from _terms(page.sections)


def _causes(table: TableBlock) -> Iterator[tuple[Phrase, Phrase]]:
    """The causes that a table of findings names."""
    at = next((place for place, column in enumerate(table.columns) if column.id == "cause"), None)
    for row in table.rows if at is not None else ():
        cause = row[at] if at is not None else None
        meaning = named(f"terms.cause_{cause.en}") if isinstance(cause, Phrase) else None
        if isinstance(cause, Phrase) and meaning is not None:
            yield cause, meaning


def column_meaning(table: TableBlock, column: Column) -> Phrase | None:
    """What a column means, in one sentence; None where its heading says it all."""
    # Tables of several kinds, and columns of several curves or levels, differ in a number or word at their end.
    kind, name = table.id.partition("-")[0], re.sub(r"_\d+$", "", column.id)
    return column.help or explained(f"{kind}__{name}") or explained(name)
