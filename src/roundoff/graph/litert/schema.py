"""What a .tflite file holds: tensors with their scales, and operators with their options.

The file is a FlatBuffer; its tables are read with the flatbuffers package by the numbers that the schema gives
their fields.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roundoff.core.files import reading, regular_file
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.messages.message import english

_IDENTIFIER = b"TFL3"
_TYPES = {
    0: "float32", 1: "float16", 2: "int32", 3: "uint8", 4: "int64", 6: "bool", 7: "int16", 9: "int8",
    10: "float64",
}  # fmt: skip
_OPERATIONS = {
    0: "ADD", 1: "AVERAGE_POOL_2D", 2: "CONCATENATION", 3: "CONV_2D", 4: "DEPTHWISE_CONV_2D", 5: "DEPTH_TO_SPACE",
    6: "DEQUANTIZE", 9: "FULLY_CONNECTED", 14: "LOGISTIC", 17: "MAX_POOL_2D", 18: "MUL", 19: "RELU", 21: "RELU6",
    22: "RESHAPE", 23: "RESIZE_BILINEAR", 25: "SOFTMAX", 26: "SPACE_TO_DEPTH", 28: "TANH", 34: "PAD", 36: "GATHER",
    39: "TRANSPOSE", 40: "MEAN", 41: "SUB", 42: "DIV", 43: "SQUEEZE", 45: "STRIDED_SLICE", 47: "EXP", 49: "SPLIT",
    50: "LOG_SOFTMAX", 53: "CAST", 54: "PRELU", 55: "MAXIMUM", 56: "ARG_MAX", 57: "MINIMUM", 59: "NEG",
    60: "PADV2",
    65: "SLICE", 67: "TRANSPOSE_CONV", 70: "EXPAND_DIMS", 73: "LOG", 74: "SUM", 75: "SQRT", 76: "RSQRT", 78: "POW",
    82: "REDUCE_MAX", 83: "PACK", 92: "SQUARE", 97: "RESIZE_NEAREST_NEIGHBOR", 98: "LEAKY_RELU",
    99: "SQUARED_DIFFERENCE", 101: "ABS", 111: "ELU", 114: "QUANTIZE", 117: "HARD_SWISH", 126: "BATCH_MATMUL",
    150: "GELU",
}  # fmt: skip
"""The operators that are read, by their numbers in the schema."""
_BUILTIN, _CUSTOM = "builtin {number}", 32


@dataclass(frozen=True, slots=True)
class StoredScale:
    """Scales and zero points of a tensor, and the axis along which there are several."""

    scale: Array
    zero_point: Array
    axis: int


@dataclass(frozen=True, slots=True, eq=False)
class LiteTensor:
    """One tensor: its name, shape and type, its values where it is a constant, its scales where it has codes."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    values: Array | None
    scales: StoredScale | None


class LiteOptions:
    """The options of an operator, by the numbers of their fields."""

    def __init__(self, table: "_Table | None") -> None:
        self._table = table

    def integer(self, field: int, default: int = 0, *, byte: bool = False) -> int:
        """A number or a choice."""
        return default if self._table is None else int(self._table.scalar(field, "b" if byte else "i", default))

    def real(self, field: int, default: float = 0.0) -> float:
        """A real number."""
        return default if self._table is None else float(self._table.scalar(field, "f", default))


