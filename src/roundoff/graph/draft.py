"""Models under construction: `Assembly` adds nodes and constants to a frame, `Draft` changes single nodes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.load import Model, inside_bytes, is_external
from roundoff.graph.nodes import (
    STANDARD_DOMAINS,
    OnnxType,
    all_names,
    captured,
    free_name,
    input_at,
    opset_of,
    rename_captured,
)
from roundoff.graph.save import drop_unused
from roundoff.graph.shapes import ranks
from roundoff.graph.weights import HeldConstants
from roundoff.messages.message import Argument, Message, english, some

# Before this version of the format, every constant had to be an input too.
_FIRST_WITH_CONSTANTS = 4
# Models are handed to onnxruntime as one message, which cannot exceed 2 GiB.
_MOST_INSIDE_BYTES = 1_500_000_000
MOST_NAMED = 5


class Assembly:
    """Collects the nodes and constants of a new model that begins as a model's frame: inputs, outputs, versions.

    Attributes:
        opset: Version of the standard operators.
        proto: The new `onnx.ModelProto`.
    """

    def __init__(self, model: Model) -> None:
        from onnx import ModelProto

        source = model.proto
        self.opset = opset_of(source)
        self.proto = ModelProto(
            ir_version=max(source.ir_version, _FIRST_WITH_CONSTANTS),
            opset_import=source.opset_import,
            producer_name=source.producer_name,
            producer_version=source.producer_version,
            domain=source.domain,
            model_version=source.model_version,
            doc_string=source.doc_string,
            metadata_props=source.metadata_props,
            functions=source.functions,
        )
        graph = self.proto.graph
        graph.name, graph.doc_string = source.graph.name, source.graph.doc_string
        for field in ("input", "output", "sparse_initializer"):
            getattr(graph, field).extend(getattr(source.graph, field))
        self._tensors = set(all_names(source.graph))
        self._nodes = {node.name for node in source.graph.node}
        self._domains = {entry.domain for entry in source.opset_import}

    def free_tensor(self, wanted: str) -> str:
        """A tensor name like the wanted one that nothing else has; it is taken from now on."""
        return free_name(wanted, self._tensors)

    def copy_node(self, node: Any) -> Any:
        """Add a node of the model as it is; gives the copy, whose inputs may then be changed."""
        copy = self.proto.graph.node.add()
        copy.CopyFrom(node)
        return copy

    def add_node(
        self,
        op_type: str,
        inputs: Sequence[str],
        output: str | Sequence[str],
        *,
        name: str,
        domain: str = "",
        attributes: dict[str, Any] | None = None,
    ) -> None:
        """Add a node.

        Args:
            op_type: Its operation.
            inputs: Names of its inputs.
            output: Name of its output, or of all of them.
            name: What it is called, if that is free.
            domain: Where its operation is defined; version 1 of it is declared when the model has none.
            attributes: Its attributes.
        """
        from onnx.helper import make_node

        if domain not in (*STANDARD_DOMAINS, *self._domains):
            self.proto.opset_import.add(domain=domain, version=1)
            self._domains.add(domain)
        free = free_name(name, self._nodes)
        outputs = [output] if isinstance(output, str) else list(output)
        node = make_node(op_type, list(inputs), outputs, name=free, domain=domain, **(attributes or {}))
        self.proto.graph.node.append(node)

    def add_constant(self, values: Array, name: str) -> str:
        """Add an initializer of a type that numpy has; gives the name it got."""
        from onnx.helper import np_dtype_to_tensor_dtype
        from onnx.numpy_helper import from_array

        free = self.free_tensor(name)
        if values.dtype.kind not in "biuf":
            self.proto.graph.initializer.append(from_array(values, free))
            return free
        # In place: appending would copy the values once more.
        tensor = self.proto.graph.initializer.add(name=free, data_type=np_dtype_to_tensor_dtype(values.dtype))
        tensor.dims.extend(values.shape)
        tensor.raw_data = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
        return free

    def add_tensor(self, tensor: Any) -> None:
        """Add an `onnx.TensorProto` as an initializer, under the name it has."""
        self.proto.graph.initializer.append(tensor)


class Draft:
    """The nodes and constants of a model under way; the model itself is not touched.

    Who computes and who reads a tensor is known at every step: nodes are counted in and out as they change. So
    inputs and outputs of nodes are changed by the methods here; attributes may be set directly.

    Args:
        model: Where it begins.
        constants: What counts as constant; the initializers by default.
        only_replaced: The nodes are those of the model itself: never changed, only replaced, so that nothing is
            copied. Names of tensors whose type the model declares without having them are free then.

    Attributes:
        model: Where it began.
        opset: Version of the standard operators.
        nodes: By name, in execution order.
        constants: Tensors with known values.
        outputs: For each output of the network the tensor that carries it now.
        notes: What was done, and what was not and why.
    """

    def __init__(
        self, model: Model, *, constants: HeldConstants | None = None, only_replaced: bool = False
    ) -> None:
        graph = model.proto.graph
        self.model = model
        self.opset = opset_of(model.proto)
        self.constants = HeldConstants(model) if constants is None else constants
        self.outputs = {value.name: value.name for value in graph.output}
        self.notes: list[Message] = []
        self._tensor_names = set(all_names(graph, declared=not only_replaced))
        self._node_names = {node.name for node in graph.node}
        self.replace(graph.node if only_replaced else map(_copied, graph.node))
        self._originals = tuple(self.nodes)
        self._merged: dict[str, str] = {}
        self._inside_bytes = model.file_bytes

    def replace(self, nodes: Iterable[Any]) -> None:
        """Put other nodes in the place of all there are, in execution order."""
        self.nodes: dict[str, Any] = {}
        self._readers: dict[str, Counter[str]] = {}
        self._producers: dict[str, str] = {}
        for node in nodes:
            self.nodes[node.name] = node
            self._producers.update((name, node.name) for name in node.output if name)
            self._count(node, 1)

    def _count(self, node: Any, change: int) -> None:
        for name in (*node.input, *captured(node)):
            if name:
                counter = self._readers.setdefault(name, Counter())
                counter[node.name] += change
                if not counter[node.name]:
                    del counter[node.name]

    def of_type(self, *op_types: str) -> Iterator[Any]:
        """Nodes of these standard operations; they may be removed meanwhile."""
        for node in list(self.nodes.values()):
            if node.op_type in op_types and node.domain in STANDARD_DOMAINS and node.name in self.nodes:
                yield node

    def producer(self, tensor: str) -> Any | None:
        """The node that computes a tensor; None for inputs and constants."""
        return self.nodes.get(self._producers.get(tensor, ""))

    def readers(self, tensor: str) -> list[Any]:
        """The nodes that read a tensor, themselves or in their subgraphs, each once."""
        return [self.nodes[name] for name in self._readers.get(tensor, ())]

    def only_reader(self, tensor: str) -> Any:
        """The node that reads a tensor when nobody else does and it is no output; None otherwise."""
        found = self.readers(tensor)
        return found[0] if len(found) == 1 and tensor not in self.outputs.values() else None

    def read_once(self, tensor: str) -> bool:
        """Whether exactly one input of one node takes a tensor, and nothing else sees it."""
        counter = self._readers.get(tensor, Counter())
        return tensor not in self.outputs.values() and sum(counter.values()) == 1

    def rank(self, tensor: str) -> int | None:
        """Number of axes of a computed tensor; None when unknown."""
        return self._ranks.get(tensor)

    @cached_property
    def _ranks(self) -> dict[str, int]:
        return ranks(self.model)

    def is_taken(self, tensor: str) -> bool:
        """Whether a tensor is called so, or was."""
        return tensor in self._tensor_names

    def free_tensor(self, wanted: str) -> str:
        """A name for a tensor like the wanted one that no other has; it is taken from now on."""
        return free_name(wanted, self._tensor_names)

    def free_node(self, wanted: str) -> str:
        """A name for a node like the wanted one that no other has; it is taken from now on."""
        return free_name(wanted, self._node_names)

    def has_room(self, size_bytes: int) -> bool:
        """Whether so many more bytes of constants still fit into the model's own file."""
        return self._inside_bytes + size_bytes <= _MOST_INSIDE_BYTES

    def set_constant(self, tensor: str, values: Array) -> None:
        """Make a tensor a constant, or change its values."""
        stored = self.constants.stored(tensor)
        inside = tensor in self.constants and not (stored is not None and is_external(stored))
        self._inside_bytes += values.nbytes - (self.constants.size_bytes(tensor) if inside else 0)
        self.constants.add(tensor, values)

    def add_constant(self, values: Array, wanted: str, element: OnnxType | None = None) -> str:
        """Keep values as a constant of a name like the wanted one; gives the name they got."""
        name = self.free_tensor(wanted)
        self.constants.add(name, values, element)
        return name

    def turn_into(self, node: Any, op_type: str, inputs: list[str]) -> None:
        """Make a node another operation with one output; its name stays."""
        self._count(node, -1)
        node.op_type = op_type
        for field in ("attribute", "input"):
            node.ClearField(field)
        del node.output[1:]
        node.input.extend(inputs)
        self._count(node, 1)

    def set_input(self, node: Any, position: int, tensor: str) -> None:
        """Let one input of a node read another tensor; one that is not there yet is added."""
        self._count(node, -1)
        while len(node.input) <= position:
            node.input.append("")
        node.input[position] = tensor
        self._count(node, 1)

    def rename_output(self, node: Any, position: int, tensor: str) -> None:
        """Call an output of a node otherwise; those who read it are not told."""
        self._producers.pop(node.output[position], None)
        node.output[position] = tensor
        self._producers[tensor] = node.name

    def replace_uses(self, old: str, new: str) -> None:
        """Let all who read one tensor read another."""
        for node in self.readers(old):
            self._count(node, -1)
            for position, tensor in enumerate(node.input):
                node.input[position] = new if tensor == old else tensor
            rename_captured(node, {old: new})
            self._count(node, 1)

    def remove(self, node: Any, *, into: str) -> None:
        """Take a node out.

        Args:
            node: The node; nothing may read its outputs, unless they have become constants.
            into: The node that now computes its result; empty when nothing does.
        """
        self._count(node, -1)
        del self.nodes[node.name]
        for name in node.output:
            if self._producers.get(name) == node.name:
                del self._producers[name]
        self._merged[node.name] = into

    def origins(self) -> dict[str, str]:
        """For each node of the original model the one that now computes its result.

        The name is empty when the result has become a constant, or nothing needs to be computed for it any more.
        """
        return {name: self._now(name) for name in self._originals}

    def _now(self, name: str) -> str:
        while name in self._merged:
            name = self._merged[name]
        return name

    def finish(self) -> Model:
        """The model as it is now."""
        source, frame = self.model.proto.graph, Assembly(self.model)
        graph = frame.proto.graph
        # What nothing reads any more is not copied first: weights are most of a model.
        read = {name for name, counter in self._readers.items() if counter} | {
            *self.outputs,
            *self.outputs.values(),
        }
        for tensor in self.constants.tensors():
            if tensor.name in read:
                frame.add_tensor(tensor)
        graph.node.extend(self.nodes.values())
        graph.value_info.extend(
            value for value in source.value_info if value.name in self._producers or value.name in self.constants
        )
        # Inputs that were the defaults of constants, in files of the first versions, would have to be fed.
        defaults = [index for index, value in enumerate(graph.input) if value.name in self.constants]
        for index in reversed(defaults):
            del graph.input[index]
        drop_unused(graph)
        return Model(frame.proto, self.model.path, inside_bytes(frame.proto))


