"""What goes into a model, what comes out, and how its nodes hang together."""

from typing import Any

from roundoff.core.tensors import InputSpec
from roundoff.core.topology import NodeInfo, Topology
from roundoff.errors import BadInput
from roundoff.graph.element_types import by_number
from roundoff.graph.load import Model
from roundoff.graph.wiring import constants, reads, subgraphs

__all__ = ["hidden_tensors", "inputs", "outputs", "topology"]


def inputs(model: Model) -> tuple[InputSpec, ...]:
    """The inputs that must be fed; those with a default value in the model are not among them.

    Raises:
        BadInput: An input is not a tensor.
    """
    known = constants(model.proto.graph)
    return tuple(_input_spec(value, model) for value in model.proto.graph.input if value.name not in known)


def _input_spec(value: Any, model: Model) -> InputSpec:
    kind = by_number(value.type.tensor_type.elem_type)
    if kind is None:
        form = (value.type.WhichOneof("value") or "untyped").removesuffix("_type")
        raise BadInput(
            f"Input {value.name!r} of {model.path} is of the kind {form}; only tensors can be fed.",
            fix="export the model with tensors as inputs",
        )
    if not value.type.tensor_type.HasField("shape"):
        return InputSpec(value.name, kind.dtype, None)
    return InputSpec(value.name, kind.dtype, tuple(map(_axis, value.type.tensor_type.shape.dim)))


def _axis(dim: Any) -> int | str | None:
    # Some exporters write -1 where they mean "any".
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    return dim.dim_param or None


def outputs(model: Model) -> tuple[str, ...]:
    """Names of the model's outputs."""
    return tuple(value.name for value in model.proto.graph.output)


def topology(model: Model) -> Topology:
    """Who computes what from what; constants, and the nodes that only hold one, are left out.

    What the subgraphs of If, Loop and Scan take from outside counts as an input of that node.
    """
    graph = model.proto.graph
    known = constants(graph)
    nodes = tuple(
        NodeInfo(
            name=node.name,
            op_type=node.op_type,
            inputs=tuple(name for name in reads(node) if name not in known),
            outputs=tuple(name for name in node.output if name),
        )
        for node in graph.node
        if node.op_type != "Constant"
    )
    fed = tuple(value.name for value in graph.input if value.name not in known)
    return Topology(nodes, fed, outputs(model))


def hidden_tensors(model: Model) -> dict[str, str]:
    """Tensors computed inside subgraphs, which nothing outside can see, each with the node that holds it."""
    return {
        name: node.name
        for node in model.proto.graph.node
        for graph in subgraphs(node)
        for name in _computed_in(graph)
    }


def _computed_in(graph: Any) -> list[str]:
    names = [name for node in graph.node if node.op_type != "Constant" for name in node.output if name]
    for node in graph.node:
        for inner in subgraphs(node):
            names += _computed_in(inner)
    return names
