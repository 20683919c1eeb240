"""Making ONNX models: the one place that decides which versions they declare."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from roundoff.core.tensors import Array, Topology
from roundoff.graph.load import Model
from roundoff.graph.wiring import subgraphs

__all__ = [
    "OVERLAY_START",
    "STANDARD_DOMAINS",
    "Assembly",
    "all_names",
    "annotated_model",
    "make_model",
    "opset_of",
]

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


# A copy of a model under construction: nodes and constants are added under names that are still free.

STANDARD_DOMAINS = ("", "ai.onnx")
# Before this version of the format, every constant had to be an input too.
_FIRST_WITH_CONSTANTS = 4


def opset_of(proto: Any) -> int:
    """Version of the standard operators that a model declares; 1 when it declares none, as the format says."""
    return next((int(entry.version) for entry in proto.opset_import if entry.domain in STANDARD_DOMAINS), 1)


class Assembly:
    """Collects the nodes and constants of a new model that begins as a model's frame: inputs, outputs, versions.

    Attributes:
        opset: Version of the standard operators.
        proto: The new `onnx.ModelProto`.
    """

    def __init__(self, model: Model) -> None:
        from onnx import ModelProto

        source = model.proto
        self.opset = opset_of(source)
        self.proto = ModelProto(
            ir_version=max(source.ir_version, _FIRST_WITH_CONSTANTS),
            opset_import=source.opset_import,
            producer_name=source.producer_name,
            producer_version=source.producer_version,
            domain=source.domain,
            model_version=source.model_version,
            doc_string=source.doc_string,
            metadata_props=source.metadata_props,
            functions=source.functions,
        )
        graph = self.proto.graph
        graph.name, graph.doc_string = source.graph.name, source.graph.doc_string
        for field in ("input", "output", "sparse_initializer"):
            getattr(graph, field).extend(getattr(source.graph, field))
        self._tensors = set(all_names(source.graph))
        self._nodes = {node.name for node in source.graph.node}
        self._domains = {entry.domain for entry in source.opset_import}

    def free_tensor(self, wanted: str) -> str:
        """A tensor name like the wanted one that nothing else has; it is taken from now on."""
        return _free(wanted, self._tensors)

    def copy_node(self, node: Any) -> Any:
        """Add a node of the model as it is; gives the copy, whose inputs may then be changed."""
        copy = self.proto.graph.node.add()
        copy.CopyFrom(node)
        return copy

    def add_node(
        self,
        op_type: str,
        inputs: Sequence[str],
        output: str | Sequence[str],
        *,
        name: str,
        domain: str = "",
        attributes: dict[str, Any] | None = None,
    ) -> None:
        """Add a node.

        Args:
            op_type: Its operation.
            inputs: Names of its inputs.
            output: Name of its output, or of all of them.
            name: What it is called, if that is free.
            domain: Where its operation is defined; version 1 of it is declared when the model has none.
            attributes: Its attributes.
        """
        from onnx.helper import make_node

        if domain not in (*STANDARD_DOMAINS, *self._domains):
            self.proto.opset_import.add(domain=domain, version=1)
            self._domains.add(domain)
        free = _free(name, self._nodes)
        outputs = [output] if isinstance(output, str) else list(output)
        node = make_node(op_type, list(inputs), outputs, name=free, domain=domain, **(attributes or {}))
        self.proto.graph.node.append(node)

    def add_constant(self, values: Array, name: str) -> str:
        """Add an initializer of a type that numpy has; gives the name it got."""
        from onnx.helper import np_dtype_to_tensor_dtype
        from onnx.numpy_helper import from_array

        free = self.free_tensor(name)
        if values.dtype.kind not in "biuf":
            self.proto.graph.initializer.append(from_array(values, free))
            return free
        # In place: appending would copy the values once more.
        tensor = self.proto.graph.initializer.add(name=free, data_type=np_dtype_to_tensor_dtype(values.dtype))
        tensor.dims.extend(values.shape)
        tensor.raw_data = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
        return free

    def add_tensor(self, tensor: Any) -> None:
        """Add an `onnx.TensorProto` as an initializer, under the name it has."""
        self.proto.graph.initializer.append(tensor)


def _free(wanted: str, taken: set[str]) -> str:
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    taken.add(name)
    return name


def all_names(graph: Any) -> Iterator[str]:
    """Every tensor name of a graph and of the graphs inside it; some come more than once."""
    values: Iterable[Any] = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    yield from (value.name for value in values)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
    for node in graph.node:
        yield from node.input
        yield from node.output
        for inner in subgraphs(node):
            yield from all_names(inner)


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