def _copied(node: Any) -> Any:
    copy = type(node)()
    copy.CopyFrom(node)
    return copy


def named(names: list[str]) -> Argument:
    """Names for a gap of a message; of many only the first."""
    return some(names, MOST_NAMED, quoted=True)


# Changing single nodes of a draft.


class CannotFold(Exception):
    """A node stays as it is; the message says why."""


def change_constants(draft: Draft, changes: Sequence[tuple[Any, int, Array]], *, dtype_of: str) -> None:
    """Give inputs of nodes new constant values; other nodes that read the same constants keep the old ones.

    Args:
        draft: What the nodes are part of.
        changes: Nodes, which of their inputs, and the values in any float type.
        dtype_of: The constant whose type they get.

    Raises:
        CannotFold: They are not finite in that type, or do not fit into one file. Nothing is changed then.
    """
    dtype = draft.constants.value(dtype_of).dtype
    with np.errstate(over="ignore"):
        typed = [array.astype(dtype) for _, _, array in changes]
    if not all(np.isfinite(array).all() for array in typed):
        raise CannotFold(english("the result would not be finite in {dtype}", dtype=dtype))
    if not draft.has_room(sum(array.nbytes for array in typed)):
        raise CannotFold(english("the model would exceed one file"))
    for (node, position, _), array in zip(changes, typed, strict=True):
        old = input_at(node, position)
        own = bool(old) and draft.read_once(old)
        name = old if own else draft.free_tensor(f"{old}_{node.name}" if old else f"{node.name}_bias")
        draft.set_constant(name, array)
        draft.set_input(node, position, name)
