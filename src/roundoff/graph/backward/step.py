"""One node of the network on the way back: what a rule may ask, and how it adds operations."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from roundoff.core.tensors import Array, DType
from roundoff.graph.backward.facts import Facts
from roundoff.graph.backward.tape import Tape
from roundoff.graph.load import Model
from roundoff.graph.pointwise import attributes

__all__ = ["NoRule", "Step"]


class NoRule(Exception):
    """A gradient cannot be given; the message says why, as a sentence without its full stop."""


class Step:
    """A node, the gradients of what it computes, and the means to compute those of what it reads.

    Tensors are named by strings throughout; operations that are added give the name of their result.

    Attributes:
        node: The `onnx.NodeProto`.
        inputs: What it reads; empty names where an optional input is left out.
        outputs: What it computes.
        gradients: The gradient of each output; None where the network's outputs do not depend on it.
        opset: Version of the standard operators, for what is added too.
    """

    def __init__(self, node: Any, gradients: Sequence[str | None], *, facts: Facts, tape: Tape) -> None:
        self.node = node
        self.inputs = tuple(node.input)
        self.outputs = tuple(node.output)
        self.gradients = tuple(gradients)
        self.opset = facts.opset
        self._attributes = attributes(node)
        self._facts = facts
        self._tape = tape

    @property
    def model(self) -> Model:
        """The network."""
        return self._facts.model

    @property
    def gradient(self) -> str:
        """The gradient of the first output, or of the first that has one."""
        return next(gradient for gradient in self.gradients if gradient is not None)

    @property
    def gradient_dtype(self) -> DType:
        """The numpy type of the gradients of the outputs."""
        pairs = zip(self.outputs, self.gradients, strict=True)
        return self._facts.dtype(next(name for name, gradient in pairs if gradient is not None))

    def attribute(self, name: str, default: Any = None) -> Any:
        """Value of an attribute; text as a string."""
        value = self._attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def has(self, index: int) -> bool:
        """Whether an optional input is there."""
        return index < len(self.inputs) and bool(self.inputs[index])

    def shape(self, index: int) -> tuple[int, ...]:
        """Shape of an input.

        Raises:
            NoRule: It is not known.
        """
        return self._shape_of(self.inputs[index])

    def output_shape(self, index: int = 0) -> tuple[int, ...]:
        """Shape of an output.

        Raises:
            NoRule: It is not known.
        """
        return self._shape_of(self.outputs[index])

    def knows_shape(self, index: int) -> bool:
        """Whether the shape of an input is known."""
        return self._facts.shape(self.inputs[index]) is not None

    def _shape_of(self, name: str) -> tuple[int, ...]:
        shape = self._facts.shape(name)
        if shape is None:
            raise NoRule(f"the shape of {name!r} is not known before the model runs")
        return shape

    def value(self, index: int) -> Array:
        """Values of an input that must be the same in every run.

        Raises:
            NoRule: They are not, or are not known.
        """
        values = self._facts.value(self.inputs[index])
        if values is None:
            raise NoRule(f"its input {index} ({self.inputs[index]!r}) is computed while the model runs")
        return values

    def is_constant(self, index: int) -> bool:
        """Whether the values of an input are known before the model runs."""
        return self._facts.value(self.inputs[index]) is not None

    def ints(self, index: int) -> tuple[int, ...]:
        """Like `value`, as plain numbers."""
        return tuple(int(number) for number in self.value(index).ravel())

    def dtype(self, index: int = 0) -> DType:
        """The numpy type of an input."""
        return self._facts.dtype(self.inputs[index])

    def element(self, index: int) -> int:
        """Number of the element type of an input, for Cast."""
        from onnx.helper import np_dtype_to_tensor_dtype

        return int(np_dtype_to_tensor_dtype(self.dtype(index)))

    def is_float(self, index: int) -> bool:
        """Whether an input holds floats."""
        return self._facts.is_float(self.inputs[index])

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a standard operation with one output."""
        return self._tape.op(op_type, *inputs, **attributes)

    def constant(self, values: Array) -> str:
        """Add a constant."""
        return self._tape.constant(values)

    def number(self, value: float) -> str:
        """Add a single number of the type of the gradients."""
        return self.constant(np.asarray(value, self.gradient_dtype))

    def numbers(self, values: Array) -> str:
        """Add an array of numbers of the type of the gradients."""
        return self.constant(values.astype(self.gradient_dtype))

    def integers(self, values: Sequence[int]) -> str:
        """Add a list of int64."""
        return self.constant(np.asarray(values, np.int64))

    def second_output(self, position: int) -> str:
        """An optional output of the node, which the network may not have asked for."""
        return self._tape.second_output(self.node.name, position)
