"""Which nodes and tensors a rule names."""

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from roundoff.core.quant_plan import Rule, rule_text
from roundoff.errors import BadInput, nearest
from roundoff.quantize.planning.view import GraphView

__all__ = ["Names", "Selection", "select"]

# How strongly a selector counts; the more it says, the more.
BY_GRAPH, BY_OPERATION, BY_PATTERN, BY_NAME = 1, 2, 3, 4

_EVERYTHING = "DEFAULT"
"""As start or end of a sub-graph: all inputs, all outputs of the network."""

_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Selection:
    """What a rule names.

    Attributes:
        rule: The rule.
        text: The rule as it is written.
        order: Its place among the rules.
        nodes: Nodes by their names in the user's model, in execution order, each with its name in the graph; empty
            for those that are not in it any more.
        ranks: How strongly each node of the graph is named, by its name there.
        tensors: Tensors that are named themselves, with how strongly.
    """

    rule: Rule
    text: str
    order: int
    nodes: Mapping[str, str]
    ranks: Mapping[str, int]
    tensors: Mapping[str, int]


class Names:
    """Names of nodes in the user's model and in the graph that is planned.

    Args:
        view: The graph.
        origins: The user's names of nodes, each with the name in the graph of the node that took it over.
    """

    def __init__(self, view: GraphView, origins: Mapping[str, str]) -> None:
        self._view = view
        self._current = {name: name for name in view.by_name} | dict(origins)
        self._original: dict[str, str] = {}
        for original, current in origins.items():
            if current not in self._original or original == current:
                self._original[current] = original

    def original(self, node: str) -> str:
        """The user's name of a node of the graph."""
        return self._original.get(node, node)

    def current(self, name: str) -> str:
        """The name in the graph of a node, by any of its names; empty when it is not there any more."""
        node = self._current[name]
        return node if node in self._view.by_name else ""

    @cached_property
    def known(self) -> tuple[str, ...]:
        """All names by which nodes can be called, in execution order."""
        last = len(self._view.nodes)

        def place(name: str) -> int:
            node = self._view.by_name.get(self._current[name])
            return node.place if node is not None else last

        return tuple(sorted(self._current, key=place))

    @cached_property
    def places(self) -> Mapping[str, int]:
        """All these names, each with its place among them."""
        return {name: place for place, name in enumerate(self.known)}


def select(rules: Sequence[Rule], view: GraphView, names: Names) -> tuple[Selection, ...]:
    """Find out what every rule names.

    Raises:
        BadInput: A selector names nothing.
    """
    selector = _Selector(view, names)
    return tuple(selector.select(rule, order) for order, rule in enumerate(rules))


