"""A model that grows a second half: nodes added behind those of the network, each computed only once."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.assembly import Assembly
from roundoff.graph.load import Model
from roundoff.graph.wiring import reads

__all__ = ["Tape"]


class Tape:
    """Collects nodes and constants to be added to a model.

    Attributes:
        frame: The model under construction; what is added to it directly comes before what is added here.
        opset: Version of the standard operators; what is added must be valid in it.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.frame = Assembly(model)
        self.opset = self.frame.opset
        graph = self.frame.proto.graph
        graph.initializer.extend(model.proto.graph.initializer)
        self._copies = {node.name: self.frame.copy_node(node) for node in model.proto.graph.node}
        self._nodes: list[Any] = []
        self._made: dict[Any, str] = {}
        self._constants: dict[str, Array] = {}

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """The result of a standard operation; asked for the same again, the tensor that is there already."""
        from onnx.helper import make_node

        key = (op_type, inputs, tuple(sorted((name, _hashable(value)) for name, value in attributes.items())))
        if key not in self._made:
            name = self.frame.free_tensor(f"//backward/{op_type}_{len(self._nodes)}")
            self._nodes.append(make_node(op_type, list(inputs), [name], name=name, **attributes))
            self._made[key] = name
        return self._made[key]

    def constant(self, values: Array) -> str:
        """A constant with these values."""
        key = ("", values.dtype.str, values.shape, values.tobytes())
        if key not in self._made:
            name = self.frame.free_tensor(f"//backward/constant_{len(self._constants)}")
            self._constants[name] = np.ascontiguousarray(values).reshape(values.shape)
            self._made[key] = name
        return self._made[key]

    def add_input(self, name: str, *, like: str, element: int, shape: Sequence[int] | None) -> str:
        """A further input of the model.

        Args:
            name: What it is called, if that is free.
            like: The tensor that it looks like; for its description.
            element: Number of its element type.
            shape: Its shape; None when unknown.
        """
        from onnx.helper import make_tensor_value_info

        free = self.frame.free_tensor(name)
        described = make_tensor_value_info(free, element, shape, doc_string=f"a vector of the shape of {like}")
        self.frame.proto.graph.input.append(described)
        return free

    def second_output(self, node: str, position: int) -> str:
        """The name of an optional output of a node of the network, which is made to compute it if it does not."""
        copy = self._copies[node]
        while len(copy.output) <= position:
            copy.output.append("")
        if not copy.output[position]:
            copy.output[position] = self.frame.free_tensor(f"//backward/{node}_{position}")
        return str(copy.output[position])

    def finish(self, wanted: Mapping[str, str]) -> tuple[Model, dict[str, str]]:
        """The model with further outputs, without what none of them needs.

        Args:
            wanted: Tensors to give out, each with what its output should be called.

        Returns:
            The model, and the output that carries each of the tensors.
        """
        self._drop_unneeded(set(wanted))
        graph = self.frame.proto.graph
        added = {node.output[0]: node for node in self._nodes}
        names = {tensor: self.frame.free_tensor(name) for tensor, name in wanted.items()}
        for node in self._nodes:
            for position, name in enumerate(node.input):
                node.input[position] = names.get(name, name) if name in added else name
            node.output[0] = names.get(node.output[0], node.output[0])
        graph.node.extend(self._nodes)
        for tensor, name in names.items():
            if tensor not in added:
                # It comes in from outside, and an input cannot be an output under another name.
                self.frame.add_node("Identity", [tensor], name, name=name)
            graph.output.add(name=name)
        return Model(self.frame.proto, self._model.path, self._model.file_bytes), names

    def _drop_unneeded(self, needed: set[str]) -> None:
        """Keep the nodes and constants behind the tensors needed, and put the constants into the model."""
        kept = []
        for node in reversed(self._nodes):
            if node.output[0] in needed:
                kept.append(node)
                needed.update(reads(node))
        self._nodes = kept[::-1]
        from onnx.numpy_helper import from_array

        for name, values in self._constants.items():
            if name in needed:
                self.frame.add_tensor(from_array(values, name))


def _hashable(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(value)
    return value.SerializeToString() if hasattr(value, "SerializeToString") else value
