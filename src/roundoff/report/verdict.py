"""A verdict for people: a headline, then a few lines with a word in front of each."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["VerdictLine", "verdict_lines", "verdict_page"]

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
