"""Tables as Horizon's tools print them."""

from collections.abc import Sequence
from typing import Literal

__all__ = ["Generation", "framed_table", "sensitivity_table"]

Generation = Literal[1, 3]
"""1: full precision, titled by the kind. 3, also printed by the second: five decimals."""

_GAP = 2


def framed_table(title: str, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text under a title between equals signs.

    Args:
        title: What it shows.
        heading: Name of each column.
        rows: The cells.
    """
    widths = [max(map(len, column)) + _GAP for column in zip(heading, *rows, strict=True)]
    total = sum(widths)
    sign = "=" * max(1, (total - len(title)) // 2)
    lines = [f"{sign}{title}{sign}", _line(heading, widths), "-" * total]
    return "\n".join([*lines, *(_line(row, widths) for row in rows)])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def sensitivity_table(
    node_type: str,
    columns: Sequence[str],
    rows: Sequence[tuple[str, Sequence[float]]],
    *,
    generation: Generation = 3,
    more: Sequence[tuple[str, Sequence[str]]] = (),
) -> str:
    """A ranking.

    Args:
        node_type: What is ranked.
        columns: Metrics.
        rows: Name of each node and its scores.
        generation: Whose form it has.
        more: More columns, each with its heading and a cell for each row.
    """
    if generation == 1:
        title, first, spelled = node_type, "Node", [[repr(float(value)) for value in values] for _, values in rows]
    else:
        title, first = "node sensitivity", node_type
        spelled = [[f"{value:.5f}" for value in values] for _, values in rows]
    cells = [
        (name, *numbers, *(column[place] for _, column in more))
        for place, ((name, _), numbers) in enumerate(zip(rows, spelled, strict=True))
    ]
    return framed_table(title, (first, *columns, *(heading for heading, _ in more)), cells)
