"""Pages in a terminal: verdict, facts, tables and notes, in its language and as wide as it is.

Charts, pictures and networks are left out; their tables are not.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from roundoff.messages.catalogue import current_language, translate
from roundoff.messages.lines import longest_atom, wrapped_lines
from roundoff.messages.message import Remark, phrase_of, sanitize_for_display, short_name, shown
from roundoff.messages.numbers import BLOCKS, PLAIN_BLOCKS
from roundoff.pages.blocks import (
    NUMBERS,
    Block,
    Cell,
    Column,
    Commands,
    Facts,
    Headline,
    Page,
    Paragraph,
    TableBlock,
    Tone,
    cell_text,
    headline_text,
    is_hidden,
)

# A line that is nothing but a command: sentences have a blank word that no shell would quote in them.
_COMMAND = re.compile(r"roundoff [a-z][a-z0-9-]* [^;:()\uff08\uff09\uff0c\u3002\uff1b\uff1a]*$")
# From this width on a table has room for its wide columns.
_WIDE_COLUMNS = 150
_STYLES = {"good": "bold green", "bad": "bold red", "open": "bold yellow", "plain": "bold"}
# Names keep so many columns whatever stands beside them; operations are cut to so many.
_NAMES_MIN, _OPERATION_MAX = 10, 8
# What a line of a verdict begins with, and what stands between its word and what is said.
_INDENT, _GAP = "  ", 2
_PLAIN_CURVES = str.maketrans(BLOCKS, PLAIN_BLOCKS)


def terminal_page(page: Page) -> RenderableType:
    """A page as rich renders it; an empty line stands before each table, and between one and facts."""
    return Group(*_parts(sanitize_for_display(page)))


def _parts(page: Page) -> Iterator[RenderableType]:
    shown = tabled = False
    for block in page.blocks:
        if is_hidden(block, "terminal"):
            continue
        if isinstance(block, Facts) and tabled:
            yield Text("")
        tabled = isinstance(block, TableBlock)
        if isinstance(block, TableBlock):
            if not _shown(block) and not (block.rows and block.left_out and block.left_out.en):
                continue
            if shown:
                yield Text("")
        for part in _block(block):
            shown = True
            yield part
    for below in page.sections:
        parts = list(_parts(below))
        if parts:
            yield Text("")
        yield from parts


def _block(block: Block) -> Iterator[RenderableType]:
    if isinstance(block, Headline):
        yield _headline(block)
    elif isinstance(block, Facts):
        yield verdict_lines(
            (label.within(current_language()), text.within(current_language())) for label, text in block.rows
        )
    elif isinstance(block, TableBlock):
        if _shown(block):
            yield _TerminalTable(block)
        if block.left_out is None:
            yield from left_out_lines(len(block.rows) - len(_shown(block)))
        elif block.left_out.en:
            yield Prose(block.left_out.within(current_language()), style="dim")
    elif isinstance(block, Paragraph):
        text = block.text.within(current_language())
        label = "terminal.warning" if block.first else "terminal.note"
        yield Prose(translate(label, text=text) if block.note else text, style="" if block.first else "dim")
    elif isinstance(block, Commands):
        yield from (Text(f"  {line}") for line in block.lines)


def _headline(block: Headline) -> "Prose":
    """One word that stands out, and what it is about, which may begin with a colon."""
    text = (block.brief or block.text).within(current_language())
    if block.word is None:
        return Prose(text, style=_STYLES[block.tone])
    word = block.word.within(current_language())
    return Prose(headline_text(word, text), marked=len(word), mark=_STYLES[block.tone])


@dataclass(frozen=True, slots=True)
class Prose:
    """Sentences in lines that leave numbers with their units.

    Attributes:
        text: The sentences, in the language of the terminal.
        style: Of all of them.
        marked: So many of the first characters stand out.
        mark: By which style.
    """

    text: str
    style: str = ""
    marked: int = 0
    mark: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = Text("\n".join(wrapped_lines(self.text, options.max_width, torn=True)), self.style, no_wrap=True)
        lines.stylize(self.mark, 0, self.marked)
        yield lines

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widest = max(map(cell_len, self.text.split("\n")))
        return Measurement(min(longest_atom(self.text), options.max_width), min(widest, options.max_width))


def _shown(table: TableBlock) -> list[tuple[Cell, ...]]:
    """The rows that find room, by `order` where the table has one."""
    if not any("terminal" in column.on for column in table.columns):
        return []
    order = table.order or range(len(table.rows))
    return [table.rows[index] for index in order[: table.most]]


@dataclass(frozen=True, slots=True)
class _TerminalTable:
    """A table that has as many columns as there is room for."""

    table: TableBlock

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.max_width >= _WIDE_COLUMNS
        chosen = [
            (index, column)
            for index, column in enumerate(self.table.columns)
            if "terminal" in column.on and (wide or not column.wide)
        ]
        drawn = RichTable(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        for _, column in chosen:
            _add_column(drawn, column)
        for row in _shown(self.table):
            cells = [_cell(row[index], column, ascii_only=options.ascii_only) for index, column in chosen]
            drawn.add_row(*cells)
        yield drawn


def _add_column(drawn: RichTable, column: Column) -> None:
    heading = Text((column.short or column.label).within(current_language()).replace("|", "\n"))
    if column.kind in NUMBERS:
        drawn.add_column(heading, justify="right", no_wrap=True)
    elif column.kind == "node":
        drawn.add_column(heading, overflow="fold", min_width=_NAMES_MIN)
    elif column.id.endswith("op_type"):
        drawn.add_column(heading, overflow="ellipsis", no_wrap=True, max_width=_OPERATION_MAX)
    else:
        drawn.add_column(heading, overflow="fold")


def _cell(value: Cell, column: Column, *, ascii_only: bool) -> Text | Prose:
    text = cell_text(value, column).within(current_language())
    if ascii_only:  # curves as terminals that know ASCII alone can draw them
        text = text.translate(_PLAIN_CURVES)
    if column.kind == "node":
        return Text(short_name(text))
    return Prose(text) if column.kind == "text" and not column.id.endswith("op_type") else Text(text)


VerdictLine = tuple[str, Remark]
"""A word (empty when the line goes on with what the one above is about), and what it says."""


def verdict_page(word: str, text: str, lines: Iterable[VerdictLine], *, tone: Tone = "good") -> RenderableType:
    """Put a headline and lines on a page of any width, in the language of the terminal; no text is markup.

    Args:
        word: That stands out.
        text: What it is about, which may begin with a colon.
        lines: What stands below.
        tone: Whether that is good.
    """
    return Group(_headline(Headline(tone, phrase_of(text), word=phrase_of(word))), verdict_lines(lines))


def verdict_lines(lines: Iterable[VerdictLine]) -> "_VerdictLines":
    """The lines alone."""
    return _VerdictLines(tuple((shown(label), shown(text)) for label, text in lines))


@dataclass(frozen=True, slots=True)
class _VerdictLines:
    """Words, and what is said of each; commands can be copied."""

    rows: tuple[tuple[str, str], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # A word goes on beyond the edge rather than being torn only where it stands in no table.
        labels = max((cell_len(label) for label, _ in self.rows), default=0) + len(_INDENT) + _GAP
        room = max(options.max_width - labels, _NAMES_MIN)
        for torn, group in groupby(self.rows, key=lambda row: _longest_part(row[1]) > room):
            if not torn:
                yield _verdict_grid(list(group), labels - _GAP)
                continue
            for label, text in group:
                lines = command_lines(text, room)
                heads = [set_cell_size(f"{_INDENT}{label}", labels), *[" " * labels] * (len(lines) - 1)]
                yield Text(
                    "\n".join(map("".join, zip(heads, lines, strict=True))), no_wrap=True, overflow="ignore"
                )


def _longest_part(text: str) -> int:
    """Columns of the longest part of a command that stays in a line; 0 of what is none."""
    return (
        max((cell_len(f"  {part} \\") for part in _command_parts(text)), default=0) if _COMMAND.match(text) else 0
    )


def _verdict_grid(rows: Sequence[tuple[str, str]], labels: int) -> RichTable:
    grid = RichTable.grid(padding=(0, _GAP, 0, 0))
    grid.add_column(style="dim", no_wrap=True, min_width=labels)
    grid.add_column(overflow="fold")
    for label, said in rows:
        cell = _TerminalCommand(said) if _COMMAND.match(said) else Prose(said)
        grid.add_row(Text(f"{_INDENT}{label}", style="dim"), cell)
    return grid


@dataclass(frozen=True, slots=True)
class _TerminalCommand:
    """A command that can be copied: where it does not fit in a line, lines end in a backslash."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from map(Text, command_lines(self.text, options.max_width))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(_NAMES_MIN, options.max_width), min(len(self.text), options.max_width))


def command_lines(text: str, width: int) -> list[str]:
    """A command in lines that a shell joins again; options stay with their values where there is room.

    Args:
        text: The command.
        width: How long lines may be.
    """
    parts = _command_parts(text)
    if cell_len(text) <= width or not parts:
        return [text]
    lines = [parts[0]]
    for part in parts[1:]:
        if cell_len(f"{lines[-1]} {part} \\") <= width:
            lines[-1] += f" {part}"
        else:
            lines.append(f"  {part}")
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _command_parts(text: str) -> list[str]:
    """The words of a command, an option with its value; none where it is no command after all."""
    try:
        words = [shlex.quote(word) for word in shlex.split(text)]
    except ValueError:
        return []
    parts: list[str] = []
    for word in words:
        if parts and parts[-1].startswith("-") and " " not in parts[-1] and not word.startswith("-"):
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    return parts


# Lines below a table: what is not shown, what the reader should know, and where the rest is written.


def left_out_lines(rows: int) -> list[Prose]:
    """Says that so many rows did not find room, if any; those shown matter most."""
    return [Prose(translate("terminal.left_out", count=rows), style="dim")] if rows else []
