"""Which names a node reads, including what its subgraphs take from outside, and which of them are constant."""

import heapq
from collections.abc import Iterator
from typing import Any

__all__ = ["captured", "constants", "is_sorted", "reads", "sort_nodes", "subgraphs"]

# AttributeProto.UNDEFINED, GRAPH and GRAPHS.
_MAY_HOLD_GRAPHS = frozenset((0, 5, 10))


def subgraphs(node: Any) -> Iterator[Any]:
    """The graphs a node carries as attributes (branches of If, bodies of Loop and Scan)."""
    for attribute in node.attribute:
        # This is asked of every node, often. Files of the first versions do not say what an attribute is.
        if attribute.type in _MAY_HOLD_GRAPHS:
            if attribute.HasField("g"):
                yield attribute.g
            yield from attribute.graphs


def reads(node: Any) -> tuple[str, ...]:
    """Every tensor a node needs, each once: its inputs and what its subgraphs capture."""
    return tuple(dict.fromkeys((*filter(None, node.input), *captured(node))))


def captured(node: Any) -> tuple[str, ...]:
    """Every tensor that the subgraphs of a node take from outside, each once; some may be its inputs too."""
    graphs = tuple(subgraphs(node))
    return tuple(dict.fromkeys(name for graph in graphs for name in _captured(graph))) if graphs else ()


def _captured(graph: Any) -> Iterator[str]:
    inside = {value.name for value in graph.input} | _initializers(graph)
    inside.update(name for node in graph.node for name in node.output)
    for node in graph.node:
        yield from (name for name in reads(node) if name not in inside)
    yield from (value.name for value in graph.output if value.name and value.name not in inside)


def constants(graph: Any) -> frozenset[str]:
    """Tensors whose values are part of the model: initializers and outputs of Constant nodes."""
    names = _initializers(graph)
    names.update(name for node in graph.node if node.op_type == "Constant" for name in node.output)
    return frozenset(names)


def _initializers(graph: Any) -> set[str]:
    names = {tensor.name for tensor in graph.initializer}
    return names | {tensor.values.name for tensor in graph.sparse_initializer}


def is_sorted(graph: Any) -> bool:
    """Whether every node comes after the nodes it reads from."""
    waiting = {name for node in graph.node for name in node.output}
    for node in graph.node:
        if any(name in waiting for name in reads(node)):
            return False
        waiting.difference_update(node.output)
    return True


def sort_nodes(graph: Any) -> bool:
    """Put nodes (whose names must be unique) into an order of execution, keeping the given one where possible.

    Returns:
        False when the nodes depend on one another in a circle; the graph is then left as it was.
    """
    producer = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needs = [{producer[name] for name in reads(node) if name in producer} for node in graph.node]
    feeds: list[list[int]] = [[] for _ in needs]
    for index, before in enumerate(needs):
        for earlier in before:
            feeds[earlier].append(index)
    missing = [len(before) for before in needs]
    ready = [index for index, count in enumerate(missing) if count == 0]
    rank: dict[str, int] = {}
    while ready:
        index = heapq.heappop(ready)
        rank[graph.node[index].name] = len(rank)
        for later in feeds[index]:
            missing[later] -= 1
            if missing[later] == 0:
                heapq.heappush(ready, later)
    if len(rank) < len(graph.node):
        return False
    graph.node.sort(key=lambda node: rank[node.name])
    return True
