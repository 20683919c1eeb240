"""Making ONNX models: the one place that decides which versions they declare."""

from collections.abc import Mapping
from typing import Any

from roundoff.core.tensors import Topology

__all__ = [
    "OVERLAY_START",
    "STANDARD_DOMAINS",
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
