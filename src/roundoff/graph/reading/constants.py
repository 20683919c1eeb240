"""Constants of a model, also behind the copies, casts and reshapes that tools put between them and their use."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.graph.weights import Weights, constant_value
from roundoff.graph.wiring import OnnxType, by_dtype, by_number

__all__ = ["Constants", "attribute"]

_NUMBERS = frozenset({
    "axis", "block_size", "to", "output_dtype", "transB", "alpha", "beta", "levels", "channels_last", "opset",
    "sqrt_mode", "offset", "signed", "narrow", "relu_flag", "min", "max",
})  # fmt: skip
_LISTS = frozenset({"axes", "perm", "shape"})
# Longer chains of operations on constants than this are not followed.
_DEEPEST = 32


def attribute(node: Any, name: str, default: Any = None) -> Any:
    """The value of a node's attribute; text comes as str.

    Raises:
        BadInput: It is not of the kind that an attribute of this name has.
    """
    from onnx.helper import get_attribute_value

    found = next((item for item in node.attribute if item.name == name), None)
    if found is None:
        return default
    value = get_attribute_value(found)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if (name in _NUMBERS and not isinstance(value, int | float)) or (name in _LISTS and isinstance(value, str)):
        what = f"Attribute {name!r} of node {node.name!r} ({node.op_type}) is {value!r}, which makes no sense."
        raise BadInput(what, fix="check the model with onnx.checker.check_model, and export it again")
    return value


class Constants:
    """Tensors with known values: those stored in the model, added while it is rewritten, or derived from them."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._stored = Weights(model).protos
        self._added: dict[str, Array] = {}
        self._elements: dict[str, OnnxType] = {}
        self._derived = self._find_derived()

    def _find_derived(self) -> dict[str, Any]:
        """Nodes that do nothing but pass constants on, by what they compute."""
        found: dict[str, Any] = {}
        for node in self._model.proto.graph.node:
            known = all(name in self._stored or name in found for name in node.input if name)
            if node.op_type in _FOLDED and known and len(node.output) == 1 and not node.domain:
                found[node.output[0]] = node
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._added or name in self._stored or name in self._derived

    def origin(self, name: str) -> str:
        """The stored constant that a tensor is a plain copy of; the tensor itself when it is none."""
        node = self._derived.get(name)
        while node is not None and node.op_type == "Identity":
            name = node.input[0]
            node = self._derived.get(name)
        return name

    def stored(self, name: str) -> Any:
        """The `onnx.TensorProto` or Constant node that holds a value, if it is in the model as such."""
        return self._stored.get(name)

    def added(self, name: str) -> Array | None:
        """The value, if it was added here."""
        return self._added.get(name)

    def add(self, name: str, values: Array, element: OnnxType | None = None) -> None:
        """Keep values under a name that is free.

        Args:
            name: The name.
            values: The values.
            element: Their type where numpy lacks it.
        """
        self._added[name] = values
        if element is not None:
            self._elements[name] = element

    def value(self, name: str) -> Array:
        """Values of a constant.

        Raises:
            BadInput: They cannot be read or computed.
        """
        return self._value(name, 0)

    def _value(self, name: str, depth: int) -> Array:
        if name in self._added:
            return self._added[name]
        holder = self._stored.get(name)
        if holder is not None:
            return constant_value(holder, self._model)
        node = self._derived[name]
        try:
            if depth > _DEEPEST:
                raise ValueError("too many steps")
            inputs = [self._value(tensor, depth + 1) if tensor else None for tensor in node.input]
            return np.asarray(_FOLDED[node.op_type](node, inputs))
        except (ValueError, TypeError, IndexError, KeyError, OverflowError) as error:
            what = f"The constant {name!r} of {self._model.path} cannot be computed: {node.op_type}: {error}."
            raise BadInput(what, fix="fold the constants of the model and export it again") from error

    def element(self, name: str) -> OnnxType | None:
        """The element type of a constant, found without reading its values where possible."""
        if name in self._elements:
            return self._elements[name]
        holder = self._tensor_proto(name)
        if holder is not None:
            return by_number(holder.data_type)
        node = self._derived.get(name)
        if node is not None and node.op_type == "Cast":
            return by_number(attribute(node, "to", 0))
        if node is not None:
            return self.element(node.input[0])
        return by_dtype(str(self.value(name).dtype))

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a constant, found without reading its values where possible."""
        holder = self._tensor_proto(name)
        return tuple(self.value(name).shape) if holder is None else tuple(holder.dims)

    def size(self, name: str) -> int:
        """Number of its elements."""
        return math.prod(self.shape(name))

    def _tensor_proto(self, name: str) -> Any:
        holder = None if name in self._added else self._stored.get(name)
        if holder is None or not hasattr(holder, "op_type"):
            return holder
        first = holder.attribute[0] if holder.attribute else None
        return first.t if first is not None and first.HasField("t") else None


_Inputs = list[Array | None]


def _cast(node: Any, inputs: _Inputs) -> Array:
    import ml_dtypes

    element = by_number(attribute(node, "to", 0))
    if element is None or inputs[0] is None:
        raise ValueError("unknown type")
    own = getattr(ml_dtypes, element.dtype, None)
    return inputs[0].astype(np.dtype(element.dtype) if own is None else own)


def _axes(node: Any, inputs: _Inputs) -> tuple[int, ...] | None:
    if len(inputs) > 1 and inputs[1] is not None:
        return tuple(int(axis) for axis in inputs[1].ravel())
    given = attribute(node, "axes")
    return None if given is None else tuple(given)


def _reshape(node: Any, inputs: _Inputs) -> Array:
    values = _given(inputs[0])
    wanted = inputs[1].tolist() if len(inputs) > 1 and inputs[1] is not None else list(attribute(node, "shape"))
    shape = [
        values.shape[index] if size == 0 and not attribute(node, "allowzero", 0) else int(size)
        for index, size in enumerate(wanted)
    ]
    return values.reshape(shape)


def _unsqueeze(node: Any, inputs: _Inputs) -> Array:
    return np.expand_dims(_given(inputs[0]), _axes(node, inputs) or ())


def _flatten(node: Any, inputs: _Inputs) -> Array:
    values = _given(inputs[0])
    axis = int(attribute(node, "axis", 1))
    axis += values.ndim if axis < 0 else 0
    return values.reshape(math.prod(values.shape[:axis]), -1)


def _given(values: Array | None) -> Array:
    if values is None:
        raise ValueError("an input is missing")
    return values


def _two(operation: Callable[[Array, Array], Any]) -> Callable[[Any, _Inputs], Array]:
    return lambda _, inputs: np.asarray(operation(_given(inputs[0]), _given(inputs[1])))


_FOLDED: dict[str, Callable[[Any, _Inputs], Array]] = {
    "Identity": lambda _, inputs: _given(inputs[0]),
    "Cast": _cast,
    "Reshape": _reshape,
    "Squeeze": lambda node, inputs: np.squeeze(_given(inputs[0]), _axes(node, inputs)),
    "Unsqueeze": _unsqueeze,
    "Flatten": _flatten,
    "Transpose": lambda node, inputs: np.transpose(_given(inputs[0]), attribute(node, "perm")),
    "Reciprocal": lambda _, inputs: np.reciprocal(_given(inputs[0])),
    "Mul": _two(np.multiply),
    "Div": _two(np.divide),
    "Add": _two(np.add),
    "Sub": _two(np.subtract),
    "Max": _two(np.maximum),
}
