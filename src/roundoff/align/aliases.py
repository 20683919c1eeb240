"""The user's own list of which tensor is which."""

import csv
import difflib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from roundoff.core.files import read_small
from roundoff.core.tensors import TensorSource
from roundoff.errors import BadInput, nearest

__all__ = ["check_aliases", "read_aliases"]

_HEADER = ["reference", "candidate"]
_SHAPE_OF_FILE = (
    'write a JSON object {"reference name": "candidate name"} or a CSV file with the header reference,candidate'
)
_FEW = 20
"""Up to so many names a message lists them all."""


def read_aliases(path: Path | str) -> dict[str, str]:
    """Read reference -> candidate names from a JSON object or from CSV with a header.

    Raises:
        BadInput: The file cannot be read, is neither of the two, or names a tensor twice.
    """
    path = Path(path)
    content = read_small(path, what="The alias file")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"The alias file {path} is not UTF-8 text.", fix=_SHAPE_OF_FILE) from error
    pairs = _from_json(text, path) if text.lstrip().startswith(("{", "[")) else _from_csv(text, path)
    aliases = dict(pairs)
    for column, side in enumerate(_HEADER):
        twice = _repeated(pair[column] for pair in pairs)
        if twice is not None:
            partners = ", ".join(repr(pair[1 - column]) for pair in pairs if pair[column] == twice)
            raise BadInput(
                f"The alias file {path} names the {side} tensor {twice!r} more than once (with {partners}).",
                fix="keep one line for it: one tensor has one partner",
            )
    return aliases


def check_aliases(aliases: Mapping[str, str], reference: TensorSource, candidate: TensorSource) -> None:
    """Refuse aliases that name tensors that are not there, or give one tensor two partners.

    Raises:
        BadInput: With the name meant, if one is near.
    """
    for names, source, side in (
        (list(aliases), reference, "reference"),
        (list(aliases.values()), candidate, "candidate"),
    ):
        known = dict.fromkeys(tensor.name for tensor in source.tensors)
        unknown = [name for name in names if name not in known]
        if unknown:
            more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
            what = f"The aliases name {unknown[0]!r}{more}, which the {side} {source.label} does not hold."
            raise BadInput(what, fix=_suggestion(unknown[0], list(known)))
    twice = _repeated(aliases.values())
    if twice is not None:
        owners = ", ".join(repr(name) for name, partner in aliases.items() if partner == twice)
        raise BadInput(
            f"The aliases give the candidate tensor {twice!r} to several reference tensors: {owners}.",
            fix="keep one of them: one tensor has one partner",
        )


def _suggestion(name: str, known: Sequence[str]) -> str:
    if len(known) <= _FEW or difflib.get_close_matches(name, known, n=1, cutoff=0.6):
        return nearest(name, known)
    shown = ", ".join(known[:3])
    return f"use one of its {len(known)} names as they stand, such as {shown}"


def _from_json(text: str, path: Path) -> list[tuple[str, str]]:
    try:
        pairs: list[tuple[str, str]] = json.loads(text, object_pairs_hook=list)
    except (json.JSONDecodeError, RecursionError) as error:
        raise BadInput(f"The alias file {path} is broken JSON: {error}.", fix=_SHAPE_OF_FILE) from error
    if not text.lstrip().startswith("{"):
        raise BadInput(f"The alias file {path} holds a JSON list, not an object.", fix=_SHAPE_OF_FILE)
    for name, partner in pairs:
        if not isinstance(partner, str):
            what = f"The alias file {path} gives {name!r} the value {json.dumps(partner)}, which is no name."
            raise BadInput(what, fix=_SHAPE_OF_FILE)
    return pairs


def _from_csv(text: str, path: Path) -> list[tuple[str, str]]:
    try:
        rows = [
            row
            for row in csv.reader(io.StringIO(text), strict=True, skipinitialspace=True)
            if any(cell.strip() for cell in row)
        ]
    except csv.Error as error:
        raise BadInput(f"The alias file {path} is broken CSV: {error}.", fix=_SHAPE_OF_FILE) from error
    header = [cell.strip().casefold() for cell in rows[0]] if rows else []
    if header != _HEADER:
        got = ",".join(header) or "nothing"
        raise BadInput(
            f"The alias file {path} starts with {got!r}, not with reference,candidate.", fix=_SHAPE_OF_FILE
        )
    for number, row in enumerate(rows[1:], start=1):
        if len(row) != len(_HEADER) or not all(cell.strip() for cell in row):
            what = f"The alias file {path}, entry {number}, holds {','.join(row)!r}; two names are expected."
            raise BadInput(what, fix='quote names that contain commas: "a,b",c')
    return [(row[0], row[1]) for row in rows[1:]]


def _repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
