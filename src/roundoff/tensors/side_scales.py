"""Scales in a file of their own beside tensors of codes: a value is ``scale * (code - zero_point)``."""

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.files import read_small
from roundoff.core.tensors import Array
from roundoff.core.untrusted import parse_csv, read_json
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.tensors.stored import Content, TensorFile

_STEMS = ("scales", "scale", "quant_params", "quantization", "quantization_params", "qparams")
NAMES = tuple(f"{stem}{suffix}" for stem in _STEMS for suffix in (".json", ".csv"))
"""What files of scales are called, in the folder of the tensors or above that of each sample."""
_ZEROS = ("zero_point", "zeropoint", "zero", "zp")
_PLAIN = re.compile(r"[\W_]+")

Scales = Mapping[str, tuple[float, int]]


def find_scales(folder: Path) -> Scales:
    """Scale and zero point of tensors by name, as the file of scales in a folder says; nothing without one.

    Raises:
        BadInput: There are several, or it holds something else.
    """
    found = [folder / name for name in NAMES if (folder / name).is_file()]
    if not found:
        return {}
    path, what = found[0], english("The file of scales")
    if len(found) > 1:
        raise BadInput(
            english("{folder} holds several files of scales.", folder=folder),
            fix=english("keep the one that the codes were made with: {path}", path=path.name),
        )
    if path.suffix == ".csv":
        header, *rows = parse_csv(read_small(path, what=what), path) or [[]]
        columns = [cell.strip().lower() for cell in header]
        entries: Any = [dict(zip(columns, map(_number, row), strict=False)) for row in rows]
    else:
        entries = read_json(path, what=what)
    if isinstance(entries, dict) and len(entries) == 1:
        # All of them under one word, such as "tensors".
        (inner,) = entries.values()
        several = inner.values() if isinstance(inner, dict) else inner if isinstance(inner, list) else ()
        if several and all(isinstance(each, dict) for each in several):
            entries = inner
    if isinstance(entries, list):
        entries = {str(each.get("name", "")): each for each in entries if isinstance(each, dict)}
    scales = {_key(name): _one(each) for name, each in entries.items()} if isinstance(entries, dict) else {}
    if not scales or None in scales.values():
        bad = next((name for name, each in entries.items() if _one(each) is None), "") if scales else ""
        raise BadInput(
            english("{path} is no file of scales: {bad!r} has no positive scale.", path=path, bad=bad),
            fix=english('write {{"tensor": {{"scale": 0.02, "zero_point": 3}}}}, or CSV: name,scale,zero_point'),
        )
    return {name: each for name, each in scales.items() if each is not None}


def _number(cell: str) -> float | int | str:
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell.strip()


def _one(entry: Any) -> tuple[float, int] | None:
    """Scale and zero point of an entry, however it is written."""
    if isinstance(entry, dict):
        zero = next((entry[name] for name in _ZEROS if name in entry), 0)
        entry = [entry.get("scale"), zero]
    pair = [each[0] if isinstance(each, list) and len(each) == 1 else each for each in _listed(entry)]
    if len(pair) != 2 or any(isinstance(each, bool) or not isinstance(each, int | float) for each in pair):
        return None
    scale, zero = map(float, pair)
    return (scale, int(zero)) if 0 < scale < math.inf and zero.is_integer() else None


def _listed(entry: Any) -> list[Any]:
    return entry if isinstance(entry, list) else [entry, 0]


def _key(name: str) -> str:
    return _PLAIN.sub("_", name).strip("_").casefold()


def decoded(place: TensorFile, scales: Scales) -> TensorFile:
    """The place of a tensor whose codes have a scale, with values in it."""
    numbers = scales.get(_key(place.name))
    return place if numbers is None else replace(place, probe=functools.partial(_values, place, numbers))


def _values(place: TensorFile, numbers: tuple[float, int]) -> Content:
    content = place.probe()
    # What is no code was decoded already.
    if np.dtype(content.dtype if content.dtype in _CODES else np.float32).kind not in "iu":
        return content
    return Content("float32", content.shape, functools.partial(_load, content, numbers))


_CODES = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32))


def _load(content: Content, numbers: tuple[float, int]) -> Array:
    scale, zero = numbers
    return ((content.load().astype(np.float64) - zero) * scale).astype(np.float32)
