"""Reading the constants of a model, wherever they are kept, one at a time."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from roundoff.core.array_files import Unreadable, map_array
from roundoff.core.quantizers import QuantParams, QuantSpec, code_dtype, quantize
from roundoff.core.tensors import Array, DType
from roundoff.errors import BadInput, nearest
from roundoff.graph.load import Model, is_external, stored_bytes
from roundoff.graph.nodes import OnnxType, attribute, by_dtype, by_number
from roundoff.messages.message import english

# Constant nodes may hold plain numbers instead of a tensor.
_PLAIN_VALUES = {
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_float": np.float32,
    "value_floats": np.float32,
}


class Weights(Mapping[str, Array]):
    """The constants of a model's main graph by name: initializers and the outputs of Constant nodes.

    Values are read when asked for and not kept; types that numpy does not have come as those of ml_dtypes.
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    @cached_property
    def protos(self) -> dict[str, Any]:
        """The `onnx.TensorProto` or the Constant node that holds each value."""
        graph = self._model.proto.graph
        found: dict[str, Any] = {node.output[0]: node for node in graph.node if node.op_type == "Constant"}
        return found | {tensor.name: tensor for tensor in graph.initializer}

    def __getitem__(self, name: str) -> Array:
        """Values of one constant.

        Raises:
            KeyError: There is none of that name.
            BadInput: Its data cannot be read.
        """
        return constant_value(self.protos[name], self._model)

    def __iter__(self) -> Iterator[str]:
        return iter(self.protos)

    def __len__(self) -> int:
        return len(self.protos)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one constant; its values are not read.

        Raises:
            KeyError: There is none of that name.
        """
        holder = self.protos[name]
        if hasattr(holder, "op_type"):
            return self[name].shape
        return tuple(holder.dims)

    def require(self, name: str) -> Array:
        """Values of one constant.

        Raises:
            BadInput: There is none of that name, or its data cannot be read.
        """
        if name not in self.protos:
            raise BadInput(
                english("{path} has no constant {name!r}.", path=self._model.path, name=name),
                fix=nearest(name, self.protos),
            )
        return self[name]


def constant_value(holder: Any, model: Model) -> Array:
    """The value of an `onnx.TensorProto` or of a Constant node; outside the model's file it is mapped, not read.

    Raises:
        BadInput: Its data cannot be read.
    """
    name = holder.name
    try:
        if not hasattr(holder, "op_type"):
            return _tensor_value(holder, model)
        name = holder.output[0]
        return _attribute_value(holder.attribute[0], model)
    except (ValueError, TypeError, OSError, IndexError, RuntimeError, Unreadable) as error:
        what = english(
            "The values of {name!r} in {path} cannot be read: {error}.", name=name, path=model.path, error=error
        )
        raise BadInput(
            what, fix=english("check the model with onnx.checker.check_model, and export it again")
        ) from error


def _tensor_value(tensor: Any, model: Model) -> Array:
    from onnx.numpy_helper import to_array

    kind = by_number(tensor.data_type)
    if not is_external(tensor):
        return np.asarray(to_array(tensor))
    if (beside := model.beside.get(tensor.name)) is not None:
        return beside
    if kind is None or kind.bits < 8:
        # Some versions of onnx leave in the tensor what they read from the other file.
        declared = type(tensor)()
        declared.CopyFrom(tensor)
        return np.asarray(to_array(declared, base_dir=str(model.folder)))
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path, offset = model.folder / entries["location"], int(entries.get("offset", 0))
    dtype, shape = np.dtype(tensor_dtype(tensor)).newbyteorder("<"), tuple(tensor.dims)
    status = path.stat()
    key = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size, offset, dtype.str, shape)
    found = _MAPS.get(key)
    if found is None:
        found = _MAPS[key] = map_array(path, offset=offset, dtype=dtype, shape=shape)
    return found


# Who maps the same values while somebody has them shares the map: of pages that two maps have, each counts.
_MAPS: "WeakValueDictionary[tuple[Any, ...], Array]" = WeakValueDictionary()


def mapped_constants(model: Model) -> dict[str, Array]:
    """Values of a model's initializers that lie outside its message, of numpy's own types; none are read."""
    declared = [tensor for tensor in model.proto.graph.initializer if is_external(tensor)]
    native = (tensor for tensor in declared if tensor.name not in model.beside and _is_native(tensor))
    return {tensor.name: constant_value(tensor, model) for tensor in native}


def _is_native(tensor: Any) -> bool:
    kind = by_number(tensor.data_type)
    return kind is not None and kind.bits >= 8 and np.dtype(tensor_dtype(tensor)).kind in "iuf"


def tensor_dtype(tensor: Any) -> DType:
    """The numpy type (perhaps one of ml_dtypes) of an `onnx.TensorProto`."""
    from onnx.helper import tensor_dtype_to_np_dtype

    dtype: DType = np.dtype(tensor_dtype_to_np_dtype(tensor.data_type))
    return dtype


def _attribute_value(item: Any, model: Model) -> Array:
    from onnx.helper import get_attribute_value

    if item.HasField("t"):
        return _tensor_value(item.t, model)
    if item.HasField("sparse_tensor"):
        raise TypeError("sparse constants are not supported")
    return np.asarray(get_attribute_value(item), dtype=_PLAIN_VALUES.get(item.name))


# Constants while a model is rewritten.


class HeldConstants:
    """Tensors with known values while a model is rewritten: its initializers, and what was added since.

    They are held as the model holds them until one is changed; then as arrays.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._held: dict[str, Any] = self._stored(model)
        self._elements: dict[str, OnnxType] = {}

    def _stored(self, model: Model) -> dict[str, Any]:
        return {tensor.name: tensor for tensor in model.proto.graph.initializer}

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def stored(self, name: str) -> Any:
        """The `onnx.TensorProto` or Constant node that holds a value, if it is held as such."""
        held = self._held.get(name)
        return None if isinstance(held, np.ndarray) else held

    def added(self, name: str) -> Array | None:
        """The value, if it was added or changed."""
        held = self._held.get(name)
        return held if isinstance(held, np.ndarray) else None

    def add(self, name: str, values: Array, element: OnnxType | None = None) -> None:
        """Keep values under a name, in the place of those it had.

        Args:
            name: The name.
            values: The values.
            element: Their type where numpy lacks it.
        """
        self._held[name] = np.asarray(values)
        if element is not None:
            self._elements[name] = element

    def hold(self, tensor: Any) -> None:
        """Keep an `onnx.TensorProto` under the name it has."""
        self._held[tensor.name] = tensor

    def value(self, name: str) -> Array:
        """Values of a constant.

        Raises:
            BadInput: They cannot be read or computed.
        """
        held = self._held[name]
        return held if isinstance(held, np.ndarray) else constant_value(held, self._model)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a constant, found without reading its values where possible."""
        holder = self._tensor_proto(name)
        return tuple(self.value(name).shape) if holder is None else tuple(holder.dims)

    def size(self, name: str) -> int:
        """Number of its elements."""
        return math.prod(self.shape(name))

    def size_bytes(self, name: str) -> int:
        """Size of a constant in a file."""
        holder = self._tensor_proto(name)
        return int(self.value(name).nbytes) if holder is None else stored_bytes(holder)

    def _tensor_proto(self, name: str) -> Any:
        """The tensor that holds a value, in a Constant node or not; None when it is held otherwise."""
        holder = self.stored(name)
        if holder is None or not hasattr(holder, "op_type"):
            return holder
        first = holder.attribute[0] if holder.attribute else None
        return first.t if first is not None and first.HasField("t") else None

    def tensors(self) -> Iterator[Any]:
        """All as `onnx.TensorProto`s, in the order in which they came."""
        from onnx.numpy_helper import from_array

        for name, held in self._held.items():
            yield from_array(held, name) if isinstance(held, np.ndarray) else held


class DerivedConstants(HeldConstants):
    """The same, also behind the copies, casts and reshapes that tools put between constants and their use.

    Constant nodes count as well.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._derived: dict[str, Any] = {}
        for node in model.proto.graph.node:
            known = all(name in self for name in node.input if name)
            if node.op_type in _FOLDED and known and len(node.output) == 1 and not node.domain:
                self._derived[node.output[0]] = node

    def _stored(self, model: Model) -> dict[str, Any]:
        return Weights(model).protos

    def __contains__(self, name: str) -> bool:
        return name in self._held or name in self._derived

    def origin(self, name: str) -> str:
        """The stored constant that a tensor is a plain copy of; the tensor itself when it is none."""
        node = self._derived.get(name)
        while node is not None and node.op_type == "Identity":
            name = node.input[0]
            node = self._derived.get(name)
        return name

    def value(self, name: str) -> Array:
        """Values of a constant.

        Raises:
            BadInput: They cannot be read or computed.
        """
        return self._value(name, 0)

    def _value(self, name: str, depth: int) -> Array:
        if name in self._held:
            return super().value(name)
        node = self._derived[name]
        try:
            if depth > _DEEPEST:
                raise ValueError("too many steps")
            inputs = [self._value(tensor, depth + 1) if tensor else None for tensor in node.input]
            return np.asarray(_FOLDED[node.op_type](node, inputs))
        except (ValueError, TypeError, IndexError, KeyError, OverflowError) as error:
            what = english(
                "The constant {name!r} of {path} cannot be computed: {op_type}: {error}.",
                name=name,
                path=self._model.path,
                op_type=node.op_type,
                error=error,
            )
            raise BadInput(what, fix=english("fold the constants of the model and export it again")) from error

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


