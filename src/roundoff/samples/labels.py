"""The right class of each sample, from the files in which people keep them."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from roundoff.core.array_files import Unreadable, map_npy
from roundoff.core.files import read_small, reading
from roundoff.core.tensors import Array
from roundoff.core.untrusted import parse_csv
from roundoff.errors import BadInput
from roundoff.messages.message import english

# Rows of CSV files that people and other tools wrote.


# What the columns of such tables are called, in the order in which they are believed.
_CLASS_HEADINGS = (
    "label", "labels", "class", "class_id", "class_index", "class_idx", "label_id", "target", "category_id", "y",
)  # fmt: skip
_NAME_HEADINGS = (
    "sample",
    "file",
    "filename",
    "file_name",
    "image",
    "image_name",
    "image_id",
    "name",
    "path",
    "id",
)
# No class has a number of more digits.
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
# No network has more classes; text of more digits is no class number either.
_LAST_CLASS = 10**9 - 1
_FROM_ZERO = english("write whole numbers from 0 on")
_BETWEEN_CELLS = ",\t;"
_COLUMN_FIX = english(
    "call the column of class numbers 'label' in a first line, or give only names and class numbers"
)


def load_labels(path: Path | str, names: Sequence[str]) -> Array:
    """The right class of each sample.

    A ``.npy`` file holds whole numbers in the order of the samples. A text holds one per line, or the name of a
    sample and its class, separated by a comma, a tab, a semicolon or blanks. In a table with more columns the
    first line says which one is the class (``label``, ``class``, ``target`` ...), unless only one holds
    whole numbers.

    Args:
        path: The file.
        names: What the samples are called, in their order.

    Returns:
        int64 of shape (n,), not fewer than there are samples unless these hold several rows each.

    Raises:
        BadInput: It cannot be read, holds other things, or lacks a sample.
    """
    path = Path(path)
    if path.suffix.lower() == ".npy":
        return _stored_labels(path)
    heading, rows = _table(path)
    if not rows:
        raise BadInput("{path} holds no labels.", fix=english("write one class number per line"), path=path)
    widths = {len(row) for row in rows} | ({len(heading)} if heading else set())
    if len(widths) > 1:
        what = english(
            "{path} holds lines of {widths} and of {widths2} columns.",
            path=path,
            widths=min(widths),
            widths2=max(widths),
        )
        raise BadInput(what, fix=english("give every line the same columns"))
    if widths == {1}:
        return np.array([_class_number(row[0], path) for row in rows], dtype=np.int64)
    name_column, class_column = _columns(heading, rows, path)
    return _by_name(((row[name_column], row[class_column]) for row in rows), path, names)


def labels_counted(path: Path) -> int | None:
    """How many labels a file holds; None where they go by the names of samples, or it cannot be read."""
    try:
        if path.suffix.lower() == ".npy":
            return len(_stored_labels(path))
        heading, rows = _table(path)
    except BadInput:
        return None
    return len(rows) if {len(row) for row in (heading or [""], *rows)} == {1} else None


def _stored_labels(path: Path) -> Array:
    with reading(path, what=english("The labels")):
        try:
            found = map_npy(path)
        except Unreadable as error:
            raise BadInput(
                english("{path} cannot be read as a .npy file: {error}.", path=path, error=error.problem),
                fix=english("save it with numpy.save"),
            ) from error
    if found.dtype.kind not in "iu":
        what = english(
            "{path} holds {dtype} of shape {shape}; labels are whole numbers.",
            path=path,
            dtype=found.dtype,
            shape=list(found.shape),
        )
        raise BadInput(what, fix=english("save the class numbers as int64"))
    wrong = found[(found < 0) | (found > _LAST_CLASS)]
    if wrong.size:
        raise BadInput(
            "{path} holds {flat}, which is not a class number.", fix=_FROM_ZERO, path=path, flat=wrong.flat[0]
        )
    return found.reshape(-1).astype(np.int64)


def _table(path: Path) -> tuple[list[str], list[list[str]]]:
    """The heading, empty without one, and the lines behind it."""
    text = read_small(path, what=english("The labels")).decode("utf-8-sig", errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    separator = next((each for each in _BETWEEN_CELLS if lines and each in lines[0]), None)
    # A name may hold blanks; the class behind it does not.
    rows = (
        [line.rsplit(None, 1) for line in lines]
        if separator is None
        else parse_csv("\n".join(lines), path, separator=separator)
    )
    cells = [[cell.strip() for cell in row] for row in rows]
    if cells and not any(map(_is_whole, cells[0])):
        return cells[0], cells[1:]
    return [], cells


def _columns(heading: Sequence[str], rows: Sequence[Sequence[str]], path: Path) -> tuple[int, int]:
    """Where names and where classes are."""
    called = [cell.casefold() for cell in heading]
    name = next((called.index(each) for each in _NAME_HEADINGS if each in called), 0)
    for each in _CLASS_HEADINGS:
        if each in called and called.index(each) != name:
            return name, called.index(each)
    others = [column for column in range(len(rows[0])) if column != name]
    if len(others) > 1:
        others = [column for column in others if all(_is_whole(row[column]) for row in rows)]
    if len(others) != 1:
        columns = english(
            "{count} columns{value}", count=len(rows[0]), value=f" ({', '.join(heading)})" if heading else ""
        )
        reason = english("several hold") if others else english("none holds")
        what = english(
            "{path} has {columns}, of which {reason} whole numbers: it is not known which one is the class.",
            path=path,
            columns=columns,
            reason=reason,
        )
        raise BadInput(what, fix=_COLUMN_FIX)
    return name, others[0]


def _by_name(labels: Iterable[tuple[str, str]], path: Path, names: Sequence[str]) -> Array:
    # Samples are called after their files, without folder and ending unless two would be called alike.
    known: dict[str, list[tuple[str, str]]] = {}
    for name, label in labels:
        known.setdefault(_stem(name), []).append((name, label))
    found = []
    for name in names:
        alike = [pair for key in {name, _stem(name)} for pair in known.get(key, [])]
        classes = {label for written, label in alike if written == name}
        classes = classes or {label for written, label in alike if _same_file(written, name)}
        if not classes:
            raise BadInput(
                english("{path} has no label for sample {name!r}.", path=path, name=name),
                fix=english(
                    "name the samples in it as they are called here, such as {names}; or write only "
                    "class numbers, one per line in the order of the samples",
                    names=", ".join(names[:3]),
                ),
            )
        if len(classes) > 1:
            raise BadInput(
                "{path} has {count} labels for sample {name!r}: {classes}.",
                fix=english("remove all but the right one, or name the samples with their folders"),
                path=path,
                count=len(classes),
                name=name,
                classes=", ".join(sorted(classes)[:3]),
            )
        found.append(_class_number(classes.pop(), path))
    return np.array(found, dtype=np.int64)


def _stem(name: str) -> str:
    return PurePosixPath(name.replace("\\", "/")).stem


def _same_file(written: str, name: str) -> bool:
    """Whether one is the other with more folders in front, or with an ending."""
    paths = [PurePosixPath(each.replace("\\", "/")) for each in (written, name)]
    parts = [(*path.parent.parts, path.stem) for path in paths]
    whole = [(*path.parent.parts, path.name) for path in paths]
    # A name without an ending may hold a dot itself: "v1.2" is called so, its file "v1.2.png".
    forms = ((parts[0], whole[1]), (whole[0], parts[1]), (whole[0], whole[1]))
    return any(one[-length:] == two[-length:] for one, two in forms for length in (min(len(one), len(two)),))


def _class_number(text: str, path: Path) -> int:
    if not _is_whole(text) or not 0 <= int(text) <= _LAST_CLASS:
        raise BadInput("{path} holds {text!r}, which is not a class number.", fix=_FROM_ZERO, path=path, text=text)
    return int(text)


def _is_whole(text: str) -> bool:
    return _WHOLE.fullmatch(text) is not None
