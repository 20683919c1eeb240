"""Results that Polygraphy saves as JSON: a run for each runner, iterations as samples, .npy arrays as base64."""

import base64
import binascii
import functools
import mmap
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.array_files import MAX_HEADER_BYTES, Unreadable, map_bytes, parse_header
from roundoff.core.files import reading
from roundoff.core.names import shown
from roundoff.core.tensors import Array, TensorInfo, TensorSource
from roundoff.core.untrusted import parse_json
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english
from roundoff.tensors.folders import CERTAIN
from roundoff.tensors.sources import ANY_RUN, RunSelection
from roundoff.tensors.stored import Content, StoredSource, TensorFile, resolve_content

_HEAD_BYTES = 4096
_MARK = b"polygraphy_class"
_LONG = 200
"""Texts longer than this are arrays; they are left in the file."""
_TEXT = re.compile(rb'"[^"\\]{%d,}"' % _LONG)
_GAP = "\x00"


def sniff(path: Path) -> int:
    """Score how well a path fits: a .json file with Polygraphy's mark near its beginning or its end."""
    if not path.is_file() or path.suffix.lower() != ".json":
        return 0
    with reading(path, what=english("The path")), path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        file.seek(max(0, path.stat().st_size - _HEAD_BYTES))
        return CERTAIN if _MARK in head or _MARK in file.read() else 0


def open(  # noqa: A001 - every format has an `open`
    path: Path, shapes: Sequence[TensorInfo] | None = None, run: RunSelection = ANY_RUN
) -> TensorSource:
    """Open what ``--save-outputs`` or ``--save-inputs`` wrote.

    Args:
        path: The file.
        shapes: Not needed.
        run: Of several runners, the one wanted.
    """
    runs = dict(_runs(_content(path))) if path.is_file() else {}
    if not runs:
        what = english("{path} holds no results of Polygraphy.", path=path)
        raise BadInput(what, fix=english("give what --save-outputs or --save-inputs wrote"))
    chosen = _chosen(run, list(runs), path)
    iterations = runs[chosen]
    alone = len(iterations) == 1
    stored = [
        TensorFile(name, "" if alone else str(number), shown(path), functools.partial(_probe, path, array))
        for number, tensors in enumerate(iterations)
        for name, array in tensors.items()
    ]
    if not stored:
        what = english("{path} holds no tensors.", path=path)
        raise BadInput(what, fix=english("save outputs with --onnx-outputs mark all, or --save-outputs"))
    return StoredSource(
        stored,
        label=shown(path),
        samples=[""] if alone else [str(number) for number in range(len(iterations))],
        ordered=True,
        runs=(chosen, *(name for name in runs if name != chosen)) if len(runs) > 1 else (),
    )


def _chosen(run: RunSelection, known: Sequence[str], path: Path) -> str:
    if run.name is None:
        # Polygraphy compares the runners behind the first with it.
        return known[0] if run.golden or len(known) == 1 else known[1]
    fits = [name for name in known if name == run.name or name.startswith(run.name)]
    if not fits:
        what = english("{where} holds no run {name!r}.", where=path, name=run.name)
        raise BadInput(what, fix=nearest(run.name, known))
    return fits[0]


@dataclass(frozen=True, slots=True)
class _Base64:
    """An array in the file: where its text begins, and how long it is; or the text itself where it is short."""

    offset: int
    length: int
    text: bytes = b""


def _content(path: Path) -> Any:
    """The document, its long texts replaced by their places."""
    with reading(path, what=english("The results")), path.open("rb") as file:
        if not path.stat().st_size:
            raise BadInput(english("{path} is empty.", path=path), fix=english("write it again"))
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            parts: list[bytes] = []
            last = 0
            for found in _TEXT.finditer(mapped):
                start, end = found.span()
                parts += [mapped[last:start], b'"\\u0000%d:%d"' % (start + 1, end - start - 2)]
                last = end
            parts.append(mapped[last:])
    return parse_json(b"".join(parts), path, fix=english("copy the file again: it is damaged or cut short"))


def _runs(content: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each runner with the tensors of its iterations; inputs are a run without a name."""
    if isinstance(content, dict) and isinstance(content.get("lst"), list):
        content = content["lst"]
    if not isinstance(content, list):
        return
    if content and all(isinstance(each, dict) and not _is_array(each) for each in content):
        yield "", [_arrays(each) for each in content]
        return
    for pair in content:
        match pair:
            case [str(name), list(iterations)]:
                yield name, [_arrays(each.get("outputs")) for each in iterations if isinstance(each, dict)]


def _is_array(value: Mapping[str, Any]) -> bool:
    return value.get("polygraphy_class") in ("LazyArray", "ndarray")


def _arrays(tensors: Any) -> dict[str, Any]:
    if isinstance(tensors, dict) and isinstance(tensors.get("dct"), dict):
        tensors = tensors["dct"]
    if not isinstance(tensors, dict):
        return {}
    return {name: value for name, value in tensors.items() if isinstance(value, dict)}


def _place(value: Mapping[str, Any]) -> _Base64:
    inner = value.get("values", value)
    text = inner.get("array") if isinstance(inner, dict) else None
    if not isinstance(text, str):
        raise Unreadable(
            english("is no array in this file"), fix=english("save the results again, without swapping to disk")
        )
    if text.startswith(_GAP):
        offset, _, length = text[1:].partition(":")
        return _Base64(int(offset), int(length))
    return _Base64(0, len(text), text.encode("ascii", "replace"))


def _probe(path: Path, value: Mapping[str, Any]) -> Content:
    place = _place(value)
    head = _decoded(path, place, MAX_HEADER_BYTES // 3 * 4)
    size = place.length // 4 * 3 - _text(path, place, place.length - 4, 4).count(b"=")
    header = parse_header(head[:MAX_HEADER_BYTES], length=size)

    def load() -> Array:
        return header.values(np.frombuffer(_decoded(path, place, place.length), np.uint8))

    return resolve_content(header.dtype, header.shape, load=load, declared=None)


def _text(path: Path, place: _Base64, start: int, length: int) -> bytes:
    start = max(0, start)
    length = min(length, place.length - start)
    if place.text:
        return place.text[start : start + length]
    return bytes(map_bytes(path, offset=place.offset + start, length=length))


def _decoded(path: Path, place: _Base64, length: int) -> bytes:
    try:
        return base64.b64decode(_text(path, place, 0, length // 4 * 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Unreadable(english("is no base64"), fix=english("copy the file again: it is damaged")) from error
