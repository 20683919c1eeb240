"""Names: a unique one for every node."""

from typing import Any

__all__ = ["name_nodes"]


def name_nodes(graph: Any) -> None:
    """Give nodes without a name of their own the name ``<OpType>_<index in the graph>``.

    The first of several nodes with one name keeps it. Where the new name is taken, ``_2``, ``_3`` ... follows.
    """
    taken = {node.name for node in graph.node}
    seen: set[str] = set()
    for index, node in enumerate(graph.node):
        if not node.name or node.name in seen:
            node.name = _free_name(f"{node.op_type}_{index}", taken)
            taken.add(node.name)
        seen.add(node.name)


def _free_name(wanted: str, taken: set[str]) -> str:
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    return name
