"""Nodes and names: what a node reads (also in its subgraphs), its attributes, the element types of tensors."""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.quantizers import Consumer
from roundoff.core.tensors import Array, Topology
from roundoff.errors import BadInput
from roundoff.messages.message import english

# AttributeProto.UNDEFINED, GRAPH and GRAPHS.
_MAY_HOLD_GRAPHS = frozenset((0, 5, 10))


def subgraphs(node: Any) -> Iterator[Any]:
    """The graphs a node carries as attributes (branches of If, bodies of Loop and Scan)."""
    for item in node.attribute:
        # This is asked of every node, often. Files of the first versions do not say what an attribute is.
        if item.type in _MAY_HOLD_GRAPHS:
            if item.HasField("g"):
                yield item.g
            yield from item.graphs


def all_nodes(graph: Any) -> Iterator[Any]:
    """The nodes of a graph, and behind each those of its subgraphs, in all depths."""
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from all_nodes(inner)


def input_at(node: Any, position: int) -> str:
    """What a node reads at a place; empty where it reads nothing there."""
    return str(node.input[position]) if position < len(node.input) else ""


def reads(node: Any) -> tuple[str, ...]:
    """Every tensor a node needs, each once: its inputs and what its subgraphs capture."""
    return tuple(dict.fromkeys((*filter(None, node.input), *captured(node))))


def captured(node: Any) -> tuple[str, ...]:
    """Every tensor that the subgraphs of a node take from outside, each once; some may be its inputs too."""
    graphs = tuple(subgraphs(node))
    return tuple(dict.fromkeys(name for graph in graphs for name in _captured(graph))) if graphs else ()


def _captured(graph: Any) -> Iterator[str]:
    inside = {value.name for value in graph.input} | initializers(graph)
    inside.update(name for node in graph.node for name in node.output)
    for node in graph.node:
        yield from (name for name in reads(node) if name not in inside)
    yield from (value.name for value in graph.output if value.name and value.name not in inside)


def producers(nodes: Iterable[Any]) -> dict[str, Any]:
    """The node that computes each tensor."""
    return {name: node for node in nodes for name in node.output if name}


def producer_names(nodes: Iterable[Any]) -> dict[str, str]:
    """The name of the node that computes each tensor."""
    return {name: node.name for name, node in producers(nodes).items()}


def consumers(nodes: Iterable[Any]) -> defaultdict[str, list[Consumer]]:
    """The inputs of nodes that read each tensor, in order; those of subgraphs are not counted."""
    found = defaultdict(list)
    for node in nodes:
        for position, name in enumerate(node.input):
            found[name].append(Consumer(node.name, position))
    return found


def readers(nodes: Iterable[Any]) -> defaultdict[str, list[Any]]:
    """The nodes that read each tensor, themselves or in their subgraphs, each once and in order."""
    found = defaultdict(list)
    for node in nodes:
        for name in reads(node):
            found[name].append(node)
    return found


def constants(graph: Any) -> frozenset[str]:
    """Tensors whose values are part of the model: initializers and outputs of Constant nodes."""
    names = initializers(graph)
    names.update(name for node in graph.node if node.op_type == "Constant" for name in node.output)
    return frozenset(names)


def initializers(graph: Any) -> set[str]:
    """Names of the initializers of a graph."""
    names = {tensor.name for tensor in graph.initializer}
    return names | {tensor.values.name for tensor in graph.sparse_initializer}


def is_sorted(graph: Any) -> bool:
    """Whether every node comes after the nodes it reads from."""
    waiting = {name for node in graph.node for name in node.output}
    for node in graph.node:
        if any(name in waiting for name in reads(node)):
            return False
        waiting.difference_update(node.output)
    return True


def sort_nodes(graph: Any) -> bool:
    """Put nodes (whose names must be unique) into an order of execution, keeping the given one where possible.

    Returns:
        False when the nodes depend on one another in a circle; the graph is then left as it was.
    """
    producer = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needs = [{producer[name] for name in reads(node) if name in producer} for node in graph.node]
    feeds: list[list[int]] = [[] for _ in needs]
    for index, before in enumerate(needs):
        for earlier in before:
            feeds[earlier].append(index)
    missing = [len(before) for before in needs]
    ready = [index for index, count in enumerate(missing) if count == 0]
    rank: dict[str, int] = {}
    while ready:
        index = heapq.heappop(ready)
        rank[graph.node[index].name] = len(rank)
        for later in feeds[index]:
            missing[later] -= 1
            if missing[later] == 0:
                heapq.heappush(ready, later)
    if len(rank) < len(graph.node):
        return False
    graph.node.sort(key=lambda node: rank[node.name])
    return True


