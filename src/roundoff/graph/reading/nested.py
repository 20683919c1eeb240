"""Quantized parts that are not in the main graph: functions are put in line, subgraphs stay and are reported."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from roundoff.core.wording import counted
from roundoff.graph.load import Model
from roundoff.graph.naming import name_nodes
from roundoff.graph.quantized_model import Oddity
from roundoff.graph.wiring import subgraphs

__all__ = ["inlined", "inside_subgraphs"]

_QUANTIZES = ("QuantizeLinear", "HzCalibration", "AscendQuant", "FakeQuantize", "DynamicQuantizeLinear", "QLinear")


def inlined(model: Model) -> Model:
    """The model with those of its functions that quantize something replaced by what they do."""
    if not any(_quantizes(node) for function in model.proto.functions for node in function.node):
        return model
    from onnx.inliner import inline_local_functions

    # It names what it puts in line, but not always uniquely.
    proto = inline_local_functions(model.proto)
    name_nodes(proto.graph)
    return replace(model, proto=proto)


def inside_subgraphs(model: Model) -> Iterator[Oddity]:
    """Say which nodes have quantizers in their subgraphs."""
    for node in model.proto.graph.node:
        count = sum(_quantizes(inner) for graph in subgraphs(node) for inner in _nodes(graph))
        if count:
            text = f"{counted(count, 'quantizer')} inside {node.name!r} ({node.op_type}) stay as they are"
            yield Oddity("not_represented", node.name, text)


def _nodes(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from _nodes(inner)


def _quantizes(node: Any) -> bool:
    return bool(node.op_type.startswith(_QUANTIZES))
