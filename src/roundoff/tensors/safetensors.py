"""The safetensors layout: eight bytes of header length, a JSON header, then the values of all tensors.

Read directly, not through the package of that name: that one cannot hand bfloat16 and 8-bit floats to numpy, and
nothing else of it is needed.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roundoff.core.array_files import Unreadable, check_shape, map_array, size_bytes, stat_file
from roundoff.core.tensors import DType, TensorInfo, TensorSource, parse_dtype
from roundoff.core.untrusted import parse_json
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.tensors.folders import TensorPlace, sniff_files
from roundoff.tensors.sources import ANY_RUN, RunSelection, open_archives
from roundoff.tensors.stored import Content, Declared, resolve_content

SUFFIXES = (".safetensors",)

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000  # the format's own bound
_METADATA = "__metadata__"
_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}


def sniff(path: Path) -> int:
    """Score how well a path fits: .safetensors files."""
    return sniff_files(path, suffixes=SUFFIXES)


def open(  # noqa: A001 - every format has an `open`
    path: Path, shapes: Sequence[TensorInfo] | None = None, run: RunSelection = ANY_RUN
) -> TensorSource:
    """Open one .safetensors file, or a folder of them: one sample per file, or the parts of one."""
    return open_archives(path, suffixes=SUFFIXES, members=_members, run=run)


def _members(path: Path, archive: str) -> list[TensorPlace]:
    header, start = _read_header(path)
    return [
        TensorPlace(f"{archive}/{name}", name, path, functools.partial(_probe, path, start, entry), archive)
        for name, entry in header.items()
    ]


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Read the JSON header; tell also where the values begin."""
    size = stat_file(path)
    if not size:
        raise Unreadable(english("is empty"))
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if size < _LENGTH_BYTES or length > min(size - _LENGTH_BYTES, _MAX_HEADER_BYTES):
            raise Unreadable(
                english(
                    "is not a complete .safetensors file: a header of {length} bytes in a file of {size}",
                    length=length,
                    size=size,
                )
            )
        text = file.read(length)
    try:
        header = parse_json(text, path, surrogates=True)
    except BadInput as error:
        raise Unreadable(english("its .safetensors header is damaged")) from error
    if not isinstance(header, dict):
        raise Unreadable(english("its .safetensors header is damaged"))
    header.pop(_METADATA, None)
    if not header:
        raise Unreadable(english("holds no tensors"))
    return header, _LENGTH_BYTES + length


def _probe(path: Path, start: int, entry: Any, declared: Declared | None) -> Content:
    dtype, shape, begin, end = _parse_entry(entry)
    check_shape(dtype, shape)
    wanted, there = size_bytes(dtype, shape), stat_file(path) - start - begin
    if end - begin != wanted or begin < 0:
        problem = english(
            "damaged: {number} bytes at {begin} for {name} {shape}, which takes {wanted}",
            number=end - begin,
            begin=begin,
            name=dtype.name,
            shape=list(shape),
            wanted=wanted,
        )
        raise Unreadable(problem, dtype=dtype.name, shape=shape)
    if there < wanted:
        raise Unreadable(
            english("truncated: {there} of {wanted} bytes", there=max(there, 0), wanted=wanted),
            dtype=dtype.name,
            shape=shape,
        )
    load = functools.partial(map_array, path, offset=start + begin, dtype=dtype, shape=shape)
    return resolve_content(dtype, shape, load=load, declared=declared)


def _parse_entry(entry: Any) -> tuple[DType, tuple[int, ...], int, int]:
    try:
        name, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(english("its entry in the header is damaged")) from error
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise Unreadable(english("its entry in the header is damaged"))
    if not isinstance(name, str) or name not in _DTYPES:
        raise Unreadable(english("holds values of type {name!r:.40}, which are not read", name=name))
    return parse_dtype(_DTYPES[name]), shape, begin, end
