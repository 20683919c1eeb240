"""One graph that computes a network in float and, beside it, whatever some quantizers make of it.

Such a graph answers two questions. What does quantization make of *each node* (`build_copies`: the error of a node
alone, of the whole network up to it, of its own weights and result)? What does the *whole network* compute
with this or that choice of quantizers on (`build_candidates`)? Either way a lane of copies runs beside the float
nodes; what lanes have in common is there once: a copy that reads the same tensors gives the same results.
Constants are quantized before anything runs, once for all lanes, and lie beside the graph.
"""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from roundoff.core.plan import FLOAT
from roundoff.core.quantizers import Consumer, Quantizer, representable_range
from roundoff.core.tensors import Array
from roundoff.graph.draft import Assembly
from roundoff.graph.insertion import Edges
from roundoff.graph.interface import RANDOM_OPS, outputs
from roundoff.graph.load import Model, declared_outside
from roundoff.graph.nodes import by_number, captured, reads, rename_captured
from roundoff.graph.qdq import FLOAT32, WIDEST_COMPUTED, QuantizerNodes, code_element
from roundoff.graph.quantized_model import QuantizedModel, after_quantizers, chain_of
from roundoff.graph.save import drop_unused
from roundoff.graph.shapes import Value, ValueTypes
from roundoff.graph.units import Units, derived_constants, units
from roundoff.graph.weights import Weights
from roundoff.measure.light_pairs import Range

Variant = Literal["local", "accumulated", "own", "coded", "reference"]
"""local: the node fed with the float model's tensors, quantized on entry; accumulated: the quantized model running
through; own: weights and result of the node quantized, its inputs exact; coded: the float tensor, quantized;
reference: local in fake quantization where local is in integers."""

# Quantized weights beyond this many bytes are computed in each run instead of being kept.
_MOST_BAKED_BYTES = 2**30
_FLOAT_BYTES = 4
# Smaller constants may be shapes or limits, which onnxruntime looks at when it reads the graph.
_SHAPE_BYTES = 1024
# Types that onnxruntime takes from numpy.
_SHARED_TYPES = ("float32", "float16", "float64", "int8", "uint8", "int32", "int64")

_Key = TypeVar("_Key", bound=Hashable)


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
class Copies(Generic[_Key]):
    """A graph of copies.

    Attributes:
        model: The graph; its own names are those of the float model, and its larger constants lie beside it.
        taps: Where to read each tensor that nodes compute, by variant or by the number of the candidate. Of a
            candidate what is as in float is not there.
    """

    model: Model
    taps: Mapping[str, Mapping[_Key, Tap]]

    def tap(self, tensor: str, key: _Key) -> Tap:
        """Where to read a tensor of a lane; the float network's own where it is the same."""
        return self.taps.get(tensor, {}).get(key, Tap(tensor))

    @property
    def constant_bytes(self) -> int:
        """Size of the constants beside the graph."""
        return sum(values.nbytes for values in self.model.beside.values())


@dataclass(slots=True)
class KnownConstants:
    """Constants of earlier graphs of the same network, so that weights are read and quantized once for all.

    Attributes:
        stored: Those of the float model, by name.
        quantized: What quantizers make of them. Keys are the identities of the quantizers, since two of the same
            name may have other numbers; the quantizers are held so that no other gets their identity.
    """

    stored: dict[str, Array] = field(default_factory=dict)
    quantized: dict[tuple[int, ...], tuple[Sequence[Quantizer], Array]] = field(default_factory=dict)

    def values(self, chain: Sequence[Quantizer], weights: Weights) -> Array:
        """What a chain of quantizers makes of its constant, in float32."""
        key = tuple(map(id, chain))
        if key not in self.quantized:
            values = weights[chain[0].tensor].astype(np.float32, copy=False)
            self.quantized[key] = chain, after_quantizers(values, chain)
        return self.quantized[key][1]


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
    quantized: QuantizedModel, variants: Collection[Variant], *, known: KnownConstants | None = None
) -> Copies[Variant]:
    """Put copies of all nodes beside the float model; each tensor is tapped as its quantizer writes it.

    Args:
        quantized: The float model and its quantizers.
        variants: Which copies.
        known: Constants of earlier calls; filled here.

    Raises:
        BadInput: A quantizer does not fit the model, or ONNX cannot express it.
    """
    model = quantized.float_model
    # In this order the values that run through are there before others need only their codes.
    order: tuple[Variant, ...] = ("accumulated", "local", "own", "coded")
    lanes = {variant: _Lane(model, quantized.quantizers, variant) for variant in order if variant in variants}
    builder = _CopyBuilder(model, known)
    taps: dict[str, dict[Variant, Tap]] = {}
    for node in model.proto.graph.node:
        builder.add(node, lanes.values())
        if node.op_type != "Constant":
            for tensor in filter(None, node.output):
                taps[tensor] = {variant: builder.tap(lane, tensor) for variant, lane in lanes.items()}
    for value in model.proto.graph.input:
        if value.name not in builder.constants and "coded" in lanes:
            taps[value.name] = {"coded": builder.tap(lanes["coded"], value.name)}
    return Copies(builder.model(), taps)


