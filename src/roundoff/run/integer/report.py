"""What an integer run met on its way: sums that did not fit, and what it could not compute with integers."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

__all__ = ["FloatNode", "IntegerReport", "Overflow", "OverflowKind", "Recorder"]

OverflowKind = Literal["bias", "accumulator"]
_KINDS: tuple[OverflowKind, OverflowKind] = ("bias", "accumulator")


@dataclass(frozen=True, slots=True)
class Overflow:
    """Numbers of one node that did not fit their register.

    Attributes:
        node: The node.
        kind: A bias that has no code, or a sum of products that exceeds the accumulator.
        count: How many numbers, over all runs.
        elements: Out of how many.
        worst_ratio: Largest magnitude over the largest that fits; above 1.
    """

    node: str
    kind: OverflowKind
    count: int
    elements: int
    worst_ratio: float

    def merged(self, other: "Overflow") -> "Overflow":
        """Both together."""
        return Overflow(
            self.node,
            self.kind,
            self.count + other.count,
            self.elements + other.elements,
            max(self.worst_ratio, other.worst_ratio),
        )


@dataclass(frozen=True, slots=True)
class FloatNode:
    """A node that was computed in float.

    Attributes:
        node: Its name.
        op_type: Its operation.
        why: Why not with integers.
    """

    node: str
    op_type: str
    why: str


@dataclass(frozen=True, slots=True)
class IntegerReport:
    """How the nodes that ran so far were computed; nodes that only compute constants or shapes are in no list.

    Attributes:
        integer_nodes: With integers alone, in execution order.
        table_nodes: By looking up input codes in a table.
        float_nodes: In float, from dequantized inputs.
        overflows: Numbers that did not fit, one entry for each node and kind.
    """

    integer_nodes: tuple[str, ...] = ()
    table_nodes: tuple[str, ...] = ()
    float_nodes: tuple[FloatNode, ...] = ()
    overflows: tuple[Overflow, ...] = ()

    def merged(self, other: "IntegerReport") -> "IntegerReport":
        """The report of the runs of both."""
        overflows = {(entry.node, entry.kind): entry for entry in self.overflows}
        for entry in other.overflows:
            known = overflows.get((entry.node, entry.kind))
            overflows[entry.node, entry.kind] = entry if known is None else known.merged(entry)
        float_nodes = {entry.node: entry for entry in (*other.float_nodes, *self.float_nodes)}
        return IntegerReport(
            tuple(dict.fromkeys((*self.integer_nodes, *other.integer_nodes))),
            tuple(dict.fromkeys((*self.table_nodes, *other.table_nodes))),
            tuple(float_nodes.values()),
            tuple(overflows.values()),
        )


class Recorder:
    """Collects what becomes the report; its size does not depend on the number of runs.

    Args:
        order: All nodes in execution order.
    """

    def __init__(self, order: tuple[str, ...]) -> None:
        self._order = order
        self._integer: set[str] = set()
        self._tables: set[str] = set()
        self._float: dict[str, FloatNode] = {}
        self._overflows: dict[tuple[str, OverflowKind], Overflow] = {}
        self._sums: Counter[str] = Counter()

    def summed(self, node: str, count: int) -> None:
        """A node added up so many sums, whether they fit or not."""
        self._sums[node] += count

    def ran(self, node: str, *, table: bool) -> None:
        """A node was computed with integers, or by a table."""
        (self._tables if table else self._integer).add(node)

    def ran_in_float(self, node: str, op_type: str, why: str) -> None:
        """A node was computed in float."""
        self._float.setdefault(node, FloatNode(node, op_type, why))

    def overflowed(self, overflow: Overflow) -> None:
        """Numbers of a node did not fit; of how many sums, `summed` says."""
        key = overflow.node, overflow.kind
        known = self._overflows.get(key)
        self._overflows[key] = overflow if known is None else known.merged(overflow)

    def report(self) -> IntegerReport:
        """Everything so far."""
        return IntegerReport(
            tuple(node for node in self._order if node in self._integer),
            tuple(node for node in self._order if node in self._tables),
            tuple(self._float[node] for node in self._order if node in self._float),
            tuple(entry for node in self._order for entry in self._overflows_of(node)),
        )

    def _overflows_of(self, node: str) -> Iterator[Overflow]:
        bias, sums = (self._overflows.get((node, kind)) for kind in _KINDS)
        if bias is not None:
            yield bias
        if sums is not None:
            yield replace(sums, elements=self._sums[node])