_Inputs: TypeAlias = list[Array | None]
# Longer chains of operations on constants than this are not followed.
_DEEPEST = 32


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


# Codes of large constants, computed block by block.

_Block: TypeAlias = tuple[tuple[slice, ...], QuantParams]

_BLOCK_ELEMENTS = 1 << 16
"""Values of one block: with all that is computed between, they stay in the cache."""


def codes_of(values: Array, params: QuantParams, spec: QuantSpec) -> Array:
    """Like `roundoff.core.quantizers.quantize` in float32, but nothing else is as large as the codes.

    Args:
        values: Floats of any type; may be mapped from a file.
        params: Of shape [], or [C] with C the size of ``spec.axis``.
        spec: How values become codes.
    """
    if values.size <= _BLOCK_ELEMENTS or values.ndim == 0:
        return quantize(values.astype(np.float32, copy=False), params, spec)
    codes = np.empty(values.shape, code_dtype(spec))
    for index, part in _blocks(values, params, spec):
        codes[index] = quantize(values[index].astype(np.float32, copy=False), part, spec)
    return codes


def _blocks(
    values: Array, params: QuantParams, spec: QuantSpec
) -> Iterator[tuple[tuple[slice, ...], QuantParams]]:
    """Parts of an array, each with its parameters: cut along the first axes until they are small."""
    sliced = None if spec.axis is None or params.scale.ndim == 0 else spec.axis % values.ndim
    sizes = [1] * values.ndim
    room = _BLOCK_ELEMENTS
    for axis in reversed(range(values.ndim)):
        sizes[axis] = min(values.shape[axis], room)
        room = max(1, room // max(1, values.shape[axis]))
    counts = [-(-length // size) for length, size in zip(values.shape, sizes, strict=True)]
    for places in np.ndindex(*counts):
        index = tuple(slice(at * size, (at + 1) * size) for at, size in zip(places, sizes, strict=True))
        if sliced is None:
            yield index, params
        else:
            cut = index[sliced]
            yield index, replace(params, scale=params.scale[cut], zero_point=params.zero_point[cut])