def build_candidates(
    model: Model, choices: Sequence[Sequence[Quantizer]], *, known: KnownConstants | None = None
) -> Copies[int]:
    """Put candidates for a network beside it, as it runs with some quantizers on; tensors are tapped as computed.

    Args:
        model: The float model.
        choices: For each candidate the quantizers that are on. One that follows another which is not among them
            quantizes the float values.
        known: Constants of earlier calls; filled here.

    Raises:
        BadInput: A quantizer does not fit the model, or ONNX cannot express it.
    """
    lanes = [_Lane(model, quantizers, "accumulated") for quantizers in choices]
    builder = _CopyBuilder(model, known)
    for node in model.proto.graph.node:
        builder.add(node, lanes)
    taps: dict[str, dict[int, Tap]] = {}
    for number, lane in enumerate(lanes):
        for tensor, name in lane.raw.items():
            taps.setdefault(tensor, {})[number] = Tap(name)
        for tensor, quantizer in lane.edges.leaving.items():
            taps.setdefault(tensor, {})[number] = Tap(builder.leaving(lane, quantizer))
    return Copies(builder.model(), taps)


def without_unread(model: Model, tensors: Collection[str]) -> Model:
    """A graph of copies without what these tensors do not need; its graph is changed, being nobody else's."""
    from onnx.helper import make_empty_tensor_value_info

    graph = model.proto.graph
    del graph.output[:]
    graph.output.extend(make_empty_tensor_value_info(name) for name in tensors)
    needed = set(tensors)
    for index in reversed(range(len(graph.node))):
        if needed.isdisjoint(graph.node[index].output):
            del graph.node[index]
        else:
            needed.update(reads(graph.node[index]))
    drop_unused(graph)
    held = {tensor.name for tensor in graph.initializer}
    return replace(model, beside={name: values for name, values in model.beside.items() if name in held})


class _Lane:
    """One way to run the network beside itself.

    Attributes:
        variant: What its nodes read.
        edges: Its quantizers, by where they act.
        raw: Names of its tensors that are not those of the float network, before their quantizers.
    """

    def __init__(self, model: Model, quantizers: Sequence[Quantizer], variant: Variant) -> None:
        self._model, self._quantizers = model, quantizers
        self.variant = variant
        self.edges = Edges(model, quantizers)
        self._by_name = {each.name: each for each in quantizers}
        self.raw: dict[str, str] = {}

    def chain(self, quantizer: Quantizer) -> list[Quantizer]:
        """A quantizer and those before it, the first first."""
        return chain_of(quantizer, self._by_name)

    @cached_property
    def units(self) -> Units:
        """What is computed as one, with nothing rounded inside."""
        return units(self._model, self._quantizers)

    @cached_property
    def written(self) -> dict[str, Quantizer]:
        """The quantizer by which each tensor is written."""
        return written_quantizers(self._model, self.edges)


