"""Loading a model: the graph is read and checked, weights outside the file stay there."""

import logging
import math
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from roundoff.core.files import caffe_pair, is_caffe, reading, regular_file
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.nodes import (
    STANDARD_DOMAINS,
    by_number,
    free_name,
    is_sorted,
    opset_of,
    sort_nodes,
    subgraphs,
)
from roundoff.messages.message import english

# Checking where a model keeps its weights outside its file, before anything opens those files.


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


def check_weights(proto: Any, path: Path) -> None:
    """Refuse weights of an unknown type or size, and external data elsewhere, missing, or ending too early.

    Args:
        proto: The model.
        path: Its file, in whose folder external data must lie; it may be a link, external data may not.

    Raises:
        BadInput: Naming the tensor and the file.
    """
    for tensor in weight_tensors(proto):
        _check_declared(tensor)
        if is_external(tensor):
            _check_external(tensor, path)


def _check_declared(tensor: Any) -> None:
    """Refuse a type that ONNX does not have, an axis below 0, and values that do not fill the shape."""
    if tensor.data_type not in tensor.DataType.values():
        why = english("is of the unknown type {number}", number=tensor.data_type)
    elif any(axis < 0 for axis in tensor.dims):
        why = english("has the shape {shape}", shape=list(tensor.dims))
    elif tensor.HasField("raw_data") and len(tensor.raw_data) != stored_bytes(tensor) and not is_external(tensor):
        wanted = stored_bytes(tensor)
        why = english("holds {got} bytes, its shape needs {wanted}", got=len(tensor.raw_data), wanted=wanted)
    else:
        return
    raise BadInput(
        english("Tensor {name!r} {why}.", name=tensor.name, why=why), fix=english("export the model again")
    )


def external_bytes(proto: Any) -> int:
    """Size of all weights that lie outside the model's file."""
    return sum(stored_bytes(tensor) for tensor in weight_tensors(proto) if is_external(tensor))


def inside_bytes(proto: Any) -> int:
    """Size of the weights of the main graph that lie in the model's file, or would when it is written."""
    return sum(stored_bytes(tensor) for tensor in proto.graph.initializer if not is_external(tensor))


_FLOAT_BYTES = 4


def float_bytes(model: "Model") -> int:
    """Size of the weights of the main graph, with codes as the floats that they stand for."""
    tensors = model.proto.graph.initializer
    return sum(max(_FLOAT_BYTES * math.prod(tensor.dims), stored_bytes(tensor)) for tensor in tensors)


def is_external(tensor: Any) -> bool:
    """Whether a tensor's values lie outside the model's file."""
    return bool(tensor.data_location == tensor.EXTERNAL)


