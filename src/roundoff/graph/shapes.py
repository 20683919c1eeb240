"""Types and shapes of all tensors of a model, as far as they are known before it runs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from roundoff.core.tensors import Array, TensorInfo
from roundoff.errors import BadInput
from roundoff.graph.load import Model, stored_bytes
from roundoff.graph.nodes import OnnxType, by_number, constants
from roundoff.measure.pairs import channel_axis_of
from roundoff.messages.message import english

Kind = Literal["tensor", "sequence", "optional", "map", "sparse_tensor", "opaque"]

# Initializers up to this size may be shapes or axes, which decide other shapes; larger ones are weights.
_SHAPE_BYTES = 1024
# Version of the file format.
_FIRST_WITH_CONSTANTS = 4


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of one value of the graph.

    Attributes:
        name: Its name.
        kind: What it is; values of unknown type are taken for tensors.
        element: Its element type, None when unknown.
        shape: Its shape; None when any part of it is unknown.
        node: The node that computes it; empty for inputs.
        op_type: That node's operation.
        output_index: Which output of the node it is.
    """

    name: str
    kind: Kind = "tensor"
    element: OnnxType | None = None
    shape: tuple[int, ...] | None = None
    node: str = ""
    op_type: str = ""
    output_index: int = 0

    @property
    def size_bytes(self) -> int:
        """Bytes its values take when read; 0 when unknown."""
        if self.shape is None or self.element is None or self.obstacle():
            return 0
        return math.prod(self.shape) * np.dtype(self.element.widened).itemsize

    def info(self) -> TensorInfo:
        """The same as a `TensorInfo`; what is not known, or is no tensor of numbers, is its problem."""
        problem = self.obstacle()
        if not problem and self.shape is None:
            problem = "its shape is not known before the model runs"
        dtype = self.element.widened if self.element else ""
        return TensorInfo(self.name, dtype, self.shape or (), problem, self.node, self.op_type)

    def obstacle(self) -> str:
        """Why its values can never be read as numbers; empty when they can."""
        if self.kind != "tensor":
            return f"it is of the kind {self.kind}, not a tensor"
        if self.element is not None and self.element.dtype == "string":
            return "it holds text, not numbers"
        return ""


def tensor_infos(model: Model, shapes: Mapping[str, tuple[int, ...]] | None = None) -> tuple[TensorInfo, ...]:
    """All tensors in execution order: inputs, then what each node computes. Constants are left out.

    Args:
        model: The model.
        shapes: Actual shapes of inputs, to resolve dynamic ones.
    """
    return tuple(value.info() for value in values(model, shapes))


def values(model: Model, shapes: Mapping[str, tuple[int, ...]] | None = None) -> tuple[Value, ...]:
    """Like `tensor_infos`, but telling what is unknown from what is empty."""
    graph = model.proto.graph
    known = constants(graph)
    types = _types(model, shapes or {})
    fed = [Value(value.name) for value in graph.input if value.name not in known]
    computed = [
        Value(name, node=node.name, op_type=node.op_type, output_index=index)
        for node in graph.node
        if node.op_type != "Constant"
        for index, name in enumerate(node.output)
        if name
    ]
    return tuple(_typed(value, types.get(value.name)) for value in (*fed, *computed))


def ranks(model: Model) -> dict[str, int]:
    """Number of axes of every tensor of which that is known, even if not all its sizes are."""
    kinds = {name: kind.tensor_type for name, kind in _types(model, {}).items()}
    return {name: len(kind.shape.dim) for name, kind in kinds.items() if kind.HasField("shape")}


def _typed(value: Value, declared: Any) -> Value:
    kind = declared.WhichOneof("value") if declared is not None else None
    if kind is None:
        return value
    if kind != "tensor_type":
        return replace(value, kind=kind.removesuffix("_type"))
    tensor = declared.tensor_type
    return replace(value, element=by_number(tensor.elem_type), shape=_shape(tensor))


def _shape(tensor: Any) -> tuple[int, ...] | None:
    if not tensor.HasField("shape"):
        return None
    sizes = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim]
    return tuple(map(int, sizes)) if all(size >= 0 for size in sizes) else None


def declared_types(model: Model) -> dict[str, Any]:
    """The type of every value as the file and inference tell it, with sizes that have names, by name."""
    return _types(model, {})


