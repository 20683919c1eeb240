"""The numbers of a layer: stored blobs as arrays, checked against their shapes before anything is allocated."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from roundoff.core.array_files import MAX_AXES
from roundoff.core.tensors import Array, DType
from roundoff.core.text_proto import Entry, TextMessage, TextValue
from roundoff.errors import BadInput

__all__ = ["blob_array", "blob_message", "same_shape"]

_LEGACY = ("num", "channels", "height", "width")
_STORED = {"data": np.float32, "double_data": np.float64, "int32_data": np.int32, "uint64_data": np.uint64}
_RAW: Mapping[str, DType] = {"FLOAT": np.dtype("<f4"), "FLOAT16": np.dtype("<f2"), "DOUBLE": np.dtype("<f8")}


def blob_array(blob: TextMessage, *, owner: str) -> Array:
    """The values of a stored blob in their shape: float32, or the integers of a deployed net.

    Args:
        blob: A BlobProto.
        owner: Whose blob it is, as the start of a sentence.

    Raises:
        BadInput: It holds no values, or other ones than its shape asks for.
    """
    values, shape = _values(blob, owner=owner), _shape(blob)
    if len(shape) > MAX_AXES or any(size < 0 for size in shape) or math.prod(shape) != values.size:
        stored = f"{values.size} values are stored" if values.size else "no values are stored"
        what = f"{owner} has the shape {'x'.join(map(str, shape)) or 'of a single number'}, but {stored}."
        raise BadInput(what, fix="copy the .caffemodel again, or save it again with its framework")
    return values.reshape(shape)


def _values(blob: TextMessage, *, owner: str) -> Array:
    kinds = [name for name in (*_STORED, "int8_data", "raw_data") if name in blob]
    if len(kinds) > 1:
        what = f"{owner} holds values of several types: {', '.join(kinds)}."
        raise BadInput(what, fix="save the .caffemodel again")
    if not kinds:
        return np.empty(0, np.float32)
    kind = kinds[0]
    if kind == "int8_data":
        raw = blob.get(kind)
        return np.frombuffer(raw if isinstance(raw, bytes) else b"", np.int8)
    if kind == "raw_data":
        return _raw(blob, owner=owner)
    dtype = _STORED[kind]
    parts = [np.asarray(part).reshape(-1) for part in blob.all(kind)]
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
    # Caffe computes in float32 whatever the file holds.
    return whole.astype(np.float32 if kind == "double_data" else dtype, copy=False)


def _raw(blob: TextMessage, *, owner: str) -> Array:
    """Values in one piece of bytes."""
    dtype = _RAW.get(str(blob.get("raw_data_type")))
    raw = blob.get("raw_data")
    if dtype is None or not isinstance(raw, bytes) or len(raw) % dtype.itemsize:
        what = f"{owner} has raw values of a type or length that cannot be read."
        raise BadInput(what, fix="save the .caffemodel again with float values")
    return np.frombuffer(raw, dtype).astype(np.float32, copy=False)


def _shape(blob: TextMessage) -> tuple[int, ...]:
    """The shape as it is given now, or by four numbers as it was before."""
    shape = blob.message("shape")
    if shape is None and any(name in blob for name in _LEGACY):
        return tuple(_whole(blob.get(name, 0)) for name in _LEGACY)
    return () if shape is None else tuple(_whole(size) for size in shape.all("dim"))


def _whole(value: "TextValue | None") -> int:
    return value if isinstance(value, int) else -1


def same_shape(stored: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether a stored blob has a shape: before shapes had any number of axes, ones stood in front."""
    return _bare(stored) == _bare(wanted)


def _bare(shape: Sequence[int]) -> tuple[int, ...]:
    ones = next((place for place, size in enumerate(shape) if size != 1), len(shape))
    return tuple(shape[ones:])


def blob_message(values: Array) -> TextMessage:
    """A blob to be stored: float32, or int8, int32 and uint64 as the vendor's deployed nets have them."""
    shape = Entry("shape", TextMessage(tuple(Entry("dim", int(size)) for size in values.shape)))
    match values.dtype.name:
        case "int8":
            return TextMessage((shape, Entry("int8_data", values.tobytes())))
        case "int32":
            return TextMessage((shape, Entry("int32_data", values.ravel())))
        case "uint64":
            return TextMessage((shape, Entry("uint64_data", values.ravel())))
        case _:
            return TextMessage((shape, Entry("data", np.ascontiguousarray(values, np.float32).ravel())))