@dataclass(frozen=True, slots=True, eq=False)
class LiteOperator:
    """One operator: what it is, the places of what it reads (-1: nothing) and writes, and its options."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: LiteOptions


@dataclass(frozen=True, slots=True, eq=False)
class LiteModel:
    """The first subgraph of a file."""

    tensors: Sequence[LiteTensor]
    operators: Sequence[LiteOperator]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    size: int


UNREADABLE = (struct.error, ArithmeticError, LookupError, ValueError, TypeError, MemoryError)
"""What reading a damaged file ends in."""


def damaged_file(path: Path, count: int) -> BadInput:
    """That a file cannot be read."""
    return BadInput(
        english("{path} is no .tflite model, or is cut short or damaged ({count} bytes).", path=path, count=count),
        fix=english("copy or convert the model again"),
    )


def read_lite(path: Path) -> LiteModel:
    """Read a .tflite file.

    Raises:
        BadInput: It is missing, no such file, cut short or damaged.
    """
    regular_file(path, what=english("The model"))
    with reading(path, what=english("The model")):
        data = path.read_bytes()
    damaged = damaged_file(path, len(data))
    if data[4:8] != _IDENTIFIER:
        raise damaged
    try:
        return _model(data)
    except UNREADABLE as error:
        raise damaged from error


def _model(data: bytes) -> LiteModel:
    root = _Table(data, struct.unpack_from("<I", data)[0])
    codes = [_operation(each) for each in root.tables(1)]
    buffers = root.tables(4)
    graph = root.tables(2)[0]
    tensors = [_tensor(each, buffers) for each in graph.tables(0)]
    operators = []
    for each in graph.tables(3):
        inputs, outputs = (tuple(int(place) for place in each.vector(field, "int32")) for field in (1, 2))
        if any(not -1 <= place < len(tensors) for place in inputs) or any(
            not 0 <= place < len(tensors) for place in outputs
        ):
            raise ValueError("an operator reads what is not there")
        name = codes[int(each.scalar(0, "I", 0))]
        operators.append(LiteOperator(name, inputs, outputs, LiteOptions(each.table(4))))
    ends = [tuple(int(place) for place in graph.vector(field, "int32")) for field in (1, 2)]
    if any(not 0 <= place < len(tensors) for places in ends for place in places):
        raise ValueError("an input or output is not there")
    return LiteModel(tensors, operators, ends[0], ends[1], len(data))


def _operation(code: "_Table") -> str:
    number = max(int(code.scalar(0, "b", 0)), int(code.scalar(3, "i", 0)))
    if number == _CUSTOM:
        return code.text(1) or "CUSTOM"
    return _OPERATIONS.get(number, _BUILTIN.format(number=number))


def _tensor(table: "_Table", buffers: Sequence["_Table"]) -> LiteTensor:
    shape = tuple(int(axis) for axis in table.vector(0, "int32"))
    dtype = _TYPES.get(int(table.scalar(1, "b", 0)), "")
    values = None
    place = int(table.scalar(2, "I", 0))
    stored = buffers[place].vector(0, "uint8") if 0 < place < len(buffers) else np.zeros(0, np.uint8)
    if stored.size and dtype:
        values = np.frombuffer(stored.tobytes(), np.dtype(dtype).newbyteorder("<"))
        values = values.astype(dtype).reshape(shape)
    return LiteTensor(table.text(3), shape, dtype, values, _scales(table.table(4)))


def _scales(table: "_Table | None") -> StoredScale | None:
    if table is None:
        return None
    scale, zero = table.vector(2, "float32"), table.vector(3, "int64")
    if not scale.size or not np.isfinite(scale).all() or (scale <= 0).any():
        return None
    zero = zero if zero.size == scale.size else np.zeros(scale.size, np.int64)
    return StoredScale(scale, zero, int(table.scalar(6, "i", 0)))


class _Table:
    """One table of the file; a field that is not there has its default."""

    def __init__(self, data: bytes, place: int) -> None:
        from flatbuffers.table import Table

        if not 0 <= place < len(data):
            raise IndexError(place)
        self._data, self._table = data, Table(data, place)

    def scalar(self, field: int, kind: str, default: float) -> float:
        found = self._offset(field)
        return default if not found else struct.unpack_from("<" + kind, self._data, self._table.Pos + found)[0]

    def vector(self, field: int, dtype: str) -> Array:
        found = self._offset(field)
        if not found:
            return np.zeros(0, dtype)
        count, start = self._table.VectorLen(found), self._table.Vector(found)
        if start + count * np.dtype(dtype).itemsize > len(self._data):
            raise IndexError(count)
        return np.frombuffer(self._data, np.dtype(dtype).newbyteorder("<"), count, start).astype(dtype)

    def text(self, field: int) -> str:
        return bytes(self.vector(field, "uint8")).decode("utf-8", "replace")

    def table(self, field: int) -> "_Table | None":
        found = self._offset(field)
        return _Table(self._data, self._table.Indirect(self._table.Pos + found)) if found else None

    def tables(self, field: int) -> list["_Table"]:
        found = self._offset(field)
        if not found:
            return []
        start = self._table.Vector(found)
        count = self.vector(field, "uint32").size
        return [_Table(self._data, self._table.Indirect(start + 4 * at)) for at in range(count)]

    def _offset(self, field: int) -> int:
        return int(self._table.Offset(4 + 2 * field))
