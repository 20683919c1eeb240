"""Rankings that were saved: by roundoff, by other tools, or by hand."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roundoff.core.files import read_small
from roundoff.errors import BadInput
from roundoff.samples.labels import csv_rows

__all__ = ["read_ranking"]

_NAME_COLUMNS = ("name", "subject", "node", "quantizer")
_RULER = re.compile(r"[=\-\s]*|=+[^=]+=+")
# What vendors' tables call their first column.
_HEADINGS = ("node", "weight", "activation", "name")
_FIX = "give the run.json of 'roundoff sensitivity', a CSV with a column name, or a file with one name per line"


def read_ranking(path: Path, kind: str) -> tuple[str, ...]:
    """Names in a file, worst first.

    Read are run documents of ``roundoff sensitivity``, JSON lists of names or objects whose keys are names, CSV
    with a column ``name`` (and ``kind``, of which only the wanted one counts), printed tables of vendors' tools
    whose first column is the name, and plain lists of one name per line.

    Args:
        path: The file, or a folder with a run.json.
        kind: Which ranking, where there are several: ``node``, ``weight`` or ``activation``.

    Raises:
        BadInput: It cannot be read, or names nothing.
    """
    file = path / "run.json" if path.is_dir() else path
    text = read_small(file, what="The ranking").decode("utf-8", errors="replace")
    if text.lstrip().startswith(("{", "[")):
        names = _from_json(text, file, kind)
    elif file.suffix.lower() == ".csv":
        names = _from_csv(text, file, kind)
    else:
        names = _from_lines(text)
    found = tuple(dict.fromkeys(name for name in names if name))
    if not found:
        raise BadInput(f"{file} ranks nothing of the kind {kind}.", fix=_FIX)
    return found


def _from_json(text: str, path: Path, kind: str) -> list[str]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not JSON: {error}.", fix=_FIX) from error
    if isinstance(content, dict) and ("sensitivity" in content or {"schema", "command"} <= content.keys()):
        rankings = content.get("sensitivity", {})
        rankings = rankings.get("rankings", {}) if isinstance(rankings, dict) else {}
        content = rankings.get(kind, ()) if isinstance(rankings, dict) else ()
    return [_name(each) for each in content] if isinstance(content, dict | list) else []


def _name(row: Any) -> str:
    """The name in a row of a ranking, however deep it lies."""
    while isinstance(row, dict):
        row = next((row[key] for key in ("score", "subject", "name") if key in row), "")
    return row if isinstance(row, str) else ""


def _from_csv(text: str, path: Path, kind: str) -> list[str]:
    rows = csv_rows(text, path)
    headings = [cell.strip().casefold() for cell in rows[0]] if rows else []
    column = next((headings.index(name) for name in _NAME_COLUMNS if name in headings), None)
    if column is None:
        return [row[0].strip() for row in rows]
    kinds = headings.index("kind") if "kind" in headings else None
    return [
        _unguarded(row[column].strip())
        for row in rows[1:]
        if len(row) > column and (kinds is None or _cell(row, kinds) == kind)
    ]


def _cell(row: Sequence[str], column: int) -> str:
    return row[column].strip() if column < len(row) else ""


def _unguarded(name: str) -> str:
    """A name without the apostrophe that keeps spreadsheets from computing it."""
    return name[1:] if name.startswith(("'=", "'+", "'-", "'@")) else name


def _from_lines(text: str) -> list[str]:
    names = []
    for line in text.splitlines():
        if _RULER.fullmatch(line.strip()) or line.lstrip().startswith("#"):
            continue
        cells = re.split(r"\s{2,}|\t", line.strip())
        if len(cells) > 1 and cells[0].casefold() in _HEADINGS:
            continue
        names.append(cells[0])
    return names
