"""How Pulsar2 draws a table: rich, with a heavy head and a line between rows."""

import io
from collections.abc import Iterable, Sequence
from typing import Literal

__all__ = ["NATURAL", "Column", "Justify", "render_table"]

Justify = Literal["left", "center"]
Column = tuple[str, Justify]
"""Heading, and where its cells stand."""

NATURAL = 0
"""As a width: as wide as the cells are, so that none is cut."""

# Wider than any table; rich lays a table out in a console of some width.
_WIDEST = 1_000_000


def render_table(
    title: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[str]],
    *,
    width: int = NATURAL,
    fold: bool = False,
) -> str:
    """Draw a table.

    Args:
        title: Stands above, in the middle.
        columns: Headings.
        rows: Cells.
        width: Columns of the terminal; a table that is wider is squeezed, its long cells cut or wrapped.
        fold: Go on in the next line with long words, instead of cutting them as the vendor does.

    Returns:
        Lines without trailing blanks.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # A title is no reason to be wider, and is cut into lines where it is longer than the table.
    table = Table(title=Text(title), box=box.HEAVY_HEAD, show_lines=True)
    for heading, justify in columns:
        table.add_column(Text(heading), justify=justify)
    for row in rows:
        table.add_row(*(Text(cell, overflow="fold" if fold else None) for cell in row))
    out = io.StringIO()
    console = Console(file=out, width=width or _WIDEST, color_system=None, highlight=False, legacy_windows=False)
    console.print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip("\n").split("\n"))
