"""A model that is only looked at: the nodes of a network with remarks on each, and no weights."""

from collections.abc import Mapping

from roundoff.core.tensors import Topology
from roundoff.graph.build import make_model

__all__ = ["OVERLAY_START", "annotated_model"]

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
