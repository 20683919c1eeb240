"""Rows of CSV files that people and other tools wrote."""

import csv
import io
from pathlib import Path

from roundoff.errors import BadInput

__all__ = ["csv_rows"]


def csv_rows(text: str, path: Path, *, separator: str = ",") -> list[list[str]]:
    """The rows of a CSV text, those without any cell left out.

    Args:
        text: What the file holds; cells in quotes may contain line ends.
        path: The file, for messages.
        separator: What stands between cells.

    Raises:
        BadInput: It is no CSV.
    """
    try:
        return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row]
    except csv.Error as error:
        raise BadInput(f"{path} cannot be read as CSV: {error}.", fix="check that it is the right file") from error
