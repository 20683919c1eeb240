"""Which files of several inputs belong to the same sample, and what that sample is called."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from roundoff.core.names import natural_key, shown
from roundoff.data.columns import Column
from roundoff.errors import BadInput

__all__ = ["Paired", "pair", "unique_names"]


@dataclass(frozen=True, slots=True)
class Paired:
    """Columns of equal length whose files of one index belong together, and the name of each such group."""

    columns: tuple[Column, ...]
    names: tuple[str, ...]


def pair(columns: Sequence[Column]) -> Paired:
    """Bring the files of all inputs together: by name without suffix in folders, by order in lists.

    Raises:
        BadInput: A file has no partner.
    """
    if all(column.keyed for column in columns):
        return _paired_by_name(columns)
    if any(column.keyed for column in columns):
        said = ", ".join(f"{c.spec.name!r} is {'a folder' if c.keyed else 'a file'}" for c in columns)
        raise BadInput(
            f"Samples in a folder pair by file name, samples in a file by order; they do not mix: {said}.",
            fix="give every input as a folder with the same file names, or every input as a file",
        )
    return _paired_by_order(columns)


def unique_names(short: Sequence[str], long: Sequence[str]) -> tuple[str, ...]:
    """Distinct printable names: the short ones, the long ones where those clash, numbered where all clash."""
    clashes = {name for name, count in Counter(short).items() if count > 1}
    names: list[str] = []
    taken: set[str] = set()
    for brief, full in zip(short, long, strict=True):
        base = name = shown(full if brief in clashes else brief)
        number = 1
        while name in taken:
            number += 1
            name = f"{base}#{number}"
        taken.add(name)
        names.append(name)
    return tuple(names)


def _paired_by_name(columns: Sequence[Column]) -> Paired:
    first = columns[0]
    if all(column.base == first.base and column.files == first.files for column in columns):
        return Paired(tuple(columns), unique_names([_key(file) for file in first.files], first.files))
    tables = [_by_key(column) for column in columns]
    keys = sorted(set().union(*tables), key=natural_key)
    _check_partners(columns, tables, keys)
    aligned = tuple(
        replace(column, files=tuple(table[key] for key in keys))
        for column, table in zip(columns, tables, strict=True)
    )
    return Paired(aligned, unique_names(keys, keys))


def _paired_by_order(columns: Sequence[Column]) -> Paired:
    first = columns[0]
    for column in columns:
        if len(column.files) != len(first.files):
            raise BadInput(
                f"The input {first.spec.name!r} has {len(first.files)} file(s), "
                f"but {column.spec.name!r} has {len(column.files)}.",
                fix="list the same number of files, in the same order, for every input",
            )
    return Paired(tuple(columns), unique_names([PurePosixPath(file).stem for file in first.files], first.files))


def _key(file: str) -> str:
    return str(PurePosixPath(file).with_suffix(""))


def _by_key(column: Column) -> dict[str, str]:
    table: dict[str, str] = {}
    for file in column.files:
        other = table.setdefault(_key(file), file)
        if other != file:
            raise BadInput(
                f"{shown(column.base / other)} and {shown(column.base / file)} both stand for the sample "
                f"{shown(_key(file))!r} of the input {column.spec.name!r}.",
                fix="keep one of them",
            )
    return table


def _check_partners(columns: Sequence[Column], tables: Sequence[dict[str, str]], keys: Sequence[str]) -> None:
    lonely = [key for key in keys if any(key not in table for table in tables)]
    if not lonely:
        return
    key = lonely[0]
    owner, table = next((c, t) for c, t in zip(columns, tables, strict=True) if key in t)
    lacking = next(c for c, t in zip(columns, tables, strict=True) if key not in t)
    suffix = PurePosixPath(lacking.files[0]).suffix
    more = f" ({len(lonely) - 1} more like it)" if len(lonely) > 1 else ""
    raise BadInput(
        f"{shown(owner.base / table[key])} of the input {owner.spec.name!r} has no partner for the input "
        f"{lacking.spec.name!r}: expected {shown(lacking.base / key)}{suffix} with {lacking.spec.describe()}, "
        f"found nothing{more}.",
        fix="add the missing file, or remove the one without partner",
    )
