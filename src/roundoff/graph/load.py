"""Loading a model: the graph is read and checked, weights outside the file stay there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roundoff.core.files import reading, regular_file
from roundoff.core.model_files import caffe_pair, is_caffe
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.external import check_external_data, external_bytes
from roundoff.graph.naming import name_nodes
from roundoff.graph.wiring import is_sorted, sort_nodes

__all__ = ["Model", "checked_model", "load_model", "model_from_proto"]

# The format behind ONNX cannot hold more in one file; larger models keep their weights beside it.
_LARGEST_FILE_BYTES = 2**31 - 1
_LFS_POINTER = b"version https://git-lfs"
_RE_EXPORT = "check that the file is an ONNX model and was copied whole; export it again if need be"


@dataclass(frozen=True, slots=True)
class Model:
    """A model as loaded: every node has a name of its own, and nodes stand in execution order.

    Attributes:
        proto: The `onnx.ModelProto`; values of external data are not loaded. Treat it as read-only.
        path: The file it came from.
        file_bytes: Size of that file.
        renamed: Names that several nodes had in it, each with the new names of all but the first.
        beside: Values of initializers that it only declares, by name; see `roundoff.graph.beside`.
    """

    proto: Any
    path: Path
    file_bytes: int
    renamed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    beside: Mapping[str, Array] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where the file lies; locations of external data are relative to it."""
        return self.path.absolute().parent

    @property
    def weight_bytes(self) -> int:
        """Size of the file and of all external data."""
        return self.file_bytes + external_bytes(self.proto)


def load_model(path: Path | str) -> Model:
    """Read an ONNX model, or a Caffe net as one; what a net loses by that is told by a logger.

    Args:
        path: The .onnx file; or a .prototxt, alone or as ``net.prototxt,net.caffemodel``.

    Raises:
        BadInput: The file is missing, damaged, not such a model, or refers to external data that is missing,
            too short or outside of its folder.
    """
    file = Path(path)
    if is_caffe(file):
        from roundoff.graph.caffe.importing import import_caffe
        from roundoff.graph.caffe.telling import tell

        imported = import_caffe(*caffe_pair(file))
        tell(imported)
        return imported.model
    proto, size = _parse(file)
    return checked_model(proto, path=file, size=size)


def model_from_proto(proto: Any, *, path: Path) -> Model:
    """A model that is in memory already, as `load_model` gives it.

    Args:
        proto: The `onnx.ModelProto`; it is copied.
        path: What to call it; external data is looked for in that folder.

    Raises:
        BadInput: It is no usable model, or its external data is missing.
    """
    copy = type(proto)()
    copy.CopyFrom(proto)
    return checked_model(copy, path=path, size=copy.ByteSize())


def checked_model(proto: Any, *, path: Path, size: int) -> Model:
    """A model of which nothing else is kept: nodes are named and sorted in place.

    Args:
        proto: The `onnx.ModelProto`; it is changed.
        path: What to call it.
        size: Bytes of its file.

    Raises:
        BadInput: It cannot be run.
    """
    graph = proto.graph
    if not proto.HasField("graph") or not graph.output:
        lacks = "outputs" if graph.node else "graph"
        raise BadInput(f"{path} is not a usable ONNX model: it has no {lacks}.", fix=_RE_EXPORT)
    _check_names(graph, path)
    renamed = name_nodes(graph)
    if not is_sorted(graph) and not sort_nodes(graph):
        what = f"The nodes of {path} depend on one another in a circle, so the model cannot be run."
        raise BadInput(what, fix="export the model again")
    check_external_data(proto, path.absolute().parent)
    return Model(proto, path, size, renamed)


def _parse(path: Path) -> tuple[Any, int]:
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    size = regular_file(path, what="The model")
    if size > _LARGEST_FILE_BYTES:
        raise BadInput(
            f"{path} has {size} bytes; one ONNX file can hold at most {_LARGEST_FILE_BYTES}.",
            fix="save the model with external data: onnx.save(model, path, save_as_external_data=True)",
        )
    if not size:
        raise BadInput(f"{path} is empty.", fix="copy or export the model again")
    with reading(path, what="The model"):
        data = path.read_bytes()
    if data.startswith(_LFS_POINTER):
        raise BadInput(f"{path} is a Git LFS pointer, not the model itself.", fix="git lfs pull")
    try:
        return ModelProto.FromString(data), size
    except DecodeError as error:
        what = f"{path} is not an ONNX model, or is cut short or damaged ({len(data)} bytes)."
        raise BadInput(what, fix=_RE_EXPORT) from error


def _check_names(graph: Any, path: Path) -> None:
    """Refuse names that are not text; onnx hands them out as bytes, which nothing can look up or print."""
    values = (*graph.input, *graph.output, *graph.initializer)
    names = [value.name for value in values]
    for node in graph.node:
        names += (node.name, node.op_type, node.domain, *node.input, *node.output)
    for name in names:
        if not isinstance(name, str):
            raise BadInput(
                f"{path} holds the name {name!r}, which is not UTF-8 text.",
                fix="export the model again with names in UTF-8 (plain ASCII is safest)",
            )
