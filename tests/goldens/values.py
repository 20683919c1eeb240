"""Kept values: made small for storing, and compared number by number."""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

RELATIVE, ABSOLUTE = 1e-6, 1e-9

# Keys of documents and columns of tables that a clock, a host or a release fills.
_VOLATILE = frozenset({
    "environment", "roundoff", "seconds", "elapsed_s", "sha256", "size_bytes", "created", "time", "date", "host",
    "version", "versions", "duration_s", "s", "timestamp",
})  # fmt: skip
# Numbers in a row beyond which only a digest is kept.
_LONG = 60
# Lines and rows of text of a file beyond which only a digest is kept.
_MANY = 400
_DIGITS = 10
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])", re.IGNORECASE)


def digest(values: npt.NDArray[Any]) -> dict[str, Any]:
    """Shape, type, and numbers that change with any value and with the order of values."""
    if values.dtype.kind not in "biuf":
        return {"shape": list(values.shape), "type": str(values.dtype)}
    flat = np.asarray(values, np.float64).ravel()
    finite = flat[np.isfinite(flat)]
    sizes = np.abs(finite)
    places = np.arange(1, finite.size + 1) / max(finite.size, 1)
    numbers = [sizes.sum(), (sizes * places).sum(), *((finite.min(), finite.max()) if finite.size else ())]
    return {
        "shape": list(values.shape),
        "finite": int(finite.size),
        "sums and range": [_short(float(number)) for number in numbers],
    }


def reduced(value: Any, *, table: bool = False) -> Any:
    """A document without what is volatile, long rows of numbers replaced by a digest."""
    if table:
        return _table(value)
    if isinstance(value, Mapping):
        kept = {key: each for key, each in value.items() if key not in _VOLATILE}
        return {key: _topology(each) if key == "network" else reduced(each) for key, each in kept.items()}
    if isinstance(value, list):
        if len(value) > _LONG and all(isinstance(each, int | float | None) for each in value):
            return digest(np.array([math.nan if each is None else each for each in value], np.float64))
        if len(value) > _MANY:
            return {"count": len(value), "hash": _hash(value)}
        return [reduced(each) for each in value]
    return _short(value) if isinstance(value, float) else value


def _topology(network: Any) -> Any:
    return {"nodes": len(network["nodes"]), "hash": _hash(network)} if network else network


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _table(rows: Sequence[Sequence[str]]) -> Any:
    """Rows of a CSV file without the columns that a clock fills; a digest per column of a long one."""
    if not rows:
        return []
    head = rows[0]
    kept = [place for place, name in enumerate(head) if name not in _VOLATILE]
    rows = [[row[place] for place in kept if place < len(row)] for row in rows]
    if len(rows) <= _MANY:
        return [",".join(map(_cell, row)) for row in rows]
    columns = zip(*rows[1:], strict=True)
    return {name: _column(list(column)) for name, column in zip(rows[0], columns, strict=True)}


def _cell(text: str) -> str:
    number = _number(text)
    if number is None or "." not in text or not math.isfinite(number):
        return json.dumps(text) if "," in text or '"' in text else text
    short = f"{number:.{_DIGITS}g}"
    return short if len(short) < len(text) else text


def _column(cells: list[str]) -> Any:
    numbers = [_number(cell) for cell in cells]
    if all(number is not None for number in numbers):
        return digest(np.array(numbers, np.float64))
    return {"count": len(cells), "hash": _hash(cells)}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _short(value: float) -> Any:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else str(value)


# Comparing ------------------------------------------------------------------------------------------------------


def differences(kept: Any, found: Any, path: str = "") -> Iterator[str]:
    """What differs, as ``path: kept -> found``; numbers within a tolerance, everything else exactly."""
    if isinstance(kept, dict) and isinstance(found, dict):
        for key in sorted(kept.keys() | found.keys()):
            here = f"{path}/{key}"
            if key not in found or key not in kept:
                yield f"{here}: {'missing now' if key in kept else 'new'}"
            else:
                yield from differences(kept[key], found[key], here)
    elif isinstance(kept, list) and isinstance(found, list):
        if len(kept) != len(found):
            yield f"{path}: {len(kept)} entries -> {len(found)}"
        for place, (old, new) in enumerate(zip(kept, found, strict=False)):
            yield from differences(old, new, f"{path}[{place}]")
    elif not _same(kept, found, exact="/text/" not in path):
        yield f"{path}: {kept!r} -> {found!r}"


def _same(kept: Any, found: Any, *, exact: bool) -> bool:
    if isinstance(kept, str) and isinstance(found, str):
        return kept == found or _same_words(kept, found, exact=exact)
    if isinstance(kept, bool) or isinstance(found, bool) or not _are_numbers(kept, found):
        return type(kept) is type(found) and bool(kept == found)
    return _close(kept, found)


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) for value in values)


def _close(kept: float, found: float) -> bool:
    return math.isclose(kept, found, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def _same_words(kept: str, found: str, *, exact: bool) -> bool:
    """The same words with the same numbers.

    A printed number may differ by one in its last place, for it may have been rounded the other way; a whole
    number is a count and may not. Full numbers, as tables hold them, are compared as numbers.
    """
    if _NUMBER.sub("#", kept) != _NUMBER.sub("#", found):
        return False
    pairs = zip(_NUMBER.findall(kept), _NUMBER.findall(found), strict=True)
    return all(old == new or _same_number(old, new, exact=exact) for old, new in pairs)


def _same_number(kept: str, found: str, *, exact: bool) -> bool:
    # With all its digits, as tables for programs hold it, it differs in the last ones on another processor.
    if exact or min(len(kept), len(found)) > _DIGITS + len("-0."):
        return "." in kept + found and _close(float(kept), float(found))
    steps = [step for step in (_step(kept), _step(found)) if step]
    return bool(steps) and abs(float(kept) - float(found)) <= min(steps) * 1.001


def _step(number: str) -> float:
    """One in the last printed place; 0 for a whole number."""
    mantissa, _, power = number.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 10.0 ** (int(power or 0) - decimals) if decimals or power else 0.0


# Storing --------------------------------------------------------------------------------------------------------


def dumps(value: Any, width: int = 150, indent: int = 0) -> str:
    """JSON with as much on a line as fits: small, and still read line by line in a diff."""
    flat = json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    if not isinstance(value, dict | list) or len(flat) + indent <= width:
        return flat
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(key, ensure_ascii=False)}: {dumps(each, width, indent + 1)}"
            for key, each in value.items()
        ]
        return "{\n" + ",\n".join(pad + part for part in parts) + "\n" + " " * indent + "}"
    parts = [dumps(each, width, indent + 1) for each in value]
    return "[\n" + ",\n".join(pad + part for part in parts) + "\n" + " " * indent + "]"