class _CopyBuilder:
    """A graph under construction. Nodes of the float network are added one after the other, with their copies."""

    def __init__(self, model: Model, known: KnownConstants | None) -> None:
        self._model = model
        self._known = KnownConstants() if known is None else known
        self._types = ValueTypes(model)
        self._weights = Weights(model)
        self._derived = derived_constants(model.proto.graph)
        self._graph = Assembly(model)
        self._nodes: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        self._quantizers = QuantizerNodes(self._graph, self._types)
        self._baked: dict[tuple[int, ...], str] = {}
        self._baked_bytes = 0
        self._beside: dict[str, Array] = {}
        for tensor in model.proto.graph.initializer:
            self._add_initializer(tensor)

    @property
    def constants(self) -> Collection[str]:
        """Names of the float network's initializers."""
        return self._weights.protos

    def model(self) -> Model:
        """The graph."""
        return Model(self._graph.proto, self._model.path, self._model.file_bytes, beside=self._beside)

    def _add_initializer(self, tensor: Any) -> None:
        """Add a constant of the float model, without copying one that is large."""
        element = by_number(tensor.data_type)
        stored = tensor.data_location == tensor.EXTERNAL or len(tensor.raw_data) <= _SHAPE_BYTES
        if stored or element is None or element.dtype not in _SHARED_TYPES:
            self._graph.add_tensor(tensor)
            return
        if tensor.name not in self._known.stored:
            self._known.stored[tensor.name] = self._weights[tensor.name]
        self._declare(tensor.name, self._known.stored[tensor.name])

    def _declare(self, name: str, values: Array) -> None:
        """Add a constant whose values the session gets beside the graph."""
        self._graph.add_tensor(declared_outside(name, values, self._model))
        self._beside[name] = values

    def add(self, node: Any, lanes: Collection[_Lane]) -> None:
        """Add a node of the float network, and what each lane makes of it."""
        self._graph.copy_node(node)
        for lane in lanes:
            written = zip(node.output, self._copy(node, lane), strict=True)
            lane.raw.update((old, new) for old, new in written if old != new)

    def _copy(self, node: Any, lane: _Lane) -> Sequence[str]:
        """Add a copy of a node unless it would compute what is there already; gives the names of its outputs."""
        # Two copies of what is random would give two results.
        if lane.variant == "coded" or node.op_type in RANDOM_OPS:
            return list(node.output)
        wanted = [
            self._input(node, position, lane=lane) if name else "" for position, name in enumerate(node.input)
        ]
        # Subgraphs may also capture what the node reads as an input; those of a node alone read the float values.
        inner = captured(node) if lane.variant == "accumulated" else ()
        renamed = {name: lane.raw.get(name, name) for name in inner}
        if wanted == list(node.input) and all(old == new for old, new in renamed.items()):
            return list(node.output)
        key = node.name, (*wanted, *renamed.values())
        if key not in self._nodes:
            copy = self._graph.copy_node(node)
            copy.name = f"{node.name}//{len(self._nodes)}"
            for position, name in enumerate(wanted):
                copy.input[position] = name
            for position, name in enumerate(node.output):
                copy.output[position] = self._graph.free_tensor(f"{name}//{lane.variant}") if name else ""
            rename_captured(copy, renamed)
            self._nodes[key] = list(copy.output)
        return self._nodes[key]

    def _input(self, node: Any, position: int, *, lane: _Lane) -> str:
        """What a copy of a node reads where the node itself reads a tensor."""
        tensor: str = node.input[position]
        through = lane.variant == "accumulated"
        quantizer = lane.edges.read_by(node.name, position)
        raw = lane.raw.get(tensor, tensor)
        if quantizer is None:
            return raw if through or Consumer(node.name, position) in lane.units.inside else tensor
        if tensor in self._weights.protos:
            return self._constant(lane.chain(quantizer))
        if through:
            return self._quantizers.add(lane.chain(quantizer), raw)
        if lane.variant == "local" or tensor in self._derived:
            return self._quantizers.add(lane.chain(quantizer), tensor)
        # The tensor's own quantizer is the affair of the node that computes it; another one is that of its reader.
        return tensor if quantizer is lane.written.get(tensor) else self._quantizers.add([quantizer], tensor)

    def leaving(self, lane: _Lane, quantizer: Quantizer) -> str:
        """The values of a tensor that leaves the network by a quantizer."""
        chain = lane.chain(quantizer)
        if quantizer.tensor in self._weights.protos:
            return self._constant(chain)
        return self._quantizers.add(chain, lane.raw.get(quantizer.tensor, quantizer.tensor))

    def tap(self, lane: _Lane, tensor: str) -> Tap:
        """Where to read a tensor as its quantizer writes it: as codes where one scale says what they mean."""
        raw = lane.raw.get(tensor, tensor)
        quantizer = lane.written.get(tensor)
        if quantizer is None:
            return Tap(raw)
        chain = lane.chain(quantizer)
        # numpy must have a type for the codes, and one scale must turn them into the values that go on.
        plain = self._types.element(quantizer.tensor) == FLOAT32 and quantizer.params.scale.size == 1
        if not plain or code_element(quantizer.spec).bits not in (8, 16):
            return Tap(self._quantizers.add(chain, raw))
        source = self._quantizers.add(chain[:-1], raw)
        codes = self._quantizers.codes(quantizer, source, alone=lane.variant != "accumulated")
        return Tap(codes, coded=True)

    def _constant(self, chain: Sequence[Quantizer]) -> str:
        """The name of a constant after quantizers, computed now, or in each run where that would take too much."""
        from onnx.numpy_helper import from_array

        tensor, key = chain[0].tensor, tuple(map(id, chain))
        if key in self._baked:
            return self._baked[key]
        computable = chain[-1].kind == "weight" and all(
            each.codes is None and each.spec.bits <= WIDEST_COMPUTED for each in chain
        )
        size = math.prod(self._weights.shape(tensor)) * _FLOAT_BYTES
        if computable and key not in self._known.quantized and self._baked_bytes + size > _MOST_BAKED_BYTES:
            return self._quantizers.add(chain, tensor)
        values = self._known.values(chain, self._weights)
        self._baked_bytes += values.nbytes
        name = self._graph.free_tensor(f"{tensor}//{chain[-1].name}")
        if values.nbytes > _SHAPE_BYTES:
            self._declare(name, values)
        else:
            self._graph.add_tensor(from_array(values, name))
        # Half precision by a node, as in the models that are written: where onnxruntime computes it in float32, it
        # leaves such casts out, and rounding here would be one more than there.
        element = self._types.element(tensor)
        if element != FLOAT32:
            source, name = name, self._graph.free_tensor(f"{name}//cast")
            self._graph.add_node("Cast", [source], name, name=name, attributes={"to": element})
        self._baked[key] = name
        return name