class _Selector:
    def __init__(self, view: GraphView, names: Names) -> None:
        self._view = view
        self._names = names
        self._tensors = tuple(dict.fromkeys([*view.inputs, *view.producers, *view.weights.protos]))
        self._operations = tuple(dict.fromkeys(node.operation for node in view.nodes))

    def select(self, rule: Rule, order: int) -> Selection:
        found: dict[str, int] = {}
        tensors: dict[str, int] = {}
        if rule.kind == "between":
            found = dict.fromkeys(map(self._names.original, self._between(rule)), BY_GRAPH)
        else:
            for selector in rule.selector:
                self._add(rule, selector, found, tensors)
        for tensor in tensors:
            for node in self._touching(tensor):
                found.setdefault(self._names.original(node), 0)
        nodes = {name: self._names.current(name) for name in sorted(found, key=self._names.places.__getitem__)}
        ranks: dict[str, int] = {}
        for name, node in nodes.items():
            if node:
                ranks[node] = max(found[name], ranks.get(node, 0))
        return Selection(rule, rule_text(rule), order, nodes, ranks, tensors)

    def _add(self, rule: Rule, selector: str, nodes: dict[str, int], tensors: dict[str, int]) -> None:
        """Add what one selector names."""
        if rule.kind == "any" and selector == "*":
            nodes.update(dict.fromkeys((self._names.original(node.name) for node in self._view.nodes), BY_GRAPH))
            return
        for by_name in (True, False):
            matches = self._exact(selector) if by_name else self._glob(selector)
            rank = BY_NAME if by_name else BY_PATTERN
            for kind, names in matches.items():
                if rule.kind not in (kind, "any") or not names:
                    continue
                if kind == "op":
                    nodes.update({name: max(BY_OPERATION, nodes.get(name, 0)) for name in self._nodes_of(names)})
                else:
                    known = nodes if kind == "node" else tensors
                    known.update({name: max(rank, known.get(name, 0)) for name in names})
                return
        raise self._nothing(rule, selector)

    def _exact(self, selector: str) -> dict[str, list[str]]:
        known = {"node": self._names.known, "tensor": self._tensors, "op": self._operations}
        return {kind: [selector] if selector in names else [] for kind, names in known.items()}

    def _glob(self, selector: str) -> dict[str, list[str]]:
        if not _GLOB.search(selector):
            return {}
        matches = re.compile(fnmatch.translate(selector)).match
        known = {"node": self._names.known, "tensor": self._tensors, "op": self._operations}
        return {kind: [name for name in names if matches(name)] for kind, names in known.items()}

    def _nodes_of(self, operations: Iterable[str]) -> list[str]:
        wanted = set(operations)
        return [self._names.original(node.name) for node in self._view.nodes if node.operation in wanted]

    def _touching(self, tensor: str) -> list[str]:
        """The node that computes a tensor; for inputs and constants those that read it."""
        producer = self._view.producers.get(tensor)
        if producer is not None:
            return [producer.name]
        return list(dict.fromkeys(reader.node for reader in self._view.readers[tensor]))

    def _nothing(self, rule: Rule, selector: str) -> BadInput:
        sets: dict[str, tuple[tuple[str, ...], str]] = {
            "node": (self._names.known, "node"),
            "tensor": (self._tensors, "tensor"),
            "op": (self._operations, "operation"),
            "any": ((*self._names.known, *self._tensors, *self._operations), "node, tensor or operation"),
        }
        known, what = sets[rule.kind]
        path = self._view.model.path
        text = f"The rule {rule_text(rule)!r} names no {what} of {path}: {selector!r} matches nothing."
        return BadInput(text, fix=nearest(selector, dict.fromkeys(known)))

    def _between(self, rule: Rule) -> list[str]:
        """Nodes that lie on a way from a start tensor to an end tensor."""
        starts = self._named_tensors(rule, rule.selector, self._view.inputs)
        ends = self._named_tensors(rule, rule.end, tuple(self._view.outputs))
        if rule.selector == rule.end == (_EVERYTHING,):
            return [node.name for node in self._view.nodes]
        after: set[str] = set(starts)
        forward = set()
        for node in self._view.nodes:
            if any(name in after for name in node.inputs):
                forward.add(node.name)
                after.update(node.outputs)
        before: set[str] = set(ends)
        nodes = []
        for node in reversed(self._view.nodes):
            if any(name in before for name in node.outputs):
                before.update(node.inputs)
                if node.name in forward:
                    nodes.append(node.name)
        if not nodes:
            what = f"The rule {rule_text(rule)!r} names nothing: no node lies between these tensors."
            raise BadInput(what, fix="check the order; the start tensors must come before the end tensors")
        return nodes[::-1]

    def _named_tensors(self, rule: Rule, names: tuple[str, ...], everything: tuple[str, ...]) -> tuple[str, ...]:
        if names == (_EVERYTHING,):
            return everything
        for name in names:
            if name not in self._tensors:
                node = self._view.by_name.get(self._names.current(name) if name in self._names.known else "")
                hint = f"{name!r} is a node; its output is {node.outputs[0]!r}" if node is not None else ""
                path = self._view.model.path
                what = f"The rule {rule_text(rule)!r} names {name!r}, which is no tensor of {path}."
                raise BadInput(what, fix=hint or nearest(name, self._tensors))
        return names
