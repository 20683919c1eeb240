"""Who introduces an error, and who only passes it on."""

from collections.abc import Collection, Mapping

from roundoff.core.tensors import Topology
from roundoff.studies.compare.result import Role

__all__ = ["roles", "stand_ins"]

# These pass their input on unchanged: when it was compared, so was their output.
_FORWARDING = frozenset(["Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"])


def roles(topology: Topology, failed: Mapping[str, bool]) -> dict[str, Role]:
    """Tell culprits from victims.

    A tensor that was not compared is taken for wrong when something above it is.

    Args:
        topology: The reference network.
        failed: For each compared tensor, whether it differs.

    Returns:
        The role of each failing tensor of the network.
    """
    wrong: dict[str, bool] = {name: failed.get(name, False) for name in topology.inputs}
    result: dict[str, Role] = {name: "introduces" for name in topology.inputs if failed.get(name, False)}
    for node in topology.nodes:
        inherited = any(wrong.get(name, False) for name in node.inputs)
        for output in node.outputs:
            wrong[output] = failed.get(output, inherited)
            if failed.get(output, False):
                result[output] = "victim" if inherited else "introduces"
    return result


def stand_ins(topology: Topology, compared: Collection[str]) -> dict[str, str | None]:
    """For each output of the network what was compared: itself, or what it only forwards; None for neither."""
    producers = topology.producers()

    def seen(name: str) -> str | None:
        if name in compared:
            return name
        node = producers.get(name)
        return seen(node.inputs[0]) if node is not None and node.op_type in _FORWARDING and node.inputs else None

    return {name: seen(name) for name in topology.outputs}
