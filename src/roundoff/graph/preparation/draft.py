"""A model's main graph while it is being rewritten: who reads what stays known at every step."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.build import Assembly
from roundoff.graph.insertion import rename_captured
from roundoff.graph.load import Model, inside_bytes, is_external, stored_bytes
from roundoff.graph.save import drop_unused
from roundoff.graph.shapes import ranks
from roundoff.graph.weights import constant_value
from roundoff.graph.wiring import reads, subgraphs

__all__ = [
    "CannotFold",
    "Draft",
    "attribute",
    "change_constants",
    "named",
    "set_attribute",
]


# Models are handed to onnxruntime as one message, which cannot exceed 2 GiB.
_MOST_INSIDE_BYTES = 1_500_000_000
MOST_NAMED = 5


class Draft:
    """The nodes and constants of a model under way; the model itself is not touched.

    Attributes:
        model: Where it began.
        opset: Version of the standard operators.
        nodes: By name, in execution order.
        outputs: Names of the network's outputs; they never change.
        notes: What was done, and what was not and why.
    """

    def __init__(self, model: Model) -> None:
        from onnx import NodeProto

        graph = model.proto.graph
        self.model = model
        self._frame = Assembly(model)
        self.opset = self._frame.opset
        self.nodes: dict[str, Any] = {}
        self._readers: dict[str, Counter[str]] = {}
        self._producers: dict[str, str] = {}
        for node in graph.node:
            copy = NodeProto()
            copy.CopyFrom(node)
            self._add(copy)
        self.outputs = frozenset(value.name for value in graph.output)
        self._originals = tuple(self.nodes)
        self._merged: dict[str, str] = {}
        self.notes: list[str] = []
        # Held as the model holds them until one is needed or changed; then as arrays.
        self._constants: dict[str, Any] = {tensor.name: tensor for tensor in graph.initializer}
        self._inside_bytes = model.file_bytes

    def _add(self, node: Any) -> None:
        self.nodes[node.name] = node
        for name in node.output:
            if name:
                self._producers[name] = node.name
        self._count(node, 1)

    def _count(self, node: Any, change: int) -> None:
        for name in (*node.input, *_captures(node)):
            if name:
                counter = self._readers.setdefault(name, Counter())
                counter[node.name] += change
                if not counter[node.name]:
                    del counter[node.name]

    def of_type(self, *op_types: str) -> Iterator[Any]:
        """Nodes of these standard operations; they may be removed meanwhile."""
        for node in list(self.nodes.values()):
            if node.op_type in op_types and node.domain in ("", "ai.onnx") and node.name in self.nodes:
                yield node

    def producer(self, tensor: str) -> Any | None:
        """The node that computes a tensor; None for inputs and constants."""
        return self.nodes.get(self._producers.get(tensor, ""))

    def readers(self, tensor: str) -> tuple[str, ...]:
        """Names of the nodes that read a tensor, themselves or in their subgraphs."""
        return tuple(self._readers.get(tensor, ()))

    def read_once(self, tensor: str) -> bool:
        """Whether exactly one input of one node takes a tensor, and nothing else sees it."""
        counter = self._readers.get(tensor, Counter())
        return tensor not in self.outputs and sum(counter.values()) == 1

    def is_constant(self, tensor: str) -> bool:
        """Whether a tensor's values are part of the model."""
        return tensor in self._constants

    def constant(self, tensor: str) -> Array:
        """Values of a constant."""
        held = self._constants[tensor]
        return constant_value(held, self.model) if hasattr(held, "dims") else held

    def constant_shape(self, tensor: str) -> tuple[int, ...]:
        """Shape of a constant."""
        held = self._constants[tensor]
        return tuple(held.dims) if hasattr(held, "dims") else held.shape

    def constant_bytes(self, tensor: str) -> int:
        """Size of a constant."""
        held = self._constants[tensor]
        return stored_bytes(held) if hasattr(held, "dims") else int(held.nbytes)

    def rank(self, tensor: str) -> int | None:
        """Number of axes of a computed tensor; None when unknown."""
        return self._ranks.get(tensor)

    @cached_property
    def _ranks(self) -> dict[str, int]:
        return ranks(self.model)

    def has_room(self, size_bytes: int) -> bool:
        """Whether so many more bytes of constants still fit into the model's own file."""
        return self._inside_bytes + size_bytes <= _MOST_INSIDE_BYTES

    def set_constant(self, tensor: str, values: Array) -> None:
        """Make a tensor a constant, or change its values."""
        self._inside_bytes += values.nbytes - self._inside(tensor)
        self._constants[tensor] = values

    def _inside(self, tensor: str) -> int:
        """Bytes that a constant takes in the model's own file."""
        held = self._constants.get(tensor)
        outside = held is None or (hasattr(held, "dims") and is_external(held))
        return 0 if outside else self.constant_bytes(tensor)

    def turn_into(self, node: Any, op_type: str, inputs: list[str]) -> None:
        """Make a node another operation with one output; its name stays."""
        self._count(node, -1)
        node.op_type = op_type
        for field in ("attribute", "input"):
            node.ClearField(field)
        del node.output[1:]
        node.input.extend(inputs)
        self._count(node, 1)

    def hold(self, tensor: Any) -> None:
        """Make an `onnx.TensorProto` a constant under the name it has."""
        self._constants[tensor.name] = tensor

    def free_tensor(self, wanted: str) -> str:
        """A tensor name that nothing else has."""
        return self._frame.free_tensor(wanted)

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
        for name in self.readers(old):
            node = self.nodes[name]
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
        from onnx import TensorProto
        from onnx.numpy_helper import from_array

        source, frame = self.model.proto.graph, self._frame
        graph = frame.proto.graph
        for name, held in self._constants.items():
            frame.add_tensor(held if isinstance(held, TensorProto) else from_array(held, name))
        graph.node.extend(self.nodes.values())
        known = {*self._producers, *self._constants}
        graph.value_info.extend(value for value in source.value_info if value.name in known)
        defaults = [index for index, value in enumerate(graph.input) if value.name in self._constants]
        for index in reversed(defaults):
            del graph.input[index]
        drop_unused(graph)
        return Model(frame.proto, self.model.path, inside_bytes(frame.proto))


