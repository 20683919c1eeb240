"""Who computes what from what: the shape of a network without its weights."""

from dataclasses import dataclass

__all__ = ["NodeInfo", "Topology"]


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One operation. Optional inputs that are absent and constants are not listed."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """Nodes in execution order, and the tensors that enter and leave the network."""

    nodes: tuple[NodeInfo, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def producers(self) -> dict[str, NodeInfo]:
        """The node that computes each tensor; inputs of the network have none."""
        return {tensor: node for node in self.nodes for tensor in node.outputs}