def _types(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The type of every value that has one, by name."""
    graph = model.proto.graph
    # What the file declares is all there is for operators onnx does not know. With actual shapes given it may
    # not hold: files often declare the sizes they were exported with.
    declared = () if shapes else (*graph.value_info, *graph.output)
    types = {value.name: value.type for value in declared}
    inferred = _infer(_skeleton(model, shapes))
    for value in (*inferred.value_info, *inferred.output, *inferred.input):
        if value.name not in types or _says_more(value.type.tensor_type, types[value.name].tensor_type):
            types[value.name] = value.type
    return types


def _says_more(inferred: Any, declared: Any) -> bool:
    """Whether inference found all sizes, or at least a number of axes where the file gives none."""
    return _shape(inferred) is not None or (inferred.HasField("shape") and not declared.HasField("shape"))


def _infer(light: Any) -> Any:
    """The graph with all types that can be inferred; as it was when inference fails altogether."""
    from onnx.shape_inference import InferenceError, infer_shapes

    for follow_values in (True, False):
        try:
            return infer_shapes(light, data_prop=follow_values).graph
        except (InferenceError, RuntimeError, ValueError, TypeError):
            continue
    return light.graph


def _skeleton(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """The model without its weights, so that inference copies little and works at any size."""
    from onnx import ModelProto

    proto, graph = model.proto, model.proto.graph
    light = ModelProto(opset_import=proto.opset_import, functions=proto.functions)
    # In older versions constants that are not listed among the inputs do not count.
    light.ir_version = max(proto.ir_version, _FIRST_WITH_CONSTANTS)
    light.graph.node.extend(graph.node)
    known = constants(graph)
    for value in graph.input:
        if value.name not in known:
            _add_input(light.graph, value, shapes.get(value.name))
    for tensor in graph.initializer:
        if tensor.data_location != tensor.EXTERNAL and stored_bytes(tensor) <= _SHAPE_BYTES:
            light.graph.initializer.add().CopyFrom(tensor)
        else:
            declared = light.graph.input.add(name=tensor.name).type.tensor_type
            declared.elem_type = tensor.data_type
            for size in tensor.dims:
                declared.shape.dim.add(dim_value=size)
    for value in graph.output:
        light.graph.output.add(name=value.name)
    return light


def _add_input(graph: Any, value: Any, shape: tuple[int, ...] | None) -> None:
    added = graph.input.add()
    added.CopyFrom(value)
    if shape is not None:
        added.type.tensor_type.ClearField("shape")
        added.type.tensor_type.shape.SetInParent()
        for size in shape:
            added.type.tensor_type.shape.dim.add(dim_value=size)


# Element types and ranks of single tensors, inferred only for models where they are not plain.

_FLOAT32 = 1
# float16, float64, bfloat16
_OTHER_FLOATS = frozenset({10, 11, 16})
_TYPE_ATTRIBUTES = frozenset({"to", "dtype"})


class ValueTypes:
    """Types of the tensors of a model that may be quantized.

    Args:
        model: The model.
        known: Its tensors, if somebody knows more of them than can be inferred.
    """

    def __init__(self, model: Model, known: Sequence[Value] | None = None) -> None:
        self._model, self._known = model, known

    def element(self, tensor: str) -> int:
        """Number of the element type of a float tensor; float32 where nothing says otherwise.

        Raises:
            BadInput: It holds no floats.
        """
        stored = self._stored.get(tensor)
        if stored is None and self._known is None and not self._mixed:
            return _FLOAT32
        if stored is None:
            value = self._values.get(tensor)
            stored = value.element.number if value is not None and value.element else _FLOAT32
        if stored != _FLOAT32 and stored not in _OTHER_FLOATS:
            kind = by_number(stored)
            name = kind.dtype if kind else english("of type {stored}", stored=stored)
            what = english(
                "Tensor {tensor!r} of {path} is {name}; only floats can be quantized.",
                tensor=tensor,
                path=self._model.path,
                name=name,
            )
            raise BadInput(what, fix=english("leave it out of the quantization"))
        return stored

    def rank(self, tensor: str) -> int | None:
        """Number of axes; None when unknown."""
        return self._stored_ranks[tensor] if tensor in self._stored_ranks else self._ranks.get(tensor)

    @cached_property
    def _stored_ranks(self) -> dict[str, int]:
        return {tensor.name: len(tensor.dims) for tensor in self._model.proto.graph.initializer}

    @cached_property
    def _ranks(self) -> dict[str, int]:
        if self._known is None:
            return ranks(self._model)
        return {value.name: len(value.shape) for value in self._known if value.shape is not None}

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
        return {value.name: value for value in (values(self._model) if self._known is None else self._known)}


def _mentions_other(attribute: Any) -> bool:
    if attribute.HasField("t"):
        return attribute.t.data_type in _OTHER_FLOATS
    return attribute.name in _TYPE_ATTRIBUTES and attribute.i in _OTHER_FLOATS


_SECOND = frozenset(
    {
        "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool",
        "GlobalMaxPool", "GroupNormalization", "InstanceNormalization", "LRN", "LpPool", "MaxPool", "SpaceToDepth",
    }
)  # fmt: skip
_LAST = frozenset(
    {
        "Attention",
        "FusedMatMul",
        "Gemm",
        "LayerNormalization",
        "MatMul",
        "RMSNormalization",
        "SkipLayerNormalization",
    }
)
# What changes the meaning of axes, so that only the shape can tell.
_RESHAPING = frozenset({"Expand", "Flatten", "Gather", "Reshape", "Squeeze", "Unsqueeze"})
# An image has so many channels.
_IMAGE_CHANNELS = (1, 3, 4)


def channel_axes(model: Model, values: Iterable[Value]) -> dict[str, int]:
    """The channel axis of every tensor that has one.

    Args:
        model: The model.
        values: Its tensors with their shapes.
    """
    shapes = {value.name: value.shape for value in values if value.shape is not None and len(value.shape) > 1}
    found: dict[str, int] = {}
    for value in model.proto.graph.input:
        if value.name in shapes:
            found[value.name] = input_channel_axis(shapes[value.name])
    for node in model.proto.graph.node:
        for name in node.output:
            if name in shapes:
                found[name] = _of_output(node, shapes[name], shapes, found)
    return found


def input_channel_axis(shape: tuple[int, ...]) -> int:
    """The channel axis of an input of the model, by its shape."""
    if len(shape) == 4 and shape[1] not in _IMAGE_CHANNELS and shape[-1] in _IMAGE_CHANNELS:
        return 3
    return channel_axis_of(shape) or 0


def _of_output(
    node: Any, shape: tuple[int, ...], shapes: Mapping[str, tuple[int, ...]], found: Mapping[str, int]
) -> int:
    if node.op_type in _SECOND:
        return 1
    if node.op_type in _LAST:
        return len(shape) - 1
    # Of several inputs the first of the same rank: the others may be spread over it.
    sources = [name for name in node.input if name in found and len(shapes[name]) == len(shape)]
    if node.op_type in _RESHAPING or not sources:
        return channel_axis_of(shape) or 0
    axis = found[sources[0]]
    if node.op_type != "Transpose":
        return axis
    order = next(
        (list(each.ints) for each in node.attribute if each.name == "perm"), list(range(len(shape)))[::-1]
    )
    return order.index(axis)


def weight_axis(op_type: str, rank: int, *, transposed: bool = False) -> int:
    """The axis of a constant that has one slice for each channel of the result.

    Args:
        op_type: Operation of the node that reads it.
        rank: Its number of axes, at least 1.
        transposed: Whether a Gemm takes it transposed.
    """
    if op_type in ("Gemm", "MatMul"):
        return 0 if transposed or rank == 1 else rank - 1
    return 1 if op_type == "ConvTranspose" and rank > 1 else 0


# Mean and variance of each channel of a tensor, over several arrays of it.


def channel_moments(arrays: Sequence[Array], axis: int) -> tuple[Array, Array]:
    """Mean and variance of each channel; every array counts the same.

    Args:
        arrays: At least one; all with the same channels.
        axis: Where the channels are.
    """
    parts = []
    for values in arrays:
        rows = np.moveaxis(values.astype(np.float64), axis, 0).reshape(values.shape[axis], -1)
        parts.append(np.stack([rows.mean(axis=1), np.square(rows).mean(axis=1)]))
    mean, squares = np.mean(parts, axis=0)
    return mean, np.maximum(squares - np.square(mean), 0.0)
