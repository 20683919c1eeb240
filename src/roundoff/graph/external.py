"""Checking where a model keeps its weights outside its file, before anything opens those files."""

import math
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.element_types import by_number
from roundoff.graph.wiring import subgraphs

__all__ = [
    "check_external_data",
    "declared_outside",
    "external_bytes",
    "inside_bytes",
    "is_external",
    "stored_bytes",
    "weight_tensors",
]


def weight_tensors(proto: Any) -> Iterator[Any]:
    """Every `onnx.TensorProto` of a model, in subgraphs and functions too."""
    yield from _of_graph(proto.graph)
    for function in proto.functions:
        yield from _of_nodes(function.node)


def _of_graph(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for graph in subgraphs(node):
            yield from _of_graph(graph)


def check_external_data(proto: Any, folder: Path) -> None:
    """Refuse external data that lies outside `folder`, is missing, or ends too early.

    Raises:
        BadInput: Naming the tensor and the file.
    """
    for tensor in weight_tensors(proto):
        if is_external(tensor):
            _check_tensor(tensor, folder)


def external_bytes(proto: Any) -> int:
    """Size of all weights that lie outside the model's file."""
    return sum(stored_bytes(tensor) for tensor in weight_tensors(proto) if is_external(tensor))


def inside_bytes(proto: Any) -> int:
    """Size of the weights of the main graph that lie in the model's file, or would when it is written."""
    return sum(stored_bytes(tensor) for tensor in proto.graph.initializer if not is_external(tensor))


def is_external(tensor: Any) -> bool:
    """Whether a tensor's values lie outside the model's file."""
    return bool(tensor.data_location == tensor.EXTERNAL)


def _check_tensor(tensor: Any, folder: Path) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    owner = f"Tensor {tensor.name!r}"
    location = entries.get("location", "")
    if not location:
        raise BadInput(f"{owner} has external data, but no file is named.", fix="export the model again")
    path = _inside(folder, location, owner=owner)
    size = _size(path, owner=owner, fix=f"copy {location!r} from where the model comes from into {folder}")
    offset = _number(entries, "offset", owner=owner)
    length = _number(entries, "length", owner=owner)
    needed = stored_bytes(tensor)
    if length and length < needed:
        what = f"{owner} needs {needed} bytes, but only {length} bytes of {path} are set aside for it."
        raise BadInput(what, fix="export the model again")
    end = offset + max(needed, length)
    if end > size:
        raise BadInput(
            f"{owner} ends at byte {end} of {path}, which has only {size} bytes.",
            fix="copy the file again, it is cut short or belongs to another model",
        )


def _inside(folder: Path, location: str, *, owner: str) -> Path:
    """The file of a location, if it stays in the folder also after following links."""
    path = folder / location
    leaves = "\0" in location or Path(location).is_absolute() or "\\" in location
    if leaves or not path.resolve().is_relative_to(folder.resolve()):
        raise BadInput(
            f"{owner} keeps its values in {location!r}, outside of the model's folder {folder}.",
            fix="put the file itself (not a link) next to the model and save the model with that location",
        )
    return path


def _size(path: Path, *, owner: str, fix: str) -> int:
    """Size of a regular file; a pipe would be waited for without end."""
    try:
        status = path.stat()
        reason = "" if stat.S_ISREG(status.st_mode) else "is a folder, a pipe or a device, not a file"
    except FileNotFoundError:
        reason = "does not exist"
    except OSError as error:
        reason = f"cannot be opened: {error.strerror}"
    if reason:
        raise BadInput(f"{owner} keeps its values in {path}, which {reason}.", fix=fix)
    return status.st_size


def _number(entries: dict[str, str], key: str, *, owner: str) -> int:
    text = entries.get(key, "0")
    if not text.isascii() or not text.isdigit():
        what = f"{owner} has the external data {key} {text!r}, which is not a number of bytes."
        raise BadInput(what, fix="export the model again")
    return int(text)


def stored_bytes(tensor: Any) -> int:
    """Bytes a tensor's values take in a file, by its type and shape; the values are not touched."""
    kind = by_number(tensor.data_type)
    return -(-math.prod(tensor.dims) * kind.bits // 8) if kind else 0


def declared_outside(name: str, values: Array) -> Any:
    """An initializer without its values, which a session is to be given beside the model; see `Taps`."""
    from onnx import TensorProto
    from onnx.helper import np_dtype_to_tensor_dtype

    number = np_dtype_to_tensor_dtype(values.dtype)
    declared = TensorProto(name=name, dims=values.shape, data_type=number, data_location=TensorProto.EXTERNAL)
    declared.external_data.add(key="location", value=name)
    return declared