def rename_captured(node: Any, names: dict[str, str]) -> None:
    """Give tensors that the subgraphs of a node take from outside their new names, in place."""
    for graph in subgraphs(node):
        inside = {value.name for value in (*graph.input, *graph.initializer)}
        inside.update(sparse.values.name for sparse in graph.sparse_initializer)
        inside.update(name for inner in graph.node for name in inner.output)
        outer = {old: new for old, new in names.items() if old not in inside}
        if not outer:
            continue
        for inner in graph.node:
            for position, name in enumerate(inner.input):
                inner.input[position] = outer.get(name, name)
            rename_captured(inner, outer)
        for value in graph.output:
            value.name = outer.get(value.name, value.name)


def all_names(graph: Any, *, declared: bool = True) -> Iterator[str]:
    """Every tensor name of a graph and of the graphs inside it; some come more than once.

    Args:
        graph: The graph.
        declared: Also those of which the graph itself does no more than to declare the type.
    """
    yield from (value.name for value in (*graph.input, *graph.output, *graph.initializer))
    yield from (value.name for value in graph.value_info if declared)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
    for node in graph.node:
        yield from node.input
        yield from node.output
        for inner in subgraphs(node):
            yield from all_names(inner)


def free_name(wanted: str, taken: set[str]) -> str:
    """A name like the wanted one that is not taken; from now on it is."""
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    taken.add(name)
    return name


# Attributes of nodes.

_NUMBER_ATTRIBUTES = frozenset({
    "axis", "block_size", "to", "output_dtype", "transB", "alpha", "beta", "levels", "channels_last", "opset",
    "sqrt_mode", "offset", "signed", "narrow", "relu_flag", "min", "max",
})  # fmt: skip
_LIST_ATTRIBUTES = frozenset({"axes", "perm", "shape"})


def attribute(node: Any, name: str, default: Any = None) -> Any:
    """The value of a node's attribute; text comes as str.

    Raises:
        BadInput: It is not of the kind that an attribute of this name has.
    """
    from onnx.helper import get_attribute_value

    found = next((item for item in node.attribute if item.name == name), None)
    if found is None:
        return default
    value = get_attribute_value(found)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if (name in _NUMBER_ATTRIBUTES and not isinstance(value, int | float)) or (
        name in _LIST_ATTRIBUTES and isinstance(value, str)
    ):
        what = english(
            "Attribute {name!r} of node {name2!r} ({op_type}) is {value!r}, which makes no sense.",
            name=name,
            name2=node.name,
            op_type=node.op_type,
            value=value,
        )
        raise BadInput(what, fix=english("check the model with onnx.checker.check_model, and export it again"))
    return value


def set_attribute(node: Any, name: str, value: Any) -> None:
    """Give a node's attribute a value; None takes it away."""
    from onnx.helper import make_attribute

    for index in reversed(range(len(node.attribute))):
        if node.attribute[index].name == name:
            del node.attribute[index]
    if value is not None:
        node.attribute.append(make_attribute(name, value))


# The element types of ONNX: their numpy names, their sizes, and what those numpy cannot hold are read as.


@dataclass(frozen=True, slots=True)
class OnnxType:
    """One element type.

    Attributes:
        number: Its number in `onnx.TensorProto.DataType`; fixed by the file format.
        session_name: What onnxruntime calls it.
        dtype: Its numpy name (that of the package ml_dtypes where numpy has none).
        bits: Size of one element in a file; 0 when elements differ in size.
        widened: dtype without loss that numpy itself has; equal to `dtype` where numpy has it.
    """

    number: int
    session_name: str
    dtype: str
    bits: int
    widened: str


def _plain(number: int, name: str, bits: int) -> OnnxType:
    return OnnxType(number, name, name, bits, name)


_TYPES = (
    OnnxType(1, "float", "float32", 32, "float32"),
    _plain(2, "uint8", 8),
    _plain(3, "int8", 8),
    _plain(4, "uint16", 16),
    _plain(5, "int16", 16),
    _plain(6, "int32", 32),
    _plain(7, "int64", 64),
    _plain(8, "string", 0),
    _plain(9, "bool", 8),
    _plain(10, "float16", 16),
    OnnxType(11, "double", "float64", 64, "float64"),
    _plain(12, "uint32", 32),
    _plain(13, "uint64", 64),
    _plain(14, "complex64", 64),
    _plain(15, "complex128", 128),
    OnnxType(16, "bfloat16", "bfloat16", 16, "float32"),
    OnnxType(17, "float8e4m3fn", "float8_e4m3fn", 8, "float32"),
    OnnxType(18, "float8e4m3fnuz", "float8_e4m3fnuz", 8, "float32"),
    OnnxType(19, "float8e5m2", "float8_e5m2", 8, "float32"),
    OnnxType(20, "float8e5m2fnuz", "float8_e5m2fnuz", 8, "float32"),
    OnnxType(21, "uint4", "uint4", 4, "uint8"),
    OnnxType(22, "int4", "int4", 4, "int8"),
    OnnxType(23, "float4e2m1", "float4_e2m1fn", 4, "float32"),
    OnnxType(24, "float8e8m0", "float8_e8m0fnu", 8, "float32"),
    OnnxType(25, "uint2", "uint2", 2, "uint8"),
    OnnxType(26, "int2", "int2", 2, "int8"),
)
_BY_NUMBER = {kind.number: kind for kind in _TYPES}
_BY_SESSION_NAME = {kind.session_name: kind for kind in _TYPES}
_BY_DTYPE = {kind.dtype: kind for kind in _TYPES}


