"""Files of torch.save: one tensor, or a dictionary of tensors, read without torch and without unpickling more.

The archive holds a pickle that says which tensors there are, and their values as plain bytes beside it.
"""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from roundoff.core.array_files import Member, Unreadable, check_shape, list_members
from roundoff.core.names import shown
from roundoff.core.tensors import Array, TensorInfo, TensorSource, as_values, parse_dtype
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.tensors.folders import CERTAIN
from roundoff.tensors.pickled import StoredTorch, read_torch
from roundoff.tensors.sources import ANY_RUN, RunSelection
from roundoff.tensors.stored import Content, StoredSource, TensorFile

SUFFIXES = (".pt", ".pth")
_MOST_PICKLE_BYTES = 2**24
_PICKLE = "data.pkl"
_EXPORT = english(
    "save tensors: torch.save({{name: tensor}}, path); a module is exported with torch.onnx.export, and its "
    "activations are captured with roundoff.torch.capture"
)


def sniff(path: Path) -> int:
    """Score how well a path fits: a file of torch.save."""
    return CERTAIN if path.is_file() and path.suffix.lower() in SUFFIXES else 0


def open(  # noqa: A001 - every format has an `open`
    path: Path, shapes: Sequence[TensorInfo] | None = None, run: RunSelection = ANY_RUN
) -> TensorSource:
    """Open a file with one tensor, named by the file's stem, or with a dictionary of them."""
    run.found((), path)
    if path.is_dir():
        raise BadInput(english("{path} holds no tensors.", path=path), fix=_EXPORT)
    try:
        members, content = _archive(path)
    except Unreadable as error:
        what = english("{path} {problem}.", path=path, problem=error.problem)
        raise BadInput(what, fix=_EXPORT) from error
    named = {path.stem: content} if isinstance(content, StoredTorch) else _flat(content)
    if not named:
        raise BadInput(english("{path} holds no tensors.", path=path), fix=_EXPORT)
    stored = [
        TensorFile(name, "", shown(path), functools.partial(_content, members, each))
        for name, each in named.items()
    ]
    return StoredSource(stored, label=shown(path))


def _flat(content: object, before: str = "") -> dict[str, StoredTorch]:
    found: dict[str, StoredTorch] = {}
    pairs = content.items() if isinstance(content, dict) else ()
    for name, value in pairs:
        if isinstance(value, StoredTorch):
            found[f"{before}{name}"] = value
        elif isinstance(value, dict):
            found |= _flat(value, f"{before}{name}.")
    return found


def probe(path: Path) -> Content:
    """What a file with one tensor holds."""
    members, content = _archive(path)
    if not isinstance(content, StoredTorch):
        raise Unreadable(english("holds more than one tensor"))
    return _content(members, content)


def _archive(path: Path) -> tuple[dict[str, Member], object]:
    members = {member.name.partition("/")[2]: member for member in list_members(path)}
    pickle = members.get(_PICKLE)
    if pickle is None:
        raise Unreadable(english("is no archive of torch.save"))
    if pickle.size > _MOST_PICKLE_BYTES:
        raise Unreadable(english("names absurdly many tensors"))
    if "byteorder" in members and members["byteorder"].head(8) == b"big":
        raise Unreadable(english("was written on a machine of another byte order"))
    return members, read_torch(bytes(pickle.content()))


def _content(members: dict[str, Member], tensor: StoredTorch) -> Content:
    dtype = parse_dtype(tensor.dtype)
    check_shape(dtype, tensor.shape)
    member = members.get(f"data/{tensor.key}")
    last = tensor.offset + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride, strict=True))
    needed = (last + 1) * dtype.itemsize if 0 not in tensor.shape else 0
    if member is None or member.size < needed:
        there = 0 if member is None else member.size
        raise Unreadable(
            english("truncated: {there} of {needed} bytes", there=there, needed=needed),
            dtype=dtype.name,
            shape=tensor.shape,
        )

    def load() -> Array:
        values = member.content()
        flat = values[: values.size // dtype.itemsize * dtype.itemsize].view(dtype)
        steps = tuple(step * dtype.itemsize for step in tensor.stride)
        if 0 in tensor.shape:
            return np.zeros(tensor.shape, dtype)
        view = np.lib.stride_tricks.as_strided(flat[tensor.offset :], tensor.shape, steps, writeable=False)
        return as_values(np.ascontiguousarray(view).reshape(tensor.shape))

    return Content(dtype.name, tensor.shape, load)
