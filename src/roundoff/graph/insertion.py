"""Quantizers into a model: as QuantizeLinear and DequantizeLinear around float weights, or with codes baked in."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from roundoff.core.quantizers import Consumer, Quantizer, dequantize
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, nearest
from roundoff.graph.block_weights import with_block_products
from roundoff.graph.draft import Assembly
from roundoff.graph.interface import outputs
from roundoff.graph.load import MAPPED_BYTES, Model, inside_bytes
from roundoff.graph.nodes import reads, rename_captured, subgraphs
from roundoff.graph.qdq import (
    WIDEST_COMPUTED,
    add_codes,
    add_quantizer,
    check_numbers,
    code_element,
    uses_every_code,
)
from roundoff.graph.quantized_model import chain_of
from roundoff.graph.save import (
    LARGEST_MESSAGE_BYTES,
    DeferredModel,
    drop_unused,
    fill,
    fill_beside,
    pending_bytes,
)
from roundoff.graph.shapes import ValueTypes
from roundoff.graph.weights import Weights, codes_of
from roundoff.messages.message import english

# Where quantizers sit in a model: which of them each node input reads, checked against the graph.

_STALE = english("plan the quantization again for this model")


class Edges:
    """The edges of a model that quantizers sit on.

    Attributes:
        leaving: Tensors that leave the network quantized, each with the quantizer that does it.

    Raises:
        BadInput: A quantizer names a tensor, a node or an input that is not there, has impossible numbers, or two
            contradict each other.
    """

    leaving: dict[str, Quantizer]

    def __init__(self, model: Model, quantizers: Sequence[Quantizer]) -> None:
        self._model = model
        self._by_name = {quantizer.name: quantizer for quantizer in quantizers}
        if len(self._by_name) < len(quantizers):
            names = [quantizer.name for quantizer in quantizers]
            twice = next(name for name in names if names.count(name) > 1)
            raise BadInput(
                english("Two quantizers are called {twice!r}.", twice=twice),
                fix=english("give each a name of its own"),
            )
        _check_tensors(model, quantizers)
        check_numbers(model, quantizers)
        self._check_chains()
        self.leaving = self._leaving()
        self._readers: dict[Consumer, Quantizer] = {}
        nodes = {node.name: node for node in model.proto.graph.node}
        for quantizer in quantizers:
            for consumer in quantizer.consumers:
                _check_consumer(quantizer, consumer, nodes, model)
                self._add_reader(quantizer, consumer)
        used = {quantizer.name for quantizer in (*self._readers.values(), *self.leaving.values())}
        self._of_tensor: dict[str, list[Quantizer]] = {}
        for quantizer in quantizers:
            if quantizer.name in used:
                self._of_tensor.setdefault(quantizer.tensor, []).append(quantizer)

    def of_tensor(self, tensor: str) -> list[Quantizer]:
        """The quantizers of a tensor whose results are read or leave the network."""
        return self._of_tensor.get(tensor, [])

    def read_by(self, node: str, position: int) -> Quantizer | None:
        """The quantizer whose result one input of a node takes; None when it takes the float values."""
        return self._readers.get(Consumer(node, position))

    def before(self, quantizer: Quantizer) -> Quantizer | None:
        """The quantizer whose result this one quantizes again; None when it takes the float values."""
        return self._by_name.get(quantizer.after)

    def _check_chains(self) -> None:
        for quantizer in self._by_name.values():
            seen = {quantizer.name}
            before = self.before(quantizer)
            while before is not None:
                if before.tensor != quantizer.tensor:
                    what = english(
                        "Quantizer {name!r} follows {name2!r}, which quantizes another tensor.",
                        name=quantizer.name,
                        name2=before.name,
                    )
                    raise BadInput(what, fix=english("let it follow one of the same tensor"))
                if before.name in seen:
                    raise BadInput(english("Quantizer {name!r} follows itself.", name=before.name), fix=_STALE)
                seen.add(before.name)
                before = self.before(before)

    def _leaving(self) -> dict[str, Quantizer]:
        names = set(outputs(self._model))
        found: dict[str, Quantizer] = {}
        fed = {value.name for value in self._model.proto.graph.input}
        fed -= {tensor.name for tensor in self._model.proto.graph.initializer}
        for quantizer in self._by_name.values():
            if not quantizer.output:
                continue
            tensor = quantizer.tensor
            if tensor not in names:
                what = english(
                    "Quantizer {name!r} is on the output {tensor!r}, which the model does not have.",
                    name=quantizer.name,
                    tensor=tensor,
                )
                raise BadInput(what, fix=nearest(tensor, names))
            if tensor in fed:
                what = english(
                    "{tensor!r} is an input and an output at once, so what leaves is what comes in.", tensor=tensor
                )
                raise BadInput(what, fix=english("leave that output in float, or put a node between"))
            if tensor in found:
                what = english(
                    "Quantizers {name!r} and {name2!r} are both on the output {tensor!r}.",
                    name=found[tensor].name,
                    name2=quantizer.name,
                    tensor=tensor,
                )
                raise BadInput(what, fix=english("let only one of them be on the output"))
            found[tensor] = quantizer
        return found

    def _add_reader(self, quantizer: Quantizer, consumer: Consumer) -> None:
        """Of quantizers that follow one another the last one counts."""
        other = self._readers.get(consumer)
        if other is None or other in chain_of(quantizer, self._by_name)[:-1]:
            self._readers[consumer] = quantizer
        elif quantizer not in chain_of(other, self._by_name)[:-1]:
            raise BadInput(
                english(
                    "Input {input} of node {node!r} is to read both {name!r} and {name2!r}.",
                    input=consumer.input,
                    node=consumer.node,
                    name=other.name,
                    name2=quantizer.name,
                ),
                fix=english("leave one of them out, or let one follow the other"),
            )


def _check_tensors(model: Model, quantizers: Sequence[Quantizer]) -> None:
    graph = model.proto.graph
    known = {value.name for value in (*graph.input, *graph.initializer)}
    known.update(sparse.values.name for sparse in graph.sparse_initializer)
    known.update(name for node in graph.node for name in node.output if name)
    for quantizer in quantizers:
        if quantizer.tensor not in known:
            what = english(
                "Quantizer {name!r} is on {tensor!r}, which {path} does not have.",
                name=quantizer.name,
                tensor=quantizer.tensor,
                path=model.path,
            )
            raise BadInput(
                what, fix=english("{stale}; {nearest}", stale=_STALE, nearest=nearest(quantizer.tensor, known))
            )


def _check_consumer(quantizer: Quantizer, consumer: Consumer, nodes: dict[str, Any], model: Model) -> None:
    node = nodes.get(consumer.node)
    if node is None:
        what = english(
            "Quantizer {name!r} feeds node {node!r}, which {path} does not have.",
            name=quantizer.name,
            node=consumer.node,
            path=model.path,
        )
        raise BadInput(
            what, fix=english("{stale}; {nearest}", stale=_STALE, nearest=nearest(consumer.node, nodes))
        )
    if 0 <= consumer.input < len(node.input) and node.input[consumer.input] == quantizer.tensor:
        return
    place = english(
        "input {input} of node {node!r} ({op_type})",
        input=consumer.input,
        node=consumer.node,
        op_type=node.op_type,
    )
    if quantizer.tensor in reads(node) and quantizer.tensor not in node.input:
        raise BadInput(
            english(
                "Quantizer {name!r} feeds {place}, which reads {tensor!r} only in a subgraph.",
                name=quantizer.name,
                place=place,
                tensor=quantizer.tensor,
            ),
            fix=english("leave that node out; nodes inside If, Loop and Scan stay in float"),
        )
    what = english(
        "Quantizer {name!r} feeds {place}, but that does not read {tensor!r}.",
        name=quantizer.name,
        place=place,
        tensor=quantizer.tensor,
    )
    raise BadInput(what, fix=_STALE)


def insert_quantizers(model: Model, quantizers: Sequence[Quantizer]) -> Model:
    """The model with quantizers switched on; without any it computes what it did.

    Weights stay in float and are quantized when the model runs, so that the float model can be recovered. Kept as
    codes are only biases, weights with codes of their own, and those that QuantizeLinear cannot round as asked.

    Args:
        model: The float model; it is not changed. Weights outside its file stay there.
        quantizers: Those that are on. One that follows another which is not among them quantizes the float values.

    Raises:
        BadInput: A quantizer does not fit the model.
    """
    return fill(fake_quant_model(model, quantizers))


def bake_quantizers(model: Model, quantizers: Sequence[Quantizer]) -> Model:
    """The model with quantizers switched on and constants turned into codes; no float copies of these remain.

    Args:
        model: The float model; it is not changed. Weights outside its file that are not quantized stay there.
        quantizers: Those that are on. One that follows another which is not among them quantizes the float values.

    Raises:
        BadInput: A quantizer does not fit the model.
    """
    return fill(deploy_model(model, quantizers))


def switch_on(model: Model, quantizers: Sequence[Quantizer]) -> Model:
    """The model with quantizers switched on, in the form that runs fastest and fits in memory.

    Codes are quick to dequantize; where there are too many of them, weights stay in float, and in their files.
    Both forms give the same bits.

    Raises:
        BadInput: A quantizer does not fit the model.
    """
    deployed = deploy_model(model, quantizers)
    size = pending_bytes(deployed)
    if size <= LARGEST_MESSAGE_BYTES:
        return fill(deployed) if size < MAPPED_BYTES else fill_beside(deployed)
    return insert_quantizers(model, quantizers)


def fake_quant_model(model: Model, quantizers: Sequence[Quantizer]) -> DeferredModel:
    """Like `insert_quantizers`, with codes computed when they are asked for."""
    return _Insertion(model, quantizers, bake=False).build()


def deploy_model(model: Model, quantizers: Sequence[Quantizer]) -> DeferredModel:
    """Like `bake_quantizers`, with codes computed when asked for, and weights of blocks in MatMulNBits."""
    return with_block_products(_Insertion(model, quantizers, bake=True).build())


class _Insertion:
    """One model being rewritten."""

    def __init__(self, model: Model, quantizers: Sequence[Quantizer], *, bake: bool) -> None:
        self._model = model
        self._bake = bake
        self._weights = Weights(model)
        self._types = ValueTypes(model)
        self._edges = Edges(model, quantizers)
        self._graph = Assembly(model)
        self._arrays: dict[str, Callable[[], Array]] = {}
        self._targets: dict[str, str] = {}
        # An output that leaves quantized keeps its name, for callers fetch it by that; the float tensor behind it
        # gets another one.
        self._float_names = {tensor: self._graph.free_tensor(f"{tensor}_float") for tensor in self._edges.leaving}

    def build(self) -> DeferredModel:
        graph, edges = self._model.proto.graph, self._edges
        constant = self._weights.protos
        self._copy_initializers()
        for value in (*graph.input, *(sparse.values for sparse in graph.sparse_initializer)):
            if value.name not in constant:
                self._add_all(edges.of_tensor(value.name))
        for node in graph.node:
            # A constant is quantized right before its first use, what a node computes right behind the node.
            for name in node.input:
                if name in constant:
                    self._add_all(edges.of_tensor(name))
            self._copy_node(node)
            for name in node.output:
                if name not in constant:
                    self._add_all(edges.of_tensor(name))
        for value in graph.output:
            self._add_all(edges.of_tensor(value.name))
        proto = self._graph.proto
        proto.graph.value_info.extend(value for value in graph.value_info if value.name not in self._float_names)
        drop_unused(proto.graph)
        return DeferredModel(Model(proto, self._model.path, inside_bytes(proto)), self._arrays)

    def _copy_initializers(self) -> None:
        """Copy those that something may read as they are; a weight that is only read as codes is left out."""
        graph = self._model.proto.graph
        needed = self._read_in_float()
        for tensor in graph.initializer:
            if tensor.name in needed:
                self._graph.add_tensor(tensor)
                self._graph.proto.graph.initializer[-1].name = self._float_names.get(tensor.name, tensor.name)
        inputs = self._graph.proto.graph.input
        for index in reversed(range(len(inputs))):
            name = inputs[index].name
            if name in self._weights.protos and (name not in needed or name in self._float_names):
                del inputs[index]

    def _read_in_float(self) -> set[str]:
        edges, graph = self._edges, self._model.proto.graph
        # A float copy of a weight is needed by an output, by an input that no quantizer serves, by a subgraph, and
        # by a quantizer that works on values, down its chain to the first one that is kept as codes.
        needed = {value.name for value in graph.output if value.name not in edges.leaving}
        for node in graph.node:
            needed.update(name for at, name in enumerate(node.input) if edges.read_by(node.name, at) is None)
            if any(subgraphs(node)):
                needed.update(reads(node))
        quantized = [quantizer for tensor in self._weights.protos for quantizer in edges.of_tensor(tensor)]
        for quantizer in quantized:
            source: Quantizer | None = quantizer
            while source is not None and not self._as_codes(source):
                needed.add(source.tensor)
                source = edges.before(source)
        return needed

    def _copy_node(self, node: Any) -> None:
        copy = self._graph.copy_node(node)
        for position, name in enumerate(node.input):
            quantizer = self._edges.read_by(node.name, position)
            if quantizer is not None:
                copy.input[position] = self._targets[quantizer.name]
            else:
                copy.input[position] = self._float_names.get(name, name)
        for position, name in enumerate(node.output):
            copy.output[position] = self._float_names.get(name, name)
        if self._float_names:
            rename_captured(copy, self._float_names)

    def _add_all(self, quantizers: Sequence[Quantizer]) -> None:
        for quantizer in quantizers:
            self._add(quantizer)

    def _add(self, quantizer: Quantizer) -> str:
        """Add the nodes of a quantizer, and of those before it, unless they are there; gives the result's name."""
        if quantizer.name in self._targets:
            return self._targets[quantizer.name]
        tensor, graph = quantizer.tensor, self._graph
        element = self._types.element(tensor)
        if self._as_codes(quantizer):
            codes = self._add_code_tensor(quantizer)
            target = self._name_target(quantizer)
            add_codes(graph, quantizer, codes, target=target, element=element)
            return target
        before = self._edges.before(quantizer)
        source = self._float_names.get(tensor, tensor) if before is None else self._add(before)
        target = self._name_target(quantizer)
        if tensor in self._weights.protos and not uses_every_code(quantizer.spec):
            quantizer = self._without_needless_clip(quantizer)
        rank = self._types.rank(tensor) if quantizer.spec.axis is not None else None
        add_quantizer(graph, quantizer, source, target=target, element=element, rank=rank)
        return target

    def _name_target(self, quantizer: Quantizer) -> str:
        leaves = self._edges.leaving.get(quantizer.tensor) is quantizer
        name = quantizer.tensor if leaves else self._graph.free_tensor(f"{quantizer.name}_dequantized")
        self._targets[quantizer.name] = name
        return name

    def _as_codes(self, quantizer: Quantizer) -> bool:
        """Whether the model holds the codes of this constant."""
        constant = quantizer.tensor in self._weights.protos
        if quantizer.codes is not None and not constant:
            what = english(
                "Quantizer {name!r} has codes of its own, but {tensor!r} is computed.",
                name=quantizer.name,
                tensor=quantizer.tensor,
            )
            raise BadInput(what, fix=english("codes can only be given for constants"))
        cannot_compute = quantizer.spec.rounding != "half_even" or quantizer.spec.bits > WIDEST_COMPUTED
        given = quantizer.codes is not None or quantizer.kind == "bias"
        return constant and (self._bake or given or cannot_compute)

    def _add_code_tensor(self, quantizer: Quantizer) -> str:
        from onnx import TensorProto

        name = self._graph.free_tensor(f"{quantizer.tensor}_codes")
        shape = self._weights.shape(quantizer.tensor)
        codes = quantizer.codes
        if codes is not None and codes.shape != shape:
            what = english(
                "The codes of quantizer {name!r} have the shape {shape}, its tensor has {shape2}.",
                name=quantizer.name,
                shape=codes.shape,
                shape2=shape,
            )
            raise BadInput(what, fix=english("give one code for each value"))
        number = code_element(quantizer.spec).number
        self._graph.add_tensor(TensorProto(name=name, data_type=number, dims=shape))
        self._arrays[name] = partial(self._codes, quantizer)
        return name

    def _codes(self, quantizer: Quantizer) -> Array:
        if quantizer.codes is not None:
            return quantizer.codes
        return codes_of(self._values_before(quantizer), quantizer.params, quantizer.spec)

    def _values_before(self, quantizer: Quantizer) -> Array:
        before = self._edges.before(quantizer)
        if before is not None:
            return dequantize(self._codes(before), before.params, before.spec.axis)
        return self._weights[quantizer.tensor]

    def _without_needless_clip(self, quantizer: Quantizer) -> Quantizer:
        """The quantizer of a weight as one that may use every code, if then it still uses only its own."""
        spec, params = quantizer.spec, quantizer.params
        free = replace(spec, bits=code_element(spec).bits, narrow=False)
        values = self._values_before(quantizer)
        sliced = None if spec.axis is None or params.scale.ndim == 0 else spec.axis % values.ndim
        axes = tuple(axis for axis in range(values.ndim) if axis != sliced)
        ends = np.stack([values.min(axis=axes), values.max(axis=axes)]) if values.size else np.zeros(2, np.float32)
        codes = codes_of(ends, params, free.along(None if sliced is None else 1)).astype(np.int64)
        clips = codes.min() < spec.code_min or codes.max() > spec.code_max
        return quantizer if clips else replace(quantizer, spec=free)
