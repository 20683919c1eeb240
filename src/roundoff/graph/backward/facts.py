"""What is known of a model before it runs, for rules that need it: shapes, types, and values that never change."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from roundoff.core.tensors import Array, DType
from roundoff.errors import BadInput, nearest
from roundoff.graph.assembly import STANDARD_DOMAINS, opset_of
from roundoff.graph.element_types import ElementType, by_number
from roundoff.graph.evaluation import CannotEvaluate, evaluate
from roundoff.graph.load import Model
from roundoff.graph.pointwise import attributes
from roundoff.graph.shapes import Value, values
from roundoff.graph.weights import Weights, tensor_dtype
from roundoff.graph.wiring import subgraphs

__all__ = ["Facts"]

_FLOATS = frozenset({"float16", "float32", "float64", "bfloat16", "complex64", "complex128"})
# What tensors hold that say how large others are.
_SIZES = frozenset({"int32", "int64"})
# Values that rules ask for are axes, bounds and sizes; anything larger is data.
_MOST_ELEMENTS = 1 << 18
_RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
)


class Facts:
    """Shapes, types and unchanging values of a model's tensors.

    Attributes:
        model: The model.
        opset: Version of the standard operators.

    Args:
        model: The model.
        shapes: Actual shapes of inputs, to resolve dynamic ones; those of other tensors may be given as well.

    Raises:
        BadInput: A shape is given for a tensor that is not there.
    """

    def __init__(self, model: Model, shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        self.model = model
        self.opset = opset_of(model.proto)
        self.producers = {name: node for node in model.proto.graph.node for name in node.output if name}
        # What the file says of types holds whatever the shapes are, also for operators that are not known here.
        described = (*model.proto.graph.value_info, *model.proto.graph.output)
        self._declared = {value.name: value.type.tensor_type.elem_type for value in described}
        self._weights = Weights(model)
        self._static: dict[str, Array | None] = {}
        self._given = {name: tuple(shape) for name, shape in (shapes or {}).items()}
        known = {*self.producers, *self._weights.protos, *(value.name for value in model.proto.graph.input)}
        for name in self._given:
            if name not in known:
                raise BadInput(
                    f"A shape is given for {name!r}, which {model.path} does not have.", fix=nearest(name, known)
                )
        self._values: dict[str, Value] = {}
        self._corrected: dict[str, tuple[int, ...]] = {}
        self._unchanging: set[str] = set()
        self._infer()

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a tensor; None when it is not known before the model runs."""
        for shapes in (self._given, self._corrected):
            if name in shapes:
                return shapes[name]
        if name in self._weights.protos:
            return self._weights.shape(name)
        value = self._values.get(name)
        return None if value is None else value.shape

    def element(self, name: str) -> ElementType | None:
        """The element type of a tensor; None when unknown."""
        holder = self._weights.protos.get(name)
        if holder is not None:
            return by_number(holder.data_type if hasattr(holder, "dims") else _held_type(holder))
        value = self._values.get(name)
        if value is not None and value.element is not None:
            return value.element
        return by_number(self._declared.get(name, 0))

    def is_tensor(self, name: str) -> bool:
        """Whether a value is a tensor, as far as is known."""
        value = self._values.get(name)
        return value is None or value.kind == "tensor"

    def is_float(self, name: str) -> bool:
        """Whether a tensor holds floats; what is of unknown type, or no tensor at all, may."""
        element = self.element(name)
        return not self.is_tensor(name) or element is None or element.dtype in _FLOATS

    def dtype(self, name: str) -> DType:
        """The numpy type of a float tensor; float32 when nothing is known."""
        from onnx import TensorProto

        element = self.element(name)
        return tensor_dtype(TensorProto(data_type=1 if element is None else element.number))

    def value(self, name: str) -> Array | None:
        """The values of a tensor that does not depend on the model's inputs but for their shapes, or None."""
        if name not in self._static:
            self._static[name] = self._compute(name)
        return self._static[name]

    def _infer(self) -> None:
        """Infer shapes, again as long as what was learned from them brings new ones."""
        folded: dict[str, Array] = {}
        while True:
            shapes = self._corrected | self._given
            self._values = {value.name: value for value in _inferred(self.model, shapes, folded)}
            wrong = {name: shape for name, shape in self._cut_off() if self.shape(name) != shape}
            self._corrected |= wrong
            # What could not be computed before may have become known.
            self._static = {name: value for name, value in self._static.items() if value is not None}
            self._find_unchanging()
            fresh = [name for name in self._unsettled() if name not in folded and self.value(name) is not None]
            folded |= {name: value for name in fresh if (value := self.value(name)) is not None}
            if not fresh and wrong.keys() <= self._given.keys():
                return

    def _cut_off(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Shapes of poolings that round sizes up. Inference counts a window that lies wholly in the padding."""
        for node in self.model.proto.graph.node:
            if node.op_type not in ("AveragePool", "LpPool", "MaxPool") or node.domain not in STANDARD_DOMAINS:
                continue
            held, shape = attributes(node), self.shape(node.input[0])
            if shape is None or not held.get("ceil_mode") or held.get("auto_pad", b"NOTSET") != b"NOTSET":
                continue
            rank = len(shape) - 2
            pads, strides = held.get("pads", [0] * 2 * rank), held.get("strides", [1] * rank)
            reaches = [
                (kernel - 1) * dilation + 1
                for kernel, dilation in zip(held["kernel_shape"], held.get("dilations", [1] * rank), strict=True)
            ]
            counts = []
            for axis, size in enumerate(shape[2:]):
                room = size + pads[axis] + pads[axis + rank] - reaches[axis]
                last = -(-room // strides[axis])
                counts.append(last + (last * strides[axis] < size + pads[axis]))
            yield from ((name, (*shape[:2], *counts)) for name in node.output if name)

    def _unsettled(self) -> Iterator[str]:
        """Computed integers that decide a shape which is not known yet."""
        for node in self.model.proto.graph.node:
            if all(self.shape(name) is not None for name in node.output if name):
                continue
            for name in node.input:
                element = self.element(name)
                if name in self.producers and element is not None and element.dtype in _SIZES:
                    yield name

    def _find_unchanging(self) -> None:
        """Find the tensors that are computed from constants and known shapes alone."""
        small = (name for name in self._weights.protos if math.prod(self._weights.shape(name)) <= _MOST_ELEMENTS)
        self._unchanging = {"", *small}
        for node in self.model.proto.graph.node:
            plain = node.domain in STANDARD_DOMAINS and node.op_type not in _RANDOM and not any(subgraphs(node))
            if self._of_shape(node) is not None or (
                plain and node.input and self._unchanging.issuperset(node.input)
            ):
                self._unchanging.update(node.output)

    def _compute(self, name: str) -> Array | None:
        if name not in self._unchanging:
            return None
        nodes: dict[str, Any] = {}
        feeds: dict[str, Array] = {}
        waiting = [name]
        while waiting:
            tensor = waiting.pop()
            node = self.producers.get(tensor)
            if tensor in self._weights.protos:
                feeds[tensor] = self._weights[tensor]
            elif node is not None and (size := self._of_shape(node)) is not None:
                feeds[tensor] = size
            elif node is not None and node.name not in nodes:
                nodes[node.name] = node
                waiting.extend(node.input)
        if name in feeds:
            return feeds[name]
        ordered = [node for node in self.model.proto.graph.node if node.name in nodes]
        try:
            return evaluate(ordered, feeds, [name], model=self.model)[0]
        except CannotEvaluate:
            return None

    def _of_shape(self, node: Any) -> Array | None:
        """What a Shape or Size node gives, if that is known."""
        if node.op_type not in ("Shape", "Size"):
            return None
        shape = self.shape(node.input[0])
        if shape is None:
            return None
        if node.op_type == "Size":
            return np.asarray(math.prod(shape), np.int64)
        held = attributes(node)
        return np.asarray(shape[held.get("start", 0) : held.get("end")], np.int64)


def _held_type(constant: Any) -> int:
    """The element type of what a Constant node holds."""
    attribute = constant.attribute[0]
    if attribute.HasField("t"):
        return int(attribute.t.data_type)
    return 1 if attribute.name.startswith("value_float") else 7


def _inferred(
    model: Model, shapes: Mapping[str, tuple[int, ...]], folded: Mapping[str, Array]
) -> tuple[Value, ...]:
    """What inference says of a model, given shapes of some of its tensors and the values of others."""
    inputs = {value.name for value in model.proto.graph.input}
    given = {name: shape for name, shape in shapes.items() if name in inputs}
    found = values(model, given)
    between = {name: shape for name, shape in shapes.items() if name not in inputs}
    if not between and not folded:
        return found
    # Inference cannot be told what comes out in between, but what goes in.
    known = {value.name: value for value in found}
    light = _light_copy(model, without={*between, *folded})
    for name in between:
        value = known.get(name)
        element = value.element.number if value is not None and value.element is not None else 1
        light.graph.input.add(name=name).type.tensor_type.elem_type = element
    from onnx.numpy_helper import from_array

    light.graph.initializer.extend(from_array(array, name) for name, array in folded.items())
    again = values(Model(light, model.path, model.file_bytes), shapes)
    return (*found, *again)


def _light_copy(model: Model, *, without: set[str]) -> Any:
    """A copy of a model without the values of larger weights, and without the nodes of which no result is kept."""
    from onnx import ModelProto

    source, graph = model.proto, model.proto.graph
    light = ModelProto(ir_version=source.ir_version, opset_import=source.opset_import, functions=source.functions)
    for field in ("input", "output"):
        getattr(light.graph, field).extend(getattr(graph, field))
    for tensor in graph.initializer:
        if math.prod(tensor.dims) > _MOST_ELEMENTS:
            light.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        else:
            light.graph.initializer.append(tensor)
    light.graph.node.extend(
        node for node in graph.node if not without.issuperset(name for name in node.output if name)
    )
    return light
