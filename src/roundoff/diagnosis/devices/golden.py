"""What each part of a network should compute from the inputs that the device itself had."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from roundoff.core.quantizer import Quantizer
from roundoff.core.target import WIDEST, Arithmetic
from roundoff.core.tensors import Array
from roundoff.core.topology import NodeInfo, Topology
from roundoff.graph.interface import topology
from roundoff.graph.load import Model
from roundoff.runtime.integer import IntegerRunner

__all__ = ["Golden", "Span"]


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a network between known tensors and one more.

    Attributes:
        nodes: Its nodes, the one that computes the tensor first.
        reads: Known tensors and inputs of the network that it starts from.
        hidden: Tensors inside of it.
    """

    nodes: tuple[str, ...]
    reads: tuple[str, ...]
    hidden: tuple[str, ...]


class Golden:
    """Computes single tensors of a network from others, as its arithmetic says.

    Args:
        model: The float model.
        quantizers: Its quantizers; without any, all is computed in float.
        arithmetic: How integers are rounded.
        threads: Threads of matrix products.
    """

    def __init__(
        self,
        model: Model,
        quantizers: Sequence[Quantizer] = (),
        arithmetic: Arithmetic = WIDEST,
        *,
        threads: int | None = None,
    ) -> None:
        self.model, self.quantizers, self.arithmetic = model, tuple(quantizers), arithmetic
        self._threads = threads
        self._runner = IntegerRunner(model, self.quantizers, arithmetic, threads=threads)

    def compute(self, tensor: str, given: Mapping[str, Array]) -> Array:
        """A tensor, from what is given of others.

        Raises:
            BadInput: An input of the network is needed and not given.
            ModelFailed: A node failed.
        """
        return self._runner.run_local(given, (tensor,)).values[tensor]

    def compute_all(self, tensors: Collection[str], given: Mapping[str, Array]) -> Mapping[str, Array]:
        """Several tensors, each from what is given."""
        return self._runner.run_local(given, tensors).values

    def with_arithmetic(self, arithmetic: Arithmetic) -> "Golden":
        """The same network with other rounding."""
        return Golden(self.model, self.quantizers, arithmetic, threads=self._threads)

    def with_quantizers(self, quantizers: Sequence[Quantizer]) -> "Golden":
        """The same network with other quantizers."""
        return Golden(self.model, quantizers, self.arithmetic, threads=self._threads)

    @cached_property
    def coded(self) -> dict[str, Quantizer]:
        """For each activation the quantizer through which it is stored."""
        found: dict[str, Quantizer] = {}
        for each in self.quantizers:
            if each.kind == "activation" and not each.after and (each.output or each.tensor not in found):
                found[each.tensor] = each
        return found

    def in_float(self, nodes: Collection[str]) -> bool:
        """Whether one of these nodes, of those that ran, was computed in float or from a table."""
        report = self._runner.report
        loose = {each.node for each in report.float_nodes} | set(report.table_nodes)
        return not loose.isdisjoint(nodes)

    def span(self, tensor: str, known: Collection[str]) -> Span:
        """The part of the network that computes a tensor from known ones."""
        producers = self._producers
        nodes: dict[str, None] = {}
        reads: dict[str, None] = {}
        hidden: dict[str, None] = {}
        waiting = [tensor]
        while waiting:
            name = waiting.pop(0)
            if name != tensor and (name in known or name not in producers):
                reads[name] = None
                continue
            if name != tensor:
                hidden[name] = None
            node = producers[name]
            if node.name not in nodes:
                nodes[node.name] = None
                waiting += node.inputs
        return Span(tuple(nodes), tuple(reads), tuple(hidden))

    def behind(self, tensor: str) -> frozenset[str]:
        """All tensors that depend on a tensor."""
        found = {tensor}
        for node in self._topology.nodes:
            if not found.isdisjoint(node.inputs):
                found.update(node.outputs)
        return frozenset(found - {tensor})

    @cached_property
    def _topology(self) -> Topology:
        return topology(self.model)

    @cached_property
    def _producers(self) -> dict[str, NodeInfo]:
        return self._topology.producers()
