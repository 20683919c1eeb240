"""Which nodes a target computes as one: units, between whose nodes no tensor exists."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from roundoff.core.quantizers import Consumer
from roundoff.core.target import Target
from roundoff.graph.patterns import PATTERNS, Pattern, find_patterns
from roundoff.quantize.planning.view import PRODUCTS, GraphView, NodeView, missing_need

__all__ = ["Unit", "find_units"]


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Nodes computed as one; most often a single node.

    Attributes:
        nodes: In execution order.
        steps: What the fusion is made of, an op type or a pattern each; the op type for a single node.
        obstacle: Why it has no integer version on the target; empty when it has one.
        bias: The constant operand of an Add behind a product, which the product's sum begins with.
    """

    nodes: tuple[NodeView, ...]
    steps: tuple[str, ...]
    obstacle: str = ""
    bias: Consumer | None = None

    @property
    def first(self) -> NodeView:
        """The node that reads what the unit works on; the one with the weight, if there is one."""
        return self.nodes[0]

    @property
    def last(self) -> NodeView:
        """The node that writes the result."""
        return self.nodes[-1]

    @property
    def inner(self) -> frozenset[str]:
        """Tensors that exist only inside."""
        return frozenset(name for node in self.nodes[:-1] for name in node.outputs if name)

    @property
    def is_pattern(self) -> bool:
        """Whether it begins with a pattern, whose constants are a part of the function it computes."""
        return self.steps[0] in PATTERNS


def find_units(view: GraphView, target: Target) -> tuple[Unit, ...]:
    """Group the nodes that work on values into units, in order of their first nodes.

    Tensors between the nodes of a unit are read by nobody outside of it. Where several fusions fit, the one of
    most nodes is taken, of equals the one the target names first.
    """
    finder = _Finder(view, target)
    taken: set[str] = set()
    found = []
    for node in view.nodes:
        if node.name in taken:
            continue
        unit = finder.unit_at(node, taken)
        taken.update(member.name for member in unit.nodes)
        found.append(unit)
    return tuple(found)


class _Finder:
    def __init__(self, view: GraphView, target: Target) -> None:
        self._view = view
        self._target = target
        self._begins: dict[str, list[Pattern]] = defaultdict(list)
        self._enters: dict[str, list[Pattern]] = defaultdict(list)
        for pattern in find_patterns(view.model):
            self._begins[pattern.nodes[0]].append(pattern)
            self._enters[pattern.entry].append(pattern)

    def unit_at(self, node: NodeView, taken: set[str]) -> Unit:
        """The unit that begins with a node."""
        obstacle = self._obstacle(node)
        candidates = [
            unit
            for steps in self._target.fusions
            for unit in self._start(node, steps, blocked=bool(obstacle))
            if not taken & {member.name for member in unit.nodes}
        ]
        best = max(candidates, key=lambda unit: len(unit.nodes), default=None)
        return best if best is not None else Unit((node,), (node.operation,), obstacle)

    def _obstacle(self, node: NodeView) -> str:
        if node.is_control_flow:
            return f"control flow: it and the nodes inside ({node.nodes_inside}) stay in float"
        if node.operation not in self._target.quantized_ops:
            return f"{self._target.name} has no integer {node.operation}"
        missing = missing_need(node, self._view, self._target.needs.get(node.operation, ()))
        if missing:
            return f"{self._target.name} has no integer version of it: {missing}"
        infinite = self._infinite_operand(node)
        return f"its constant {infinite!r} holds values that are not finite" if infinite else ""

    def _infinite_operand(self, node: NodeView) -> str:
        for _, tensor in self._view.operands(node):
            # Weights are left to those who read them anyway; a mask is small.
            constant = node.operation not in PRODUCTS and self._view.is_constant(tensor)
            if constant and not self._view.is_finite(tensor):
                return tensor
        return ""

    def _start(self, node: NodeView, steps: tuple[str, ...], *, blocked: bool) -> Iterator[Unit]:
        for name in steps[0].split("|"):
            if name in PATTERNS:
                for pattern in self._begins[node.name]:
                    if pattern.name == name:
                        yield from self._grow(Unit(self._nodes(pattern), (name,)), steps[1:])
            elif name == node.operation and not blocked and len(steps) > 1:
                yield from self._grow(Unit((node,), (name,)), steps[1:])

    def _grow(self, unit: Unit, steps: tuple[str, ...]) -> Iterator[Unit]:
        if not steps:
            yield unit
            return
        results = [name for name in unit.last.outputs if name]
        if len(results) != 1 or not self._view.is_private(results[0]):
            return
        for name in steps[0].split("|"):
            longer = self._with_pattern if name in PATTERNS else self._with_node
            for grown in longer(unit, name, results[0]):
                yield from self._grow(grown, steps[1:])

    def _with_pattern(self, unit: Unit, name: str, tensor: str) -> Iterator[Unit]:
        readers = {reader.node for reader in self._view.readers[tensor]}
        for pattern in self._enters[tensor]:
            if pattern.name == name and readers <= set(pattern.nodes):
                yield Unit((*unit.nodes, *self._nodes(pattern)), (*unit.steps, name), bias=unit.bias)

    def _with_node(self, unit: Unit, operation: str, tensor: str) -> Iterator[Unit]:
        readers = self._view.readers[tensor]
        if len(readers) != 1:
            return
        node, place = self._view.by_name[readers[0].node], readers[0].input
        others = [(i, name) for i, name in enumerate(node.inputs) if i != place and name]
        if node.operation != operation or not all(self._view.is_constant(name) for _, name in others):
            return
        bias = unit.bias
        if operation == "Add":
            # What is added must be a bias: anything else is an operation of its own.
            if bias is not None or not self._is_bias(unit.last, others[0][1]):
                return
            bias = Consumer(node.name, others[0][0])
        yield Unit((*unit.nodes, node), (*unit.steps, operation), bias=bias)

    def _is_bias(self, product: NodeView, tensor: str) -> bool:
        """Whether a constant has one element for each column of the weight behind a MatMul."""
        if product.operation != "MatMul" or not self._view.is_constant(product.inputs[1]):
            return False
        columns = self._view.shape(product.inputs[1])
        return columns is not None and len(columns) > 1 and self._view.shape(tensor) == columns[-1:]

    def _nodes(self, pattern: Pattern) -> tuple[NodeView, ...]:
        return tuple(self._view.by_name[name] for name in pattern.nodes)
