"""Layers of a quantized model, and the quantizers of their input, weight and bias."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from roundoff.core.quantizers import Consumer, Quantizer
from roundoff.core.tensors import Array
from roundoff.graph.blocks import BlockModels, ModelBlock, Reading
from roundoff.graph.load import Model
from roundoff.graph.nodes import STANDARD_DOMAINS, attribute, consumers, reads
from roundoff.graph.patterns import attributes
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import values
from roundoff.graph.units import derived_constants
from roundoff.graph.weights import Weights
from roundoff.quantize.steps import StepContext
from roundoff.run.bench import spread
from roundoff.run.block_chain import TensorStore
from roundoff.run.budget import memory_limit, useful_threads
from roundoff.run.capture import complete_values, read_feed
from roundoff.run.integer.convolution import conv_geometry, pad_spatial
from roundoff.run.session import interruptible, open_session

_SOURCE, _WEIGHT, _BIAS = 0, 1, 2
_AXES = {"Conv": 1, "ConvTranspose": 1, "Gemm": 1, "MatMul": -1}


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedLayer:
    """A layer with a constant weight.

    Attributes:
        node: Its name.
        op_type: Its operation.
        axis: Where its result has channels.
        source: The quantizer of what it reads; None when it reads floats.
        weight: The quantizer of its weight; None when that stays in float.
        bias: Where its bias is read; None when it has none. Of a product, the Add behind it.
        bias_quantizer: The quantizer of its bias; None when that stays in float.
        last: The node that computes its result, bias included.
    """

    node: str
    op_type: str
    axis: int
    source: Quantizer | None
    weight: Quantizer | None
    bias: Consumer | None
    bias_quantizer: Quantizer | None
    last: str


def node_by_name(model: Model) -> dict[str, Any]:
    """The nodes of a model."""
    return {node.name: node for node in model.proto.graph.node}


def quantized_layers(quantized: QuantizedModel) -> Iterator[QuantizedLayer]:
    """All layers of which the weight or the input is quantized, in execution order."""
    model = quantized.float_model
    weights = Weights(model)
    seen = {consumer: each for each in quantized.quantizers for consumer in each.consumers}
    nodes = node_by_name(model)
    readers = consumers(nodes.values())
    outputs = {value.name for value in model.proto.graph.output}
    for node in nodes.values():
        if node.op_type not in _AXES or node.domain not in STANDARD_DOMAINS or len(node.input) <= _WEIGHT:
            continue
        source, weight = seen.get(Consumer(node.name, _SOURCE)), seen.get(Consumer(node.name, _WEIGHT))
        if node.input[_WEIGHT] not in weights or node.input[_SOURCE] in weights or (source or weight) is None:
            continue
        bias = _bias(node, weights)
        if node.op_type == "MatMul" and node.output[0] not in outputs:
            bias = _added(node.output[0], readers, nodes, weights=weights, quantized=seen)
        last = node.name if bias is None else bias.node
        found = None if bias is None else seen.get(bias)
        yield QuantizedLayer(node.name, node.op_type, _AXES[node.op_type], source, weight, bias, found, last)


def _bias(node: Any, weights: Weights) -> Consumer | None:
    has = node.op_type != "MatMul" and len(node.input) > _BIAS and node.input[_BIAS] in weights
    return Consumer(node.name, _BIAS) if has else None


def _added(
    tensor: str,
    readers: Mapping[str, list[Consumer]],
    nodes: Mapping[str, Any],
    *,
    weights: Weights,
    quantized: Mapping[Consumer, Quantizer],
) -> Consumer | None:
    """The constant vector that is added to a product, if nobody else reads that and it is not rounded before."""
    found = readers.get(tensor, [])
    if len(found) != 1 or nodes[found[0].node].op_type != "Add" or found[0] in quantized:
        return None
    other = Consumer(found[0].node, 1 - found[0].input)
    name = nodes[other.node].input[other.input]
    if name not in weights or len(weights.shape(name)) > 1:
        return None
    # A constant that is rounded like an activation is no bias of this layer.
    reader = quantized.get(other)
    return other if reader is None or reader.kind == "bias" else None


# What a layer's inputs say of its weight: the Gram matrix of all that one row of the weight is multiplied with.
#
# The squared error of a layer's results is a quadratic form of the error of its weight, with this matrix; once it
# is known no sample is needed any more.

# Products of one sample are summed over at most so many places of its map; neighbours say the same.
_MOST_PLACES, _LEAST_PLACES = 1024, 8
# Multiplications for one layer: a second or two of one core.
_MOST_WORK = 2e10


class Counts(Protocol):
    """Says how much results count."""

    def counts(self, seen: Array) -> Array:
        """Of what places read, [groups, places, length], how much each result counts, [groups, places, rows]."""
        ...


@dataclass(frozen=True, slots=True)
class WeightRows:
    """How a weight is laid out in rows, each of which makes one output channel.

    Attributes:
        groups: Groups of rows, which read different inputs.
        length: Elements of a row.
        turned: Whether the weight is stored with its rows as columns.
    """

    groups: int
    length: int
    turned: bool

    def rows(self, values: Array) -> Array:
        """Values of the weight's shape as [groups, rows, length]."""
        flat = values.T if self.turned else values
        return flat.reshape(self.groups, flat.shape[0] // self.groups, self.length)

    def restored(self, rows: Array, shape: tuple[int, ...]) -> Array:
        """The other way round."""
        flat = rows.reshape(shape[::-1] if self.turned else shape)
        return np.ascontiguousarray(flat.T if self.turned else flat)


def weight_rows(node: Any, shape: tuple[int, ...]) -> WeightRows | None:
    """How the weight of a node is laid out; None when its results are no sums over rows."""
    given = attributes(node)
    if node.op_type == "Conv":
        return WeightRows(int(given.get("group", 1)), int(np.prod(shape[1:])), turned=False)
    if len(shape) != 2 or node.op_type not in ("Gemm", "MatMul") or given.get("transA", 0):
        return None
    turned = not given.get("transB", 0)
    return WeightRows(1, shape[0] if turned else shape[1], turned)


class Gram:
    """Sums up products of a layer's inputs.

    Attributes:
        matrix: float64 [groups, length, length]; where results count differently, one for each row of each group.

    Args:
        node: The layer.
        shape: Shape of its weight.
        rows: How that is laid out.
        samples: How many samples will come.
        counts: How much results count; all the same when None.
    """

    matrix: Array

    def __init__(
        self,
        node: Any,
        shape: tuple[int, ...],
        rows: WeightRows,
        *,
        samples: int,
        counts: Counts | None = None,
    ) -> None:
        self._rows, self._kernel, self._counts = rows, shape[2:], counts
        self._attributes = attributes(node)
        mode = self._attributes.get("auto_pad", b"NOTSET")
        self._attributes["auto_pad"] = mode.decode() if isinstance(mode, bytes) else mode
        self._convolves = node.op_type == "Conv"
        matrices = rows.groups if counts is None else int(np.prod(shape)) // rows.length
        work = _MOST_WORK / (matrices * rows.length**2 * max(samples, 1))
        self._places = int(np.clip(work, _LEAST_PLACES, _MOST_PLACES))
        self.matrix = np.zeros((matrices, rows.length, rows.length))

    def add(self, values: Array) -> None:
        """Take in what the layer reads in one sample."""
        seen = self._windows(values) if self._convolves else self._some(values.reshape(-1, values.shape[-1]))[None]
        # Products of one sample in float32, twice as fast; their sum over samples in float64.
        finite = np.where(np.isfinite(seen), seen, 0).astype(np.float32)
        if self._counts is None:
            self.matrix += finite.transpose(0, 2, 1) @ finite
            return
        weights = self._counts.counts(finite)
        rows = weights.shape[-1]
        for row in range(rows):
            # The matrices of one row in all groups.
            self.matrix[row::rows] += (finite * weights[..., row, None]).transpose(0, 2, 1) @ finite

    def _some(self, places: Array) -> Array:
        """Some of the places, evenly spaced, where there are too many."""
        if len(places) <= self._places:
            return places
        return np.asarray(places[np.linspace(0, len(places) - 1, self._places).round().astype(int)])

    def _windows(self, values: Array) -> Array:
        """What output places read, [groups, places, length]."""
        geometry = conv_geometry(self._attributes, values.shape[2:], self._kernel)
        padded = pad_spatial(values, geometry.begins, geometry.ends)
        parts = [padded[(slice(None), slice(None), *place)] for _, place in geometry.offsets()]
        batch, _, *spatial = parts[0].shape
        sample, *at = np.unravel_index(self._some(np.arange(batch * int(np.prod(spatial)))), (batch, *spatial))
        where: Any = (sample, slice(None), *at)
        # Of each part [places, channels]; all together [places, groups, channels / groups x window].
        seen = np.stack([part[where] for part in parts], axis=-1)
        return np.ascontiguousarray(seen.reshape(-1, self._rows.groups, self._rows.length).transpose(1, 0, 2))


# Which of a layer's results get past the activation behind it: errors of those that are cut off do not show.

_CUT_OFF_COUNTS = 0.02
"""How much a result counts that is cut off: with other samples it may not be."""


@dataclass(frozen=True, slots=True, eq=False)
class ActivationClip:
    """What an activation does to the results of a layer.

    Attributes:
        weight: The layer's weight in rows, float32 [groups, rows, length].
        bias: What is added to each row, float32 [groups, rows].
        low: Smaller results are cut off.
        high: Larger results are cut off.
    """

    weight: Array
    bias: Array
    low: float
    high: float

    def counts(self, seen: Array) -> Array:
        """How much each result counts, float32 [groups, places, rows].

        Args:
            seen: What each place of each group reads, [groups, places, length].
        """
        results = seen @ self.weight.transpose(0, 2, 1) + self.bias[:, None, :]
        passed = (results > self.low) & (results < self.high)
        return np.where(passed, 1.0, _CUT_OFF_COUNTS).astype(np.float32)


def activation_clip(layer: QuantizedLayer, rows: WeightRows, model: Model) -> ActivationClip | None:
    """What the activation behind a layer cuts off; None where there is none that does.

    Args:
        layer: The layer.
        rows: How its weight is laid out.
        model: The float model.
    """
    nodes, held = node_by_name(model), Weights(model)
    result = nodes[layer.last].output[0]
    readers = [node for node in model.proto.graph.node if result in reads(node)]
    if len(readers) != 1 or result in {value.name for value in model.proto.graph.output}:
        return None
    limits = _limits(readers[0], held)
    if limits is None:
        return None
    node = nodes[layer.node]
    is_gemm = node.op_type == "Gemm"
    weight = rows.rows(held[node.input[1]].astype(np.float32)) * _factor(node, "alpha", is_gemm)
    bias = np.zeros(weight.shape[:2], np.float32)
    if layer.bias is not None:
        values = held[nodes[layer.bias.node].input[layer.bias.input]].astype(np.float32)
        bias = np.broadcast_to(values.ravel(), (bias.size,)).reshape(bias.shape) * _factor(node, "beta", is_gemm)
    return ActivationClip(weight, bias, *limits)


def _factor(node: Any, name: str, is_gemm: bool) -> np.float32:
    return np.float32(attribute(node, name, 1.0) if is_gemm else 1.0)


def _limits(node: Any, held: Weights) -> tuple[float, float] | None:
    """Between which values an activation hands on what it is given; None when it cuts off nothing, or bends it."""
    if node.op_type == "Relu":
        return 0.0, math.inf
    names = [*node.input[1:3], "", ""][:2]
    if node.op_type != "Clip" or any(name and name not in held for name in names):
        return None
    low, high = (
        float(held[name].reshape(-1)[0]) if name else float(attribute(node, key, default))
        for name, key, default in zip(names, ("min", "max"), (-math.inf, math.inf), strict=True)
    )
    return low, high


# Running a quantized model over samples piece by piece, so that what was just corrected is seen by what follows.
# Each node runs once per sample, however many corrections there are: between two pieces the tensors that are still
# needed are kept, in memory as far as that is allowed and in files beyond.


class SteppedRun:
    """A model on its way through its nodes, on all samples at once.

    Attributes:
        samples: Numbers of the samples it runs on.

    Args:
        model: The model.
        context: Where the samples are, and how much may be taken.
        stops: Tensors that will be looked at.
        most: Samples at most; of more, evenly spaced ones are taken.

    Raises:
        BadInput: The first sample does not fit the model.
    """

    samples: tuple[int, ...]

    def __init__(self, model: Model, context: StepContext, *, stops: Sequence[str], most: int) -> None:
        self._model, self._context = model, context
        self.samples = spread(len(context.samples.names), most)
        feed = read_feed(model, context.samples, 0)
        known = values(model, {name: array.shape for name, array in feed.items()})
        graph = model.proto.graph
        constant = derived_constants(graph)
        self._nodes = [node for node in graph.node if not (set(filter(None, node.output)) <= constant)]
        everything = complete_values(model, known, feed, threads=context.threads)
        self._blocks = BlockModels(model, everything)
        self._threads = context.threads or useful_threads(model, everything)
        self._constants = constant | {tensor.name for tensor in graph.initializer}
        self._place = {name: at for at, node in enumerate(self._nodes) for name in node.output if name}
        self._last_use = {name: at for at, node in enumerate(self._nodes) for name in reads(node)}
        self._pending = list(stops)
        self._position = 0
        self._store = TensorStore(memory_limit(context.max_memory, share=0.5))
        self._held: set[str] = set()
        self._shifts: dict[str, Array] = {}
        for index in self.samples:
            for name, array in read_feed(model, context.samples, index).items():
                self._held.add(name)
                self._store.put(index, name, array)

    def advance(self, stop: str, readings: Mapping[Consumer, Reading] | None = None) -> None:
        """Run all samples up to where a tensor is computed.

        Args:
            stop: The tensor; stops are to be asked for in execution order.
            readings: What node inputs read instead of what the model says.

        Raises:
            ModelFailed: The model cannot be run.
        """
        end = max(self._place.get(stop, -1) + 1, self._position)
        piece = self._nodes[self._position : end]
        if piece:
            self._run(piece, end, readings or {})
        self._pending = [name for name in self._pending if name != stop]
        self._position = end

    def read(self, index: int, tensor: str) -> Array:
        """Values of a tensor in a sample; one that was computed last, or that is still needed."""
        held = self._store.get(index, tensor)
        shift = self._shifts.get(tensor)
        return held if shift is None else np.asarray(held + shift).astype(held.dtype)

    def shift(self, tensor: str, change: Array) -> None:
        """Add something to a tensor in all samples."""
        self._shifts[tensor] = change

    def __enter__(self) -> "SteppedRun":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.close()

    def _run(self, piece: Sequence[Any], end: int, readings: Mapping[Consumer, Reading]) -> None:
        made = {name for node in piece for name in node.output if name}
        read = {name for node in piece for name in reads(node)} - self._constants - made
        needed = {name for name in (*made, *self._held) if self._last_use.get(name, -1) >= end}
        needed |= (made | self._held) & set(self._pending)
        block = ModelBlock(
            tuple(node.name for node in piece), tuple(sorted(read)), tuple(sorted(made & needed)), 0.0
        )
        session = open_session(self._blocks.make(block, readings), threads=self._threads)
        gone = sorted(self._held - needed)

        def work() -> None:
            for index in self.samples:
                feed = {name: self.read(index, name) for name in block.reads}
                computed = session.run(feed, sample=self._context.samples.names[index])
                for name, array in zip(block.writes, computed, strict=True):
                    self._store.put(index, name, array)
                for name in gone:
                    self._store.drop(index, name)

        # All samples in one go: handing each to another thread would take as long as a small piece.
        interruptible(work, stop=session.stop)
        self._held = needed
        self._shifts = {name: change for name, change in self._shifts.items() if name in needed}
