"""One graph that computes a network in float and, beside it, what quantization makes of each of its nodes.

Copies share the weights, which are quantized once, before anything runs.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from roundoff.core.quantizers import Consumer, Quantizer, dequantize, fake_quantize
from roundoff.core.tensors import Array
from roundoff.graph.draft import Assembly
from roundoff.graph.fake_constants import fake_quantized
from roundoff.graph.insertion import Edges
from roundoff.graph.interface import RANDOM_OPS, outputs
from roundoff.graph.load import Model, declared_outside
from roundoff.graph.qdq import FLOAT32, add_quantizer, code_element
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import ValueTypes
from roundoff.graph.units import Units, derived_constants, units
from roundoff.graph.weights import Weights
from roundoff.graph.wiring import by_number, captured, rename_captured

__all__ = ["Copies", "Tap", "Variant", "build_copies", "written_quantizers"]

Variant = Literal["local", "accumulated", "own", "coded", "reference"]
"""local: the node fed with the float model's tensors, quantized on entry; accumulated: the quantized model running
through; own: weights and result of the node quantized, its inputs exact; coded: the float tensor, quantized;
reference: local in fake quantization where local is in integers."""

# Quantized weights beyond this many bytes are computed in each run instead of being kept.
_MOST_BAKED_BYTES = 2**30
# Smaller constants may be shapes or limits, which onnxruntime looks at when it reads the graph.
_SHAPE_BYTES = 1024
# Types that onnxruntime takes from numpy.
_SHARED_TYPES = ("float32", "float16", "float64", "int8", "uint8", "int32", "int64")


@dataclass(frozen=True, slots=True)
class Tap:
    """Where a copy of a tensor can be read.

    Attributes:
        name: Its name in the graph of copies.
        coded: Whether it holds the codes of the tensor's quantizer rather than values.
    """

    name: str
    coded: bool = False


@dataclass(frozen=True, slots=True)
class Copies:
    """A graph of copies.

    Attributes:
        model: The graph; its own names are those of the float model.
        constants: Values of initializers that the graph only declares; see `roundoff.graph.subgraph.TappedModel`.
        taps: Where to read each tensor that nodes compute, by variant.
    """

    model: Model
    constants: dict[str, Array]
    taps: dict[str, dict[Variant, Tap]]

    @property
    def constant_bytes(self) -> int:
        """Size of these values."""
        return sum(values.nbytes for values in self.constants.values())


def written_quantizers(model: Model, edges: Edges) -> dict[str, Quantizer]:
    """The quantizer by which each tensor is written: for an output what leaves the network, else the first of all.

    Those of its readers that quantize it again do not count; of several that do not, the one most nodes read.
    """
    leaving = set(outputs(model))
    found: dict[str, Quantizer] = {}
    fed = [value.name for value in model.proto.graph.input]
    for tensor in (*fed, *(name for node in model.proto.graph.node for name in node.output if name)):
        if tensor in leaving:
            first = [edges.leaving[tensor]] if tensor in edges.leaving else []
        else:
            first = [_root(quantizer, edges) for quantizer in edges.of_tensor(tensor)]
        if first:
            found[tensor] = max(first, key=lambda quantizer: len(quantizer.consumers))
    return found


def _root(quantizer: Quantizer, edges: Edges) -> Quantizer:
    before = edges.before(quantizer)
    return quantizer if before is None else _root(before, edges)


def build_copies(
    quantized: QuantizedModel, variants: Collection[Variant], *, known: dict[str, Array] | None = None
) -> Copies:
    """Put copies of all nodes beside the float model.

    Args:
        quantized: The float model and its quantizers.
        variants: Which copies.
        known: Constants of an earlier call, by tensor and quantizer; filled here.

    Raises:
        BadInput: A quantizer does not fit the model, or ONNX cannot express it.
    """
    return _Builder(quantized, {} if known is None else known).build(variants)


class _Builder:
    def __init__(self, quantized: QuantizedModel, known: dict[str, Array]) -> None:
        self._model = quantized.float_model
        self._edges = Edges(self._model, quantized.quantizers)
        self._units: Units = units(self._model, quantized.quantizers)
        self._written = written_quantizers(self._model, self._edges)
        self._types = ValueTypes(self._model)
        self._weights = Weights(self._model)
        self._constant = derived_constants(self._model.proto.graph)
        self._graph = Assembly(self._model)
        self._raw: dict[Variant, dict[str, str]] = {}
        self._nodes: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        self._values: dict[tuple[str, str], str] = {}
        self._codes: dict[tuple[str, str], str] = {}
        self._baked: dict[str, str] = {}
        self._baked_bytes = 0
        self._known = known
        self._constants: dict[str, Array] = {}

    def build(self, variants: Collection[Variant]) -> Copies:
        graph = self._model.proto.graph
        for tensor in graph.initializer:
            self._add_initializer(tensor)
        # In this order the values that run through are there before others need only their codes.
        order: tuple[Variant, ...] = ("accumulated", "local", "own", "coded")
        ordered = [variant for variant in order if variant in variants]
        self._raw = {variant: {} for variant in ordered}
        taps: dict[str, dict[Variant, Tap]] = {}
        for node in graph.node:
            self._graph.copy_node(node)
            for variant in ordered:
                copied = self._copy(node, variant)
                self._raw[variant] |= zip(node.output, copied, strict=True)
            if node.op_type != "Constant":
                for tensor in filter(None, node.output):
                    taps[tensor] = {variant: self._tap(tensor, variant) for variant in ordered}
        for value in graph.input:
            if value.name not in self._weights.protos and "coded" in variants:
                taps[value.name] = {"coded": self._tap(value.name, "coded")}
        model = Model(self._graph.proto, self._model.path, self._model.file_bytes)
        return Copies(model, self._constants, taps)

    def _add_initializer(self, tensor: Any) -> None:
        """Add a constant of the float model, without copying one that is large."""
        element = by_number(tensor.data_type)
        stored = tensor.data_location == tensor.EXTERNAL or len(tensor.raw_data) <= _SHAPE_BYTES
        if stored or element is None or element.dtype not in _SHARED_TYPES:
            self._graph.add_tensor(tensor)
            return
        if tensor.name not in self._known:
            self._known[tensor.name] = self._weights[tensor.name]
        self._declare(tensor.name, self._known[tensor.name])

    def _declare(self, name: str, values: Array) -> None:
        """Add a constant whose values the session gets beside the graph."""
        self._graph.add_tensor(declared_outside(name, values))
        self._constants[name] = values

    def _copy(self, node: Any, variant: Variant) -> Sequence[str]:
        """Add a copy of a node unless it would compute what is there already; gives the names of its outputs."""
        outputs = list(node.output)
        # Two copies of what is random would give two results.
        if variant == "coded" or node.op_type in RANDOM_OPS:
            return outputs
        wanted = [
            self._input(node, position, name, variant) if name else "" for position, name in enumerate(node.input)
        ]
        # Subgraphs may also capture what the node reads as an input.
        inner = captured(node) if variant == "accumulated" else ()
        renamed = {name: self._raw[variant].get(name, name) for name in inner}
        if wanted == list(node.input) and all(old == new for old, new in renamed.items()):
            return outputs
        key = node.name, (*wanted, *renamed.values())
        if key not in self._nodes:
            copy = self._graph.copy_node(node)
            copy.name = f"{node.name}//{variant}"
            for position, name in enumerate(wanted):
                copy.input[position] = name
            for position, name in enumerate(outputs):
                copy.output[position] = self._graph.free_tensor(f"{name}//{variant}") if name else ""
            rename_captured(copy, renamed)
            self._nodes[key] = list(copy.output)
        return self._nodes[key]

    def _input(self, node: Any, position: int, tensor: str, variant: Variant) -> str:
        """What a copy of a node reads where the node itself reads a tensor."""
        quantizer = self._edges.read_by(node.name, position)
        raw = self._raw[variant].get(tensor, tensor)
        if quantizer is None:
            inside = Consumer(node.name, position) in self._units.inside
            return raw if inside or variant == "accumulated" else tensor
        if tensor in self._weights.protos:
            return self._constant_values(quantizer)
        if tensor in self._constant:
            return self._quantized(quantizer, tensor)
        if variant == "accumulated":
            return self._quantized(quantizer, raw)
        if variant == "local":
            return self._quantized(quantizer, tensor)
        # The tensor's own quantizer is the affair of the node that computes it; another one is that of its reader.
        return tensor if quantizer is self._written.get(tensor) else self._quantized_once(quantizer, tensor)

    def _tap(self, tensor: str, variant: Variant) -> Tap:
        raw = self._raw[variant].get(tensor, tensor)
        quantizer = self._written.get(tensor)
        if quantizer is None:
            return Tap(raw)
        if not self._readable_codes(quantizer):
            return Tap(self._quantized(quantizer, raw))
        before = self._edges.before(quantizer)
        key = quantizer.name, raw if before is None else self._quantized(before, raw)
        if variant == "accumulated":
            self._quantized_once(quantizer, key[1])
        elif key not in self._codes:
            self._quantized_once(quantizer, key[1])
            # Nothing reads the values, and computing them would take as long as the codes.
            del self._values[key]
            del self._graph.proto.graph.node[-1]
        return Tap(self._codes[key], coded=True)

    def _readable_codes(self, quantizer: Quantizer) -> bool:
        """Whether numpy has a type for the codes, and one scale turns them into the values that go on."""
        plain = self._types.element(quantizer.tensor) == FLOAT32 and quantizer.params.scale.size == 1
        return plain and code_element(quantizer.spec).bits in (8, 16)

    def _quantized(self, quantizer: Quantizer, source: str) -> str:
        """The values of a tensor, or of a copy of it, after a quantizer and those before it."""
        before = self._edges.before(quantizer)
        return self._quantized_once(quantizer, source if before is None else self._quantized(before, source))

    def _quantized_once(self, quantizer: Quantizer, source: str) -> str:
        key = quantizer.name, source
        if key not in self._values:
            target = self._graph.free_tensor(f"{source}//{quantizer.name}")
            element = self._types.element(quantizer.tensor)
            rank = self._types.rank(quantizer.tensor) if quantizer.spec.axis is not None else None
            add_quantizer(self._graph, quantizer, source, target=target, element=element, rank=rank)
            self._values[key] = target
            self._codes[key] = next(
                node.input[0]
                for node in reversed(self._graph.proto.graph.node)
                if node.op_type == "DequantizeLinear"
            )
        return self._values[key]

    def _constant_values(self, quantizer: Quantizer) -> str:
        """The name of a quantized constant."""
        from onnx.numpy_helper import from_array

        if quantizer.name in self._baked:
            return self._baked[quantizer.name]
        name = f"{quantizer.tensor}//{quantizer.name}"
        if name not in self._known:
            values = self._weights[quantizer.tensor]
            computable = quantizer.codes is None and quantizer.kind == "weight"
            if computable and self._baked_bytes + values.nbytes > _MOST_BAKED_BYTES:
                return self._quantized(quantizer, quantizer.tensor)
            self._known[name] = self._quantized_constant(quantizer, values).astype(np.float32, copy=False)
        values = self._known[name]
        self._baked_bytes += values.nbytes
        free = self._graph.free_tensor(name)
        if values.nbytes > _SHAPE_BYTES:
            self._declare(free, values)
        else:
            self._graph.add_tensor(from_array(values, free))
        self._baked[quantizer.name] = self._as_stored(quantizer, free)
        return self._baked[quantizer.name]

    def _as_stored(self, quantizer: Quantizer, constant: str) -> str:
        """A dequantized constant in the type of the tensor.

        By a node, as in the models that are written: where onnxruntime computes half precision in float32, it
        leaves such casts out, and rounding here would be one more than there.
        """
        element = self._types.element(quantizer.tensor)
        if element == FLOAT32:
            return constant
        target = self._graph.free_tensor(f"{constant}//cast")
        self._graph.add_node("Cast", [constant], target, name=target, attributes={"to": element})
        return target

    def _quantized_constant(self, quantizer: Quantizer, values: Array) -> Array:
        if quantizer.codes is not None:
            return dequantize(quantizer.codes, quantizer.params, quantizer.spec.axis)
        before = self._edges.before(quantizer)
        if before is not None:
            values = self._quantized_constant(before, values)
        if values.dtype == np.float32:
            return fake_quantized(values, quantizer)
        return fake_quantize(values, quantizer.params, quantizer.spec)
