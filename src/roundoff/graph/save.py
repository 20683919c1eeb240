"""Writing models of any size: weights one at a time, and beside the model when one file cannot hold them."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from roundoff.core.claims import staged_file
from roundoff.core.files import add_to_list, reading, writing
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model, declared_outside, inside_bytes, is_external, stored_bytes, weight_tensors
from roundoff.graph.nodes import OnnxType, by_number, reads
from roundoff.graph.weights import constant_value
from roundoff.messages.message import english

# Models with constants that are computed when they are written, so that they need not all fit in memory.

LARGEST_MESSAGE_BYTES = 1_800_000_000
"""The format behind ONNX ends at 2 GiB for everything that is not kept in files of its own; some room is left."""


@dataclass(frozen=True, slots=True)
class DeferredModel:
    """A model and what some of its constants will be.

    Attributes:
        model: The initializers named in `arrays` have their type and shape, but no values.
        arrays: What computes these values, by name; each call reads and computes them anew.
    """

    model: Model
    arrays: Mapping[str, Callable[[], Array]] = field(default_factory=dict)


def pending_bytes(deferred: DeferredModel) -> int:
    """Size of all values that are not there yet."""
    graph = deferred.model.proto.graph
    return sum(stored_bytes(tensor) for tensor in graph.initializer if tensor.name in deferred.arrays)


def fill(deferred: DeferredModel) -> Model:
    """The model with all values in place. They are put into the given one, which is not to be used any more.

    Raises:
        BadInput: Together they are larger than one message of the format behind ONNX can be.
    """
    pending = pending_bytes(deferred)
    if pending > LARGEST_MESSAGE_BYTES:
        raise BadInput(
            english(
                "The weights of {path} take {pending} bytes as codes, too many to run from memory.",
                path=deferred.model.path,
                pending=pending,
            ),
            fix=english("write the model to a file, where weights of any size go beside it, and run that"),
        )
    for tensor in deferred.model.proto.graph.initializer:
        compute = deferred.arrays.get(tensor.name)
        if compute is not None:
            tensor.raw_data = packed(compute(), tensor)
    return deferred.model


def fill_beside(deferred: DeferredModel) -> Model:
    """The model with all values in place, those that numpy has a type for beside it, so that sessions share them.

    They are put into the given one, which is not to be used any more.
    """
    model, beside = deferred.model, dict(deferred.model.beside)
    for tensor in model.proto.graph.initializer:
        compute, element = deferred.arrays.get(tensor.name), by_number(tensor.data_type)
        if compute is None:
            continue
        if element is None or element.bits < _WHOLE_BITS or stored_bytes(tensor) <= _SMALL_BYTES:
            tensor.raw_data = packed(compute(), tensor)
            continue
        values = np.ascontiguousarray(compute(), dtype=_stored(element)).reshape(tuple(tensor.dims))
        beside[tensor.name] = values
        tensor.CopyFrom(declared_outside(tensor.name, values, model))
    return dataclass_replace(model, beside=beside, file_bytes=inside_bytes(model.proto))


_WHOLE_BITS = 8


def packed(values: Array, tensor: Any) -> bytes:
    """Values as the bytes of a model file.

    Args:
        values: Of any type that holds them; two elements of 4 bits share a byte, the first in its lower half.
        tensor: The `onnx.TensorProto` they are for.
    """
    element = by_number(tensor.data_type)
    if element is None:
        raise ValueError(f"{tensor.name!r} has the unknown element type {tensor.data_type}")
    if element.bits >= _WHOLE_BITS:
        return np.ascontiguousarray(values, dtype=_stored(element)).tobytes()
    halves = values.astype(np.int8).view(np.uint8).ravel() & 0xF
    if halves.size % 2:
        halves = np.append(halves, np.uint8(0))
    return (halves[0::2] | (halves[1::2] << 4)).tobytes()


def _stored(element: OnnxType) -> np.dtype[Any]:
    return np.dtype(element.dtype).newbyteorder("<")


# Smaller tensors (shapes, scales, biases) stay in the model, where every tool can read them.
_SMALLEST_OUTSIDE_BYTES = 1024
# Tensors that start at a page can be mapped into memory by those who run the model.
_PAGE_BYTES, _SMALLEST_ON_PAGE_BYTES, _WORD_BYTES = 4096, 1 << 20, 64
_BLOCK_BYTES = 1 << 24

# Field numbers of the ONNX format, each with the wire type "length-delimited".
_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW_DATA = 7, 5, 9


def save_model(
    model: Model | DeferredModel,
    path: Path | str,
    *,
    largest_file: int = LARGEST_MESSAGE_BYTES,
    replace: bool = False,
) -> None:
    """Write a model whole or not at all; no more than one tensor is in memory at a time.

    Args:
        model: The model; values it defers are computed as they are written.
        path: The file. When more than `largest_file` bytes would go there, weights go to ``<path>.data``.
        largest_file: Most bytes for one file.
        replace: Replace an earlier file; otherwise an existing one is refused.

    Raises:
        BadInput: A file is in the way, cannot be written, or holds weights of the model that is to be saved.
    """
    deferred = model if isinstance(model, DeferredModel) else DeferredModel(model)
    target = Path(os.path.realpath(path))
    data = target.with_name(f"{target.name}.data")
    writer = _OnnxWriter(deferred, largest_file=largest_file, data_name=data.name)
    for file in (target, data) if writer.outside else (target,):
        _check_free(file, deferred.model, replace=replace)
    with writing(Path(path)):
        target.parent.mkdir(parents=True, exist_ok=True)
        with staged_file(target) as model_file, staged_file(data) as data_file:
            if writer.outside:
                with data_file.open("wb") as file_of_data:
                    writer.write_data(file_of_data)
            with model_file.open("wb") as file_of_model:
                writer.write_model(file_of_model)
            # The data first: the model is never there without it.
            if writer.outside:
                data_file.replace(data)
                add_to_list(data)
            model_file.replace(target)
            add_to_list(target)


def _check_free(file: Path, model: Model, *, replace: bool) -> None:
    sources = {os.path.realpath(model.folder / location) for location in _locations(model.proto)}
    if str(file) in sources:
        what = english("{file} cannot be written: it holds weights of the model that is to be saved.", file=file)
        raise BadInput(what, fix=english("choose another name, or another folder"))
    if file.exists() and not file.is_file():
        raise BadInput(
            english("{file} is a folder, a pipe or a device, not a file.", file=file),
            fix=english("choose another path"),
        )
    if file.exists() and not replace:
        raise BadInput(
            english("{file} exists.", file=file), fix=english("choose another path, or remove it first")
        )


def _locations(proto: Any) -> set[str]:
    external = (tensor for tensor in weight_tensors(proto) if is_external(tensor))
    return {entry.value for tensor in external for entry in tensor.external_data if entry.key == "location"}


class _OnnxWriter:
    """One model on its way to the disk.

    Attributes:
        outside: Where in the file of data a tensor begins, by index, for those that go there.
    """

    outside: dict[int, int]

    def __init__(self, deferred: DeferredModel, *, largest_file: int, data_name: str) -> None:
        self._deferred = deferred
        self._data_name = data_name
        self._rest = _without_initializers(deferred.model.proto)
        self._initializers = list(deferred.model.proto.graph.initializer)
        # Tensors in attributes, subgraphs and functions: only those that lie outside need care.
        self._inner = [tensor for tensor in weight_tensors(self._rest) if is_external(tensor)]
        self._tensors = [*self._initializers, *self._inner]
        total = self._rest.ByteSize() + sum(map(stored_bytes, self._tensors))
        self.outside = _offsets(self._tensors) if total > largest_file else {}

    def write_data(self, file: IO[bytes]) -> None:
        """Write the tensors that do not go into the model."""
        for index, offset in self.outside.items():
            file.write(bytes(offset - file.tell()))
            self._write_values(file, self._tensors[index])

    def write_model(self, file: IO[bytes]) -> None:
        """Write the model. A length stands before each part of it, so all lengths are found first."""
        self._settle_inner()
        graph = self._rest.graph.SerializeToString()
        heads = [self._head(index, tensor) for index, tensor in enumerate(self._initializers)]
        sizes = [self._inside_bytes(index, tensor) for index, tensor in enumerate(self._initializers)]
        bodies = [_tag(_TENSOR_RAW_DATA, size) if size else b"" for size in sizes]
        lengths = [sum(map(len, part[:2])) + part[2] for part in zip(heads, bodies, sizes, strict=True)]
        whole = len(graph) + sum(len(_tag(_GRAPH_INITIALIZER, length)) + length for length in lengths)
        self._rest.ClearField("graph")
        file.write(self._rest.SerializeToString() + _tag(_MODEL_GRAPH, whole) + graph)
        for tensor, head, body, length in zip(self._initializers, heads, bodies, lengths, strict=True):
            file.write(_tag(_GRAPH_INITIALIZER, length) + head + body)
            if body:
                self._write_values(file, tensor)

    def _settle_inner(self) -> None:
        for index, tensor in enumerate(self._inner, start=len(self._initializers)):
            if index in self.outside:
                self._point_outside(tensor, index)
            else:
                values = packed(constant_value(tensor, self._deferred.model), tensor)
                tensor.ClearField("external_data")
                tensor.ClearField("data_location")
                tensor.raw_data = values

    def _head(self, index: int, tensor: Any) -> bytes:
        """A tensor without its values; whole where it is text, or of an unknown type."""
        from onnx import TensorProto

        if not stored_bytes(tensor):
            return bytes(tensor.SerializeToString())
        head = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        if tensor.doc_string:
            head.doc_string = tensor.doc_string
        if index in self.outside:
            self._point_outside(head, index)
        return bytes(head.SerializeToString())

    def _point_outside(self, tensor: Any, index: int) -> None:
        length = stored_bytes(tensor)
        tensor.data_location = tensor.EXTERNAL
        tensor.ClearField("external_data")
        for key, value in (("location", self._data_name), ("offset", self.outside[index]), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))

    def _inside_bytes(self, index: int, tensor: Any) -> int:
        return 0 if index in self.outside else stored_bytes(tensor)

    def _write_values(self, file: IO[bytes], tensor: Any) -> None:
        compute = self._deferred.arrays.get(tensor.name)
        if compute is not None and not is_external(tensor):
            file.write(packed(compute(), tensor))
        elif tensor.name in self._deferred.model.beside:
            file.write(packed(self._deferred.model.beside[tensor.name], tensor))
        elif is_external(tensor):
            _copy_blocks(tensor, self._deferred.model.folder, file)
        elif tensor.HasField("raw_data"):
            _check_length(tensor)
            file.write(tensor.raw_data)
        else:
            file.write(packed(constant_value(tensor, self._deferred.model), tensor))


def _check_length(tensor: Any) -> None:
    has, needs = len(tensor.raw_data), stored_bytes(tensor)
    if has != needs:
        what = english(
            "Tensor {name!r} has {has} bytes of values; its type and shape need {needs}.",
            name=tensor.name,
            has=has,
            needs=needs,
        )
        raise BadInput(what, fix=english("export the model again"))


def _without_initializers(proto: Any) -> Any:
    """A copy of a model that lacks the constants of its main graph."""
    from onnx import ModelProto

    copy = ModelProto()
    _copy_fields(proto, copy, leave="graph")
    _copy_fields(proto.graph, copy.graph, leave="initializer")
    return copy


def _copy_fields(source: Any, target: Any, *, leave: str) -> None:
    for described, value in source.ListFields():
        if described.name == leave:
            continue
        if isinstance(value, (str, bytes, int, float)):
            setattr(target, described.name, value)
        else:
            getattr(target, described.name).extend(value)


def _offsets(tensors: Sequence[Any]) -> dict[int, int]:
    """Where each tensor begins that goes to the file of data."""
    end, found = 0, {}
    for index, tensor in enumerate(tensors):
        size = stored_bytes(tensor)
        if size >= _SMALLEST_OUTSIDE_BYTES:
            step = _PAGE_BYTES if size >= _SMALLEST_ON_PAGE_BYTES else _WORD_BYTES
            found[index] = -(-end // step) * step
            end = found[index] + size
    return found


def _copy_blocks(tensor: Any, folder: Path, file: IO[bytes]) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    source, left = folder / entries["location"], stored_bytes(tensor)
    with reading(source, what=english("The file of weights")), source.open("rb") as stored:
        stored.seek(int(entries.get("offset", 0)))
        while left:
            block = stored.read(min(left, _BLOCK_BYTES))
            if not block:
                what = english(
                    "{source} ends {left} bytes before the values of {name!r} do.",
                    source=source,
                    left=left,
                    name=tensor.name,
                )
                raise BadInput(what, fix=english("copy the file again, it is cut short"))
            file.write(block)
            left -= len(block)


def _tag(field: int, length: int) -> bytes:
    """What stands before a length-delimited field: its number, and its length in groups of seven bits."""
    groups = bytearray([field << 3 | 2])
    while length >= 0x80:
        groups.append(length & 0x7F | 0x80)
        length >>= 7
    groups.append(length)
    return bytes(groups)


# Parts of models that are made only to be run: large weights stay beside them.
#
# To put a weight into another model copies it, and so do serializing it and reading it again. A session takes
# weights as they are.

# Weights of shapes, axes and the like must be seen when the graph is opened; they are small.
_SMALL_BYTES = 4096
_GIVEN_BESIDE = frozenset({"float32", "float64"})


def add_declared(graph: Any, initializers: Iterable[Any]) -> dict[str, Array]:
    """Add initializers to a graph, large ones without their values; gives these.

    Args:
        graph: The `onnx.GraphProto` to add to.
        initializers: `onnx.TensorProto`s.
    """
    from onnx.numpy_helper import to_array

    values: dict[str, Array] = {}
    for tensor in initializers:
        element = by_number(tensor.data_type)
        # The size by shape is asked first: to look at the data copies it.
        large = element is not None and element.dtype in _GIVEN_BESIDE and stored_bytes(tensor) > _SMALL_BYTES
        if large and tensor.HasField("raw_data"):
            values[tensor.name] = to_array(tensor)
            graph.initializer.append(declared_outside(tensor.name, values[tensor.name]))
        else:
            graph.initializer.append(tensor)
    return values


# Removing constants that nothing reads.


def drop_unused(graph: Any) -> None:
    """Remove initializers and Constant nodes that nothing reads, in place; also where inputs list them."""
    read = {name for node in graph.node for name in reads(node)}
    read.update(value.name for value in graph.output)
    unused = {tensor.name for tensor in graph.initializer if tensor.name not in read}
    _keep(graph.initializer, lambda tensor: tensor.name not in unused)
    _keep(graph.input, lambda value: value.name not in unused)
    _keep(graph.node, lambda node: node.op_type != "Constant" or node.output[0] in read)


def _keep(entries: Any, wanted: Any) -> None:
    # From the end: removing one by one from the front would move the rest each time.
    for index in reversed(range(len(entries))):
        if not wanted(entries[index]):
            del entries[index]
