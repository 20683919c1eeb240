"""Manifests written as a table: ``name,dtype,shape`` and optionally ``file,sample`` in a CSV file."""

import csv
import io
from pathlib import Path
from typing import Any

from roundoff.errors import BadInput

__all__ = ["parse_csv"]

_DELIMITERS = (",", ";", "\t")


def parse_csv(content: bytes, path: Path) -> tuple[dict[str, Any], list[str]]:
    """Read the rows as raw manifest entries, with a label for each to be used in messages.

    Args:
        content: The file's bytes; UTF-8, with or without byte order mark.
        path: The file, for messages.
    """
    try:
        text = content.decode("utf-8-sig")
        delimiter = max(_DELIMITERS, key=text.partition("\n")[0].count)
        table = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        header = [column.strip().lower() for column in next(table, [])]
        rows = [(table.line_num, row) for row in table if any(cell.strip() for cell in row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} is not a readable CSV file: {error}.", fix="save it as UTF-8 CSV") from error
    if "name" not in header:
        what = f"{path} has no header: its first line is {','.join(header)!r:.80}."
        raise BadInput(what, fix="begin the file with the line: name,dtype,shape")
    entries = [_entry(header, row, where=f"{path} line {line}") for line, row in rows]
    return {"tensors": entries}, [f"line {line}" for line, _ in rows]


def _entry(header: list[str], row: list[str], *, where: str) -> dict[str, str]:
    if header[-1] == "shape":  # then a shape with commas needs no quotes
        row = [*row[: len(header) - 1], ",".join(row[len(header) - 1 :])]
    if len(row) != len(header):
        what = f"{where} has {len(row)} values for {len(header)} columns."
        raise BadInput(what, fix='put a shape with commas in quotes ("1,3,8,8"), or write it as 1x3x8x8')
    # A name may begin or end with spaces on purpose; nothing else may.
    return {column: cell if column == "name" else cell.strip() for column, cell in zip(header, row, strict=True)}
