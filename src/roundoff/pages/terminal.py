"""A verdict for people: a headline, then a few lines with a word in front of each."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.messages.catalogue import told
from roundoff.messages.sentences import sentence

__all__ = [
    "VerdictLine",
    "left_out_lines",
    "note_lines",
    "verdict_lines",
    "verdict_page",
]


VerdictLine = tuple[str, str]
"""A word (empty when the line goes on with what the one above is about), and what it says."""


def verdict_page(headline: Text, lines: Iterable[VerdictLine]) -> RenderableType:
    """Put a headline and lines on a page of any width; nothing in a line is taken for markup."""
    return Group(headline, verdict_lines(lines))


def verdict_lines(lines: Iterable[VerdictLine]) -> Table:
    """The lines alone."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in lines:
        grid.add_row(Text(f"  {label}", style="dim"), Text(text))
    return grid


# Lines below a table: what is not shown, what the reader should know, and where the rest is written.


def left_out_lines(rows: int) -> list[Text]:
    """Says that so many rows did not find room, if any; those shown matter most."""
    return [Text(told("terminal.left_out", count=rows), style="dim")] if rows else []


def note_lines(notes: Sequence[str], preparation: Sequence[str] = ()) -> list[Text]:
    """A line for each note, and a single one for all remarks on how the model was prepared.

    Args:
        notes: What is said of this run.
        preparation: What was said when the model was prepared and quantized. It is the same in every run that
            looks into the model, so that it is only counted here; documents hold it.
    """
    said = [*notes, *([told("terminal.preparation", count=len(preparation))] if preparation else [])]
    return [Text(told("terminal.note", text=sentence(text)), style="dim") for text in said]