def by_number(number: int) -> OnnxType | None:
    """The type of a number in a model file; None for one that is not known here."""
    return _BY_NUMBER.get(number)


def by_session_name(name: str) -> OnnxType | None:
    """The type onnxruntime calls so."""
    return _BY_SESSION_NAME.get(name)


def by_dtype(dtype: str) -> OnnxType | None:
    """The type of a numpy name."""
    return _BY_DTYPE.get(dtype)


# Making ONNX models: the one place that decides which versions they declare.


# Every onnxruntime roundoff supports runs these; what the newest onnx writes by default, it may refuse.
DEFAULT_OPSET = 17
DEFAULT_IR_VERSION = 8


def make_model(
    graph: Any,
    *,
    opset: int = DEFAULT_OPSET,
    ir_version: int = DEFAULT_IR_VERSION,
    domains: Mapping[str, int] | None = None,
) -> Any:
    """Wrap an `onnx.GraphProto` into an `onnx.ModelProto` with explicit versions.

    Args:
        graph: The graph.
        opset: Version of the standard operators.
        ir_version: Version of the file format.
        domains: Versions of further operator domains the graph uses, e.g. ``{"com.microsoft": 1}``.
    """
    from onnx import ModelProto
    from onnx.helper import make_opsetid

    model = ModelProto()
    model.ir_version = ir_version
    model.producer_name = "roundoff"
    model.graph.CopyFrom(graph)
    versions = {"": opset, **(domains or {})}
    model.opset_import.extend(make_opsetid(domain, version) for domain, version in versions.items())
    return model


STANDARD_DOMAINS = ("", "ai.onnx")


def opset_of(proto: Any) -> int:
    """Version of the standard operators that a model declares; 1 when it declares none, as the format says."""
    return next((int(entry.version) for entry in proto.opset_import if entry.domain in STANDARD_DOMAINS), 1)


# The first version of the format in which nodes have remarks.
_IR_VERSION = 10
_PRODUCER = "roundoff overlay"
OVERLAY_START = bytes((8, _IR_VERSION, 18, len(_PRODUCER))) + _PRODUCER.encode()
"""By this such a file is known: the version and the producer are its first two fields."""


def annotated_model(network: Topology, remarks: Mapping[str, Mapping[str, str]]) -> bytes:
    """An ONNX file whose nodes carry remarks as metadata, which viewers such as Netron show beside them.

    Weights and attributes are not in it, so it cannot be run.

    Args:
        network: The nodes.
        remarks: Words and what is said under each, by the name of a node.
    """
    from onnx import GraphProto, NodeProto, StringStringEntryProto, ValueInfoProto

    graph = GraphProto(name="remarks on a network; without weights, not to be run")
    graph.input.extend(ValueInfoProto(name=name) for name in network.inputs)
    graph.output.extend(ValueInfoProto(name=name) for name in network.outputs)
    for node in network.nodes:
        said = remarks.get(node.name, {})
        graph.node.append(
            NodeProto(
                name=node.name,
                op_type=node.op_type,
                input=node.inputs,
                output=node.outputs,
                metadata_props=[StringStringEntryProto(key=key, value=value) for key, value in said.items()],
            )
        )
    model = make_model(graph, ir_version=_IR_VERSION)
    model.producer_name = _PRODUCER
    data: bytes = model.SerializeToString()
    return data


_OPSET, _IR = 17, 8


class GraphAssembly:
    """Nodes and constants so far."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self._used: set[str] = set()

    def free(self, name: str) -> str:
        """A name that nobody has: this one, or one like it."""
        return free_name(name, self._used)

    def constant(self, values: Array, name: str) -> str:
        """A constant; its name."""
        from onnx import numpy_helper

        found = self.free(name)
        self.initializers[found] = numpy_helper.from_array(np.ascontiguousarray(values), found)
        return found

    def add(self, op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """A node, named after what it gives; that name, which must be free."""
        from onnx import helper

        self.nodes.append(helper.make_node(op_type, list(inputs), [output], name=output, **attributes))
        return output

    def finished(self, name: str, entering: Sequence[Any], leaving: Sequence[Any]) -> Any:
        """The model."""
        from onnx import helper

        graph = helper.make_graph(self.nodes, name, entering, leaving, list(self.initializers.values()))
        return make_model(graph, opset=_OPSET, ir_version=_IR)
