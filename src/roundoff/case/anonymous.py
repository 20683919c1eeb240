"""A reproducer without names: nodes and tensors become numbers, the same in both models."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from roundoff.case.reproducer import Reproducer, ReproducerSample
from roundoff.core.tensors import Array
from roundoff.graph.anonymous import anonymized
from roundoff.graph.load import Model, checked_model
from roundoff.graph.wiring import subgraphs

__all__ = ["without_names"]


def without_names(found: Reproducer) -> Reproducer:
    """The same reproducer with other names.

    Raises:
        BadInput: Its operations are someone's own, and their names would tell.
    """
    source = found.float_model if found.quantized_model is None else found.quantized_model
    disguised = anonymized(source)
    tensors, nodes = dict(disguised.tensors), dict(disguised.nodes)
    plain = _renamed(found.float_model, tensors, nodes)
    samples = tuple(
        ReproducerSample(
            f"sample {number}",
            _keyed(sample.inputs, tensors),
            _keyed(sample.expected, tensors),
            _keyed(sample.observed, tensors),
        )
        for number, sample in enumerate(found.samples)
    )
    return replace(
        found,
        nodes=tuple((nodes[name], kind) for name, kind in found.nodes),
        float_model=plain,
        quantized_model=None if found.quantized_model is None else disguised.model,
        samples=samples,
        spot=replace(found.spot, tensor=tensors[found.spot.tensor]),
    )


def _keyed(arrays: Mapping[str, Array], names: Mapping[str, str]) -> dict[str, Array]:
    return {names[name]: array for name, array in arrays.items()}


def _renamed(model: Model, tensors: dict[str, str], nodes: dict[str, str]) -> Model:
    """A model with given names; what has none is given one."""
    own = anonymized(model)
    back = {new: tensors.setdefault(old, f"f_{new}") for old, new in own.tensors.items()}
    proto = type(own.model.proto)()
    proto.CopyFrom(own.model.proto)
    named = {new: nodes.setdefault(old, f"f_{new}") for old, new in own.nodes.items()}
    _rename(proto.graph, back, named)
    return checked_model(proto, path=own.model.path, size=proto.ByteSize())


def _rename(graph: Any, tensors: Mapping[str, str], nodes: Mapping[str, str]) -> None:
    """Give new names to a graph and to those inside of its nodes."""
    for value in (*graph.input, *graph.output, *graph.initializer):
        value.name = tensors.get(value.name, value.name)
    for sparse in graph.sparse_initializer:
        sparse.values.name = tensors.get(sparse.values.name, sparse.values.name)
    for node in graph.node:
        node.name = nodes.get(node.name, node.name)
        for side in (node.input, node.output):
            for place, name in enumerate(side):
                side[place] = tensors.get(name, name)
        for inner in subgraphs(node):
            _rename(inner, tensors, nodes)