def external_names(path: Path) -> tuple[str, ...]:
    """The files beside a model in which its weights lie, as it names them; none where it is no model."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        proto = onnx.load(str(path), load_external_data=False)
    except (DecodeError, OSError, ValueError):
        return ()
    named = {
        entry.value
        for tensor in weight_tensors(proto)
        if is_external(tensor)
        for entry in tensor.external_data
        if entry.key == "location" and entry.value != path.name
    }
    return tuple(sorted(named))


def _check_external(tensor: Any, model: Path) -> None:
    folder = model.parent
    entries = {entry.key: entry.value for entry in tensor.external_data}
    owner = english("Tensor {name!r}", name=tensor.name)
    location = entries.get("location", "")
    if not isinstance(location, str) or not location:
        raise BadInput(
            english("{owner} has external data, but no file is named.", owner=owner),
            fix=english("export the model again"),
        )
    path = model if location == model.name else _inside(folder, location, owner=owner)
    size = _size(
        path,
        owner=owner,
        fix=english(
            "copy {location!r} from where the model comes from into {folder}", location=location, folder=folder
        ),
    )
    offset = _number(entries, "offset", owner=owner)
    length = _number(entries, "length", owner=owner)
    needed = stored_bytes(tensor)
    if length and length < needed:
        what = english(
            "{owner} needs {needed} bytes, but only {length} bytes of {path} are set aside for it.",
            owner=owner,
            needed=needed,
            length=length,
            path=path,
        )
        raise BadInput(what, fix=english("export the model again"))
    end = offset + max(needed, length)
    if end > size:
        raise BadInput(
            english(
                "{owner} ends at byte {end} of {path}, which has only {size} bytes.",
                owner=owner,
                end=end,
                path=path,
                size=size,
            ),
            fix=english("copy the file again, it is cut short or belongs to another model"),
        )


def _inside(folder: Path, location: str, *, owner: str) -> Path:
    """The file of a location, if it stays in the folder also after following links."""
    path = folder / location
    leaves = "\0" in location or Path(location).is_absolute() or "\\" in location
    if leaves or not path.resolve().is_relative_to(folder.resolve()):
        raise BadInput(
            english(
                "{owner} keeps its values in {location!r}, outside of the model's folder {folder}.",
                owner=owner,
                location=location,
                folder=folder,
            ),
            fix=english(
                "put the file itself (not a link) next to the model and save the model with that location"
            ),
        )
    return path


def _size(path: Path, *, owner: str, fix: str) -> int:
    """Size of a regular file; a pipe would be waited for without end."""
    try:
        status = path.stat()
        reason = "" if stat.S_ISREG(status.st_mode) else english("is a folder, a pipe or a device, not a file")
    except FileNotFoundError:
        reason = english("does not exist")
    except OSError as error:
        reason = english("cannot be opened: {strerror}", strerror=error.strerror)
    if reason:
        raise BadInput(
            english("{owner} keeps its values in {path}, which {reason}.", owner=owner, path=path, reason=reason),
            fix=fix,
        )
    return status.st_size


# No file has more bytes.
_MOST_DIGITS = 20


def _number(entries: dict[str, str], key: str, *, owner: str) -> int:
    text = entries.get(key, "0")
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        what = english(
            "{owner} has the external data {key} {text!r}, which is not a number of bytes.",
            owner=owner,
            key=key,
            text=text[:_MOST_DIGITS],
        )
        raise BadInput(what, fix=english("export the model again"))
    return int(text)


def stored_bytes(tensor: Any) -> int:
    """Bytes a tensor's values take in a file, by its type and shape; the values are not touched."""
    kind = by_number(tensor.data_type)
    return -(-math.prod(tensor.dims) * kind.bits // 8) if kind else 0


def declared_outside(name: str, values: Array, model: "Model | None" = None) -> Any:
    """An initializer without its values, which a session is to be given beside the model; see `TappedModel`.

    Args:
        name: Its name.
        values: What it will be given.
        model: The model it is for. onnxruntime takes values where they are only for what could be read, too, and
            looks whether the file is there; so the model's own is named where there is one.
    """
    from onnx import TensorProto
    from onnx.helper import np_dtype_to_tensor_dtype

    number = np_dtype_to_tensor_dtype(values.dtype)
    declared = TensorProto(name=name, dims=values.shape, data_type=number, data_location=TensorProto.EXTERNAL)
    there = model is not None and model.path.is_file()
    declared.external_data.add(key="location", value=model.path.name if there and model is not None else name)
    return declared


# Names: a unique one for every node.


def name_nodes(graph: Any) -> dict[str, tuple[str, ...]]:
    """Give nodes without a name of their own the name ``<OpType>_<index in the graph>``.

    The first of several nodes with one name keeps it. Where the new name is taken, ``_2``, ``_3`` ... follows.

    Returns:
        Names that several nodes had, each with the new names of all but the first.
    """
    taken = {node.name for node in graph.node}
    seen: set[str] = set()
    renamed: dict[str, tuple[str, ...]] = {}
    for index, node in enumerate(graph.node):
        if not node.name or node.name in seen:
            name = free_name(f"{node.op_type}_{index}", taken)
            if node.name:
                renamed[node.name] = (*renamed.get(node.name, ()), name)
            node.name = name
        seen.add(node.name)
    return renamed


# The format behind ONNX cannot hold more in one file; larger models keep their weights beside it.
_LARGEST_FILE_BYTES = 2**31 - 1
_LFS_POINTER = b"version https://git-lfs"
_RE_EXPORT = english("check that the file is an ONNX model and was copied whole; export it again if need be")


@dataclass(frozen=True, slots=True)
class Model:
    """A model as loaded: every node has a name of its own, and nodes stand in execution order.

    Attributes:
        proto: The `onnx.ModelProto`; values of external data are not loaded. Treat it as read-only.
        path: The file it came from.
        file_bytes: Size of that file, without weights that stay in it; see `MAPPED_BYTES`.
        renamed: Names that several nodes had in it, each with the new names of all but the first.
        beside: Values of initializers that it only declares, by name; see `roundoff.graph.save`.
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
    """Read an ONNX model, or a Caffe net, a LiteRT or an OpenVINO model as one.

    Args:
        path: The .onnx, .tflite or .xml file; or a .prototxt, alone or as ``net.prototxt,net.caffemodel``.

    Raises:
        BadInput: The file is missing, damaged, not such a model, or refers to external data that is missing,
            too short or outside of its folder.
    """
    file = Path(path)
    if is_caffe(file):
        from roundoff.graph.caffe.convert import import_caffe, tell

        imported = import_caffe(*caffe_pair(file))
        tell(imported)
        return imported.model
    if file.suffix.lower() == LITERT:
        from roundoff.graph.litert.convert import import_lite

        return import_lite(file)
    if file.suffix.lower() == OPENVINO:
        from roundoff.graph.openvino import import_openvino

        return import_openvino(file)
    proto, size = _parse(file)
    for entry in proto.metadata_props:
        if entry.key == DRAWN_KEY:
            _LOGGER.warning("%s: %s", file, drawn_text(entry.value))
    return checked_model(proto, path=file, size=size)


LITERT, OPENVINO = ".tflite", ".xml"
_LOGGER = logging.getLogger("roundoff.graph")
DRAWN_KEY = "roundoff.caffe.random_weights"
"""A model whose net had no numbers says so under this key, in its file too."""


def drawn_text(count: int | str) -> str:
    """That numbers of a model mean nothing."""
    return english(
        "the numbers of {count} layers were drawn at random: scores say nothing of a trained net", count=count
    )


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
        raise BadInput(
            english("{path} is not a usable ONNX model: it has no {lacks}.", path=path, lacks=lacks),
            fix=_RE_EXPORT,
        )
    _check_names(graph, path)
    renamed = name_nodes(graph)
    _check_arity(proto, path)
    if not is_sorted(graph) and not sort_nodes(graph):
        what = english(
            "The nodes of {path} depend on one another in a circle, so the model cannot be run.", path=path
        )
        raise BadInput(what, fix=english("export the model again"))
    check_weights(proto, path.absolute())
    return Model(proto, path, size, renamed)


def _foreign(path: Path) -> tuple[str, str] | None:
    """What a file of another tool is, and what to do."""
    from roundoff.core.files import foreign_file

    return foreign_file(path)


def _parse(path: Path) -> tuple[Any, int]:
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    size = regular_file(path, what=english("The model"))
    if path.suffix != ".onnx" and (foreign := _foreign(path)) is not None:
        raise BadInput(english("{path} is {what}, no ONNX model.", path=path, what=foreign[0]), fix=foreign[1])
    if size > _LARGEST_FILE_BYTES:
        raise BadInput(
            english(
                "{path} has {size} bytes; one ONNX file can hold at most {largest_file_bytes}.",
                path=path,
                size=size,
                largest_file_bytes=_LARGEST_FILE_BYTES,
            ),
            fix=english("save the model with external data: onnx.save(model, path, save_as_external_data=True)"),
        )
    if not size:
        raise BadInput(english("{path} is empty.", path=path), fix=english("copy or export the model again"))
    if size >= MAPPED_BYTES and (light := _mapped(path, size)) is not None:
        return light, light.ByteSize()
    with reading(path, what=english("The model")):
        data = path.read_bytes()
    if data.startswith(_LFS_POINTER):
        raise BadInput(
            english("{path} is a Git LFS pointer, not the model itself.", path=path), fix=english("git lfs pull")
        )
    try:
        return ModelProto.FromString(data), size
    except DecodeError as error:
        what = english(
            "{path} is not an ONNX model, or is cut short or damaged ({count} bytes).", path=path, count=len(data)
        )
        raise BadInput(what, fix=_RE_EXPORT) from error


# Large models: values of weights stay in the file and are mapped from there, like external data. Read, they
# would be in memory as bytes, as a message, and once more in each session.

MAPPED_BYTES = 64 * 2**20
"""Files from this size on keep their weights; below, a few copies of them are cheaper than care."""
_SMALLEST_MAPPED_BYTES = 2**16
_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW_DATA = 7, 5, 9
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
# Types of numpy itself: what a session takes as it is.
_PLAIN_TYPES = frozenset({"float16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "int64"})


def _mapped(path: Path, size: int) -> Any | None:
    """The model without values of large weights, which are declared to lie in its own file; None if damaged."""
    import mmap

    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    proto = ModelProto()
    with reading(path, what=english("The model")), path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        for field_number, begin, start, end in _fields(data, 0, size):
            if field_number != _MODEL_GRAPH:
                proto.MergeFromString(data[begin:end])
                continue
            for number, first, inner, last in _fields(data, start, end):
                if number == _GRAPH_INITIALIZER:
                    _add_mapped(proto.graph.initializer.add(), data, inner, last, location=path.name)
                else:
                    proto.graph.MergeFromString(data[first:last])
    except (DecodeError, IndexError, ValueError):
        return None
    finally:
        data.close()
    return proto


def _add_mapped(tensor: Any, data: Any, start: int, end: int, *, location: str) -> None:
    """Read a tensor; large values are left where they are."""
    values: list[tuple[int, int]] = []
    for number, begin, inner, last in _fields(data, start, end):
        if number == _TENSOR_RAW_DATA and last - inner >= _SMALLEST_MAPPED_BYTES:
            values.append((inner, last))
        else:
            tensor.MergeFromString(data[begin:last])
    kind = by_number(tensor.data_type)
    plain = kind is not None and kind.bits >= 8 and kind.dtype in _PLAIN_TYPES
    for inner, last in values[-1:]:  # the last one counts, as for every reader of the format
        if plain and not is_external(tensor) and last - inner == stored_bytes(tensor):
            tensor.data_location = tensor.EXTERNAL
            for key, value in (("location", location), ("offset", inner), ("length", last - inner)):
                tensor.external_data.add(key=key, value=str(value))
        else:
            tensor.raw_data = data[inner:last]


def _fields(data: Any, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Fields of a message: number, where the field begins, where its content begins, where it ends."""
    at = start
    while at < end:
        begin = at
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        content = at
        if wire == _VARINT:
            _, at = _varint(data, at)
        elif wire == _BYTES:
            length, content = _varint(data, at)
            at = content + length
        elif wire in (_FIXED_32, _FIXED_64):
            at += 4 if wire == _FIXED_32 else 8
        else:
            raise ValueError(wire)
        if at > end:
            raise ValueError(at)
        yield number, begin, content, at


def _varint(data: Any, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError(shift)


def _check_names(graph: Any, path: Path) -> None:
    """Refuse outputs of one name, and names that are no text: onnx gives those as bytes, which none can print."""
    values = (*graph.input, *graph.output, *graph.initializer)
    names = [value.name for value in values]
    for node in graph.node:
        names += (node.name, node.op_type, node.domain, *node.input, *node.output)
    for name in names:
        if not isinstance(name, str):
            raise BadInput(
                english("{path} holds the name {name!r}, which is not UTF-8 text.", path=path, name=name),
                fix=english("export the model again with names in UTF-8 (plain ASCII is safest)"),
            )
    outputs = [value.name for value in graph.output]
    if twice := next((name for at, name in enumerate(outputs) if name in outputs[:at]), None):
        what = english("{path} has two outputs of the name {name!r}.", path=path, name=twice)
        raise BadInput(what, fix=english("remove one of them from the graph's outputs, and save it again"))


# Refusing nodes that lack the inputs or outputs their operation must have, before anything looks for them.

# Operators that onnx does not know.
_NEEDED = {
    "HzCalibration": 1,
    "FakeQuantize": 1,
    "Quant": 1,
    "AscendQuant": 1,
    "AscendQuantV2": 1,
    "AscendDequant": 1,
    "AscendAntiQuant": 1,
    "AscendWeightQuant": 1,
    "QuantizeLinear": 2,
    "DequantizeLinear": 2,
    "QGemm": 6,
    "DynamicQuantizeMatMul": 3,
    "MatMulIntegerToFloat": 4,
}
_OUTPUTS = {"DynamicQuantizeLinear": 3}


def _check_arity(proto: Any, path: Path) -> None:
    opset = opset_of(proto)
    for node in proto.graph.node:
        needed, optional = _needed(node.op_type, node.domain, opset)
        if len(node.input) < needed or not all(
            name or at in optional for at, name in enumerate(node.input[:needed])
        ):
            _refuse(
                path,
                node,
                english(
                    "has {count} {count:input|inputs}; it needs {needed}", count=len(node.input), needed=needed
                ),
            )
        outputs = _OUTPUTS.get(node.op_type, 1)
        if len(node.output) < outputs or not any(node.output):
            _refuse(
                path,
                node,
                english(
                    "has {count} {count:output|outputs}; it needs {outputs}",
                    count=len(node.output),
                    outputs=outputs,
                ),
            )


@cache
def _needed(op_type: str, domain: str, opset: int) -> tuple[int, frozenset[int]]:
    """How many inputs an operation must have, and which of these may be empty, as both counts of a Loop may."""
    from onnx import defs

    if domain in STANDARD_DOMAINS:
        try:
            schema = defs.get_schema(op_type, opset, "")
            empty = defs.OpSchema.FormalParameterOption.Optional
            optional = frozenset(at for at, each in enumerate(schema.inputs) if each.option == empty)
            return int(schema.min_input), optional
        except (defs.SchemaError, TypeError):  # no such operation, or an opset beyond 32 bits
            pass
    return _NEEDED.get(op_type, 0), frozenset()


def _refuse(path: Path, node: Any, what: str) -> None:
    text = english(
        "{path} is damaged: node {name!r} ({op_type}) {what}.",
        path=path,
        name=node.name,
        op_type=node.op_type,
        what=what,
    )
    raise BadInput(text, fix=english("check it with onnx.checker.check_model, and export it again"))
