"""Dump files as a device writes them, for tests and benchmarks; and the vendor's samples, where there are any."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from roundoff.core.tensors import Array
from roundoff.tensors.ascend_dump.header import ELEMENT_TYPES, FORMAT_NUMBERS

TIME = 1_700_000_100_000_000
_TYPES = {
    "float32": "FLOAT", "float16": "FLOAT16", "int8": "INT8", "uint8": "UINT8", "int16": "INT16",
    "uint16": "UINT16", "int32": "INT32", "int64": "INT64", "uint32": "UINT32", "uint64": "UINT64", "bool": "BOOL",
    "float64": "DOUBLE", "complex64": "COMPLEX64", "complex128": "COMPLEX128", "bfloat16": "BF16",
}  # fmt: skip
_FOLDER = Path(__file__).resolve().parents[2] / "shared" / "vectors" / "ascend"

# Numbers of the same fields differ between outputs and inputs.
_OUTPUT = {"original": 7, "size": 6, "groups": 8, "address": 9}
_INPUT = {"original": 6, "size": 5, "groups": 7, "address": 8}


def vectors(name: str) -> Path:
    """A folder of the vendor's samples; the test is visibly skipped without it."""
    if not (_FOLDER / name).exists():
        pytest.skip("no samples of the vendor beside this checkout")
    return _FOLDER / name


@dataclass(frozen=True)
class Item:
    """A tensor to be dumped: its bytes and what the header says of them."""

    data: bytes
    element_type: str
    shape: tuple[int, ...]
    format: str = "ND"
    original: tuple[int, ...] = ()
    groups: int = 0
    address: int = 0
    size: int | None = None
    origin: str = ""


def item(array: Array, **about: object) -> Item:
    """A tensor with the type and shape of an array."""
    array = np.asarray(array)
    return Item(array.tobytes(), _TYPES[array.dtype.name], array.shape, **about)  # type: ignore[arg-type]


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def field(number: int, value: int | bytes) -> bytes:
    """One field of a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value) if value else b""
    return varint(number << 3 | 2) + varint(len(value)) + value


def _shape(shape: Sequence[int]) -> bytes:
    return field(1, b"".join(map(varint, shape))) if shape else b""


def _tensor(found: Item, numbers: Mapping[str, int], *, output: bool) -> bytes:
    size = len(found.data) if found.size is None else found.size
    return b"".join([
        field(1, ELEMENT_TYPES.index(found.element_type)), field(2, FORMAT_NUMBERS[found.format]),
        field(3, _shape(found.shape)),
        field(4, field(1, found.origin.encode())) if output and found.origin else b"",
        field(numbers["size"], size),
        field(numbers["original"], _shape(found.original)) if found.original else b"",
        field(numbers["groups"], found.groups), field(numbers["address"], found.address),
    ])  # fmt: skip


def write_dump(
    path: Path,
    outputs: Sequence[Item] = (),
    inputs: Sequence[Item] = (),
    *,
    op_name: str = "",
    attribute: str = "",
    buffers: Sequence[bytes] = (),
) -> Path:
    """Write one dump file."""
    header = field(1, b"2.0") + field(2, TIME)
    header += b"".join(field(3, _tensor(found, _OUTPUT, output=True)) for found in outputs)
    header += b"".join(field(4, _tensor(found, _INPUT, output=False)) for found in inputs)
    header += b"".join(field(5, field(3, len(data))) for data in buffers)
    header += field(6, op_name.encode()) if op_name else b""
    header += field(7, field(1, b"slices") + field(2, attribute.encode())) if attribute else b""
    body = b"".join(found.data for found in (*inputs, *outputs)) + b"".join(buffers)
    path.write_bytes(struct.pack("<Q", len(header)) + header + body)
    return path


def write_dumps(folder: Path, tensors: Mapping[str, Array], *, op_type: str = "Op") -> Path:
    """Write one operator per array, each with one output, in the order given."""
    folder.mkdir(exist_ok=True)
    for place, (op, array) in enumerate(tensors.items()):
        write_dump(folder / f"{op_type}.{op}.{place}.1.{TIME + place}", [item(array)], op_name=op)
    return folder


def small_dump(path: Path, array: Array) -> Path:
    """Write a dump of the small variant, with one float32 output."""
    shape = struct.pack(f"<{array.ndim}Q", *array.shape)
    parts = struct.pack("<II", 0, len(shape)) + shape + struct.pack("<II", 2, 4) + b"op\0\0"
    entry = struct.pack("<6i3QI", 0, 2, 0, 0, 0, 2, 64, 0, array.nbytes, len(parts)) + parts
    block = struct.pack("<I", 1) + entry
    header = b"\x5a" * 4 + struct.pack("<III", 1, 5, len(block)) + block
    path.write_bytes(struct.pack("<Q", len(header)) + header + array.tobytes())
    return path
