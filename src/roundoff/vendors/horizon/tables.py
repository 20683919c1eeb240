"""Tables as Horizon's tools print them."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from roundoff.core.document import json_text
from roundoff.core.files import write_bytes, write_text
from roundoff.core.names import FileNames
from roundoff.report.plots.canvas import require_matplotlib
from roundoff.vendors.errors import WrongType, WrongValue

__all__ = [
    "DEFAULT_FOLDER",
    "Generation",
    "framed_table",
    "result_folder",
    "save_pictures",
    "save_tables",
    "sensitivity_table",
]


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


# Where results are stored: as Horizon's tools do, and as data beside it.

DEFAULT_FOLDER = "./debug_result/"


def result_folder(save_dir: Any) -> Path:
    """Where results go.

    Raises:
        WrongType: It is not a path.
        WrongValue: Something else than a folder is there.
    """
    if not isinstance(save_dir, str | os.PathLike):
        raise WrongType(f"save_dir is {save_dir!r}, not a path.", fix="give a folder, as in save_dir='./'")
    folder = Path(save_dir)
    taken = next((each for each in (folder, *folder.parents) if each.exists() and not each.is_dir()), None)
    if taken is not None:
        raise WrongValue(f"save_dir {folder} cannot be made: {taken} is not a folder.", fix="give another folder")
    return folder


def save_tables(folder: Path, stem: str, *, log: str, csv: str, data: object) -> None:
    """Write a table as it is printed, as CSV, and as JSON; earlier ones are replaced."""
    write_text(folder / f"{stem}.log", f"{log}\n")
    write_text(folder / f"{stem}.csv", csv)
    write_text(folder / f"{stem}.json", json_text(data))


def save_pictures(folder: Path, painters: Iterable[tuple[str, Callable[[], bytes]]]) -> None:
    """Draw pictures, each into a file named after what it shows; earlier ones are replaced.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    require_matplotlib()
    names = FileNames()
    for name, paint in painters:
        write_bytes(folder / f"{names.stem(name)}.png", paint())