def _captures(node: Any) -> tuple[str, ...]:
    """Tensors that the subgraphs of a node take from outside."""
    if not any(subgraphs(node)):
        return ()
    from onnx import NodeProto

    shell = NodeProto(attribute=node.attribute)
    return reads(shell)


def named(names: list[str]) -> str:
    """Names in a sentence; of many only the first."""
    shown = ", ".join(map(repr, names[:MOST_NAMED]))
    return shown if len(names) <= MOST_NAMED else f"{shown} and {len(names) - MOST_NAMED} more"


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
    dtype = draft.constant(dtype_of).dtype
    with np.errstate(over="ignore"):
        typed = [array.astype(dtype) for _, _, array in changes]
    if not all(np.isfinite(array).all() for array in typed):
        raise CannotFold(f"the result would not be finite in {dtype}")
    if not draft.has_room(sum(array.nbytes for array in typed)):
        raise CannotFold("the model would exceed one file")
    for (node, position, _), array in zip(changes, typed, strict=True):
        old = node.input[position] if len(node.input) > position else ""
        own = bool(old) and draft.read_once(old)
        name = old if own else draft.free_tensor(f"{old}_{node.name}" if old else f"{node.name}_bias")
        draft.set_constant(name, array)
        draft.set_input(node, position, name)


def attribute(node: Any, name: str, default: Any = None) -> Any:
    """The value of a node's attribute."""
    from onnx.helper import get_attribute_value

    found = next((each for each in node.attribute if each.name == name), None)
    return default if found is None else get_attribute_value(found)


def set_attribute(node: Any, name: str, value: Any) -> None:
    """Give a node's attribute a value; None takes it away."""
    from onnx.helper import make_attribute

    for index in reversed(range(len(node.attribute))):
        if node.attribute[index].name == name:
            del node.attribute[index]
    if value is not None:
        node.attribute.append(make_attribute(name, value))
