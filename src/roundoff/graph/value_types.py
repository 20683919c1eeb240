"""Element types and ranks of single tensors, inferred only for models where they are not plain."""

from functools import cached_property
from typing import Any

from roundoff.errors import BadInput
from roundoff.graph.element_types import by_number
from roundoff.graph.load import Model
from roundoff.graph.shapes import Value, ranks, values

__all__ = ["ValueTypes"]

_FLOAT32 = 1
# float16, float64, bfloat16
_OTHER_FLOATS = frozenset({10, 11, 16})
_TYPE_ATTRIBUTES = frozenset({"to", "dtype"})


class ValueTypes:
    """Types of the tensors of a model that may be quantized."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def element(self, tensor: str) -> int:
        """Number of the element type of a float tensor; float32 where nothing says otherwise.

        Raises:
            BadInput: It holds no floats.
        """
        stored = self._stored.get(tensor)
        if stored is None and not self._mixed:
            return _FLOAT32
        if stored is None:
            value = self._values.get(tensor)
            stored = value.element.number if value is not None and value.element else _FLOAT32
        if stored != _FLOAT32 and stored not in _OTHER_FLOATS:
            kind = by_number(stored)
            name = kind.dtype if kind else f"of type {stored}"
            what = f"Tensor {tensor!r} of {self._model.path} is {name}; only floats can be quantized."
            raise BadInput(what, fix="leave it out of the quantization")
        return stored

    def rank(self, tensor: str) -> int | None:
        """Number of axes; None when unknown."""
        return self._stored_ranks[tensor] if tensor in self._stored_ranks else self._ranks.get(tensor)

    @cached_property
    def _stored_ranks(self) -> dict[str, int]:
        return {tensor.name: len(tensor.dims) for tensor in self._model.proto.graph.initializer}

    @cached_property
    def _ranks(self) -> dict[str, int]:
        return ranks(self._model)

    @cached_property
    def _stored(self) -> dict[str, int]:
        return {tensor.name: tensor.data_type for tensor in self._model.proto.graph.initializer}

    @cached_property
    def _mixed(self) -> bool:
        """Whether anything in the model mentions a float type other than float32; most models do not."""
        graph = self._model.proto.graph
        declared = {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output, *graph.value_info)}
        declared.update(self._stored.values())
        if not declared.isdisjoint(_OTHER_FLOATS):
            return True
        return any(_mentions_other(attribute) for node in graph.node for attribute in node.attribute)

    @cached_property
    def _values(self) -> dict[str, Value]:
        return {value.name: value for value in values(self._model)}


def _mentions_other(attribute: Any) -> bool:
    if attribute.HasField("t"):
        return attribute.t.data_type in _OTHER_FLOATS
    return attribute.name in _TYPE_ATTRIBUTES and attribute.i in _OTHER_FLOATS
