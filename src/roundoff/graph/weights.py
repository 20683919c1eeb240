"""Reading the constants of a model, wherever they are kept, one at a time."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from roundoff.core.array_files import Unreadable, map_array
from roundoff.core.quantizers import QuantParams, QuantSpec, code_dtype, quantize
from roundoff.core.tensors import Array, DType
from roundoff.errors import BadInput, nearest
from roundoff.graph.load import Model, is_external
from roundoff.graph.wiring import by_number

__all__ = [
    "Weights",
    "codes_of",
    "constant_value",
    "tensor_dtype",
]


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
            raise BadInput(f"{self._model.path} has no constant {name!r}.", fix=nearest(name, self.protos))
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
        what = f"The values of {name!r} in {model.path} cannot be read: {error}."
        raise BadInput(what, fix="check the model with onnx.checker.check_model, and export it again") from error


def _tensor_value(tensor: Any, model: Model) -> Array:
    from onnx.numpy_helper import to_array

    kind = by_number(tensor.data_type)
    if not is_external(tensor):
        return np.asarray(to_array(tensor))
    if kind is None or kind.bits < 8:
        return np.asarray(to_array(tensor, base_dir=str(model.folder)))
    entries = {entry.key: entry.value for entry in tensor.external_data}
    return map_array(
        model.folder / entries["location"],
        offset=int(entries.get("offset", 0)),
        dtype=np.dtype(tensor_dtype(tensor)).newbyteorder("<"),
        shape=tuple(tensor.dims),
    )


def tensor_dtype(tensor: Any) -> DType:
    """The numpy type (perhaps one of ml_dtypes) of an `onnx.TensorProto`."""
    from onnx.helper import tensor_dtype_to_np_dtype

    dtype: DType = np.dtype(tensor_dtype_to_np_dtype(tensor.data_type))
    return dtype


def _attribute_value(attribute: Any, model: Model) -> Array:
    from onnx.helper import get_attribute_value

    if attribute.HasField("t"):
        return _tensor_value(attribute.t, model)
    if attribute.HasField("sparse_tensor"):
        raise TypeError("sparse constants are not supported")
    return np.asarray(get_attribute_value(attribute), dtype=_PLAIN_VALUES.get(attribute.name))


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