# The tensors that have a row in a layer-by-layer run, and what is known of them before it.


FUSED = "fused"
"""Instead of a type: the tensor never leaves its unit."""


@dataclass(frozen=True, slots=True)
class LayerTensor:
    """One tensor that a node computes, or an input of the network.

    Attributes:
        value: Its name, node, type and shape.
        unit: First node of the unit it is computed in; empty for inputs.
        quantized: dtype of its codes, ``float`` or ``fused``.
        quantizer: By which it is written; None when it is not quantized.
        output: Whether it is an output of the network.
    """

    value: Value
    unit: str
    quantized: str
    quantizer: Quantizer | None
    output: bool

    @property
    def name(self) -> str:
        """Its name."""
        return self.value.name

    @property
    def levels(self) -> int | None:
        """How many codes its quantizer has."""
        spec = None if self.quantizer is None else self.quantizer.spec
        return None if spec is None else spec.code_max - spec.code_min + 1

    @property
    def limits(self) -> Range | None:
        """What its quantizer can represent."""
        if self.quantizer is None:
            return None
        params, spec = self.quantizer.params, self.quantizer.spec
        low, high = representable_range(params, spec)
        half = params.scale.astype(np.float64) / 2
        # Within half a step of a code it is rounding, not clipping.
        # Limits beyond what float32 holds are infinite: nothing is clipped there.
        with np.errstate(over="ignore"):
            parts = [np.asarray(part, dtype=np.float32) for part in (low - half, high + half, params.scale)]
        per_slice = self.axis is not None
        return Range(*(part if per_slice else part.reshape(()) for part in parts))

    @property
    def axis(self) -> int | None:
        """The axis along which its quantizer has one scale per slice; None when there is one for all."""
        if self.quantizer is None or self.quantizer.params.scale.size == 1:
            return None
        return self.quantizer.spec.axis


def layer_tensors(quantized: QuantizedModel, everything: Sequence[Value]) -> tuple[LayerTensor, ...]:
    """All tensors of the float network in execution order, its inputs first.

    Args:
        quantized: The float network and its quantizers.
        everything: What is known of its tensors.
    """
    model = quantized.float_model
    written = written_quantizers(model, Edges(model, quantized.quantizers))
    grouped = units(model, quantized.quantizers)
    within = _inside(quantized, grouped)
    leaving = frozenset(outputs(model))
    found = []
    for value in everything:
        quantizer = written.get(value.name)
        label = FUSED if value.name in within else FLOAT
        found.append(
            LayerTensor(
                value=value,
                unit=grouped.unit_of.get(value.node, value.node),
                quantized=label if quantizer is None else quantizer.spec.dtype,
                quantizer=quantizer,
                output=value.name in leaving,
            )
        )
    return tuple(found)


def _inside(quantized: QuantizedModel, grouped: Units) -> frozenset[str]:
    return frozenset(
        name
        for node in quantized.float_model.proto.graph.node
        for position, name in enumerate(node.input)
        if Consumer(node.name, position) in grouped.inside
    )
