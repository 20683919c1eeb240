"""Removing constants that nothing reads."""

from typing import Any

from roundoff.graph.wiring import reads

__all__ = ["drop_unused"]


def drop_unused(graph: Any) -> None:
    """Remove initializers and Constant nodes that nothing reads, in place; also where inputs list them."""
    read = {name for node in graph.node for name in reads(node)}
    read.update(value.name for value in graph.output)
    unused = {tensor.name for tensor in graph.initializer if tensor.name not in read}
    _keep(graph.initializer, lambda tensor: tensor.name not in unused)
    _keep(graph.input, lambda value: value.name not in unused)
    _keep(graph.node, lambda node: node.op_type != "Constant" or node.output[0] in read)


def _keep(entries: Any, wanted: Any) -> None:
    # From the end: removing one by one from the front would move the rest each time.
    for index in reversed(range(len(entries))):
        if not wanted(entries[index]):
            del entries[index]
