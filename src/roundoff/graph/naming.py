"""Names: a unique one for every node."""

from typing import Any

__all__ = ["name_nodes"]


def name_nodes(graph: Any) -> dict[str, tuple[str, ...]]:
    """Give nodes without a name of their own the name ``<OpType>_<index in the graph>``.

    The first of several nodes with one name keeps it. Where the new name is taken, ``_2``, ``_3`` ... follows.

    Returns:
        Names that several nodes had, each with the new names of all but the first.
    """
    taken = {node.name for node in graph.node}
    seen: set[str] = set()
    renamed: dict[str, tuple[str, ...]] = {}
    for index, node in enumerate(graph.node):
        if not node.name or node.name in seen:
            name = _free_name(f"{node.op_type}_{index}", taken)
            if node.name:
                renamed[node.name] = (*renamed.get(node.name, ()), name)
            node.name = name
            taken.add(name)
        seen.add(node.name)
    return renamed


def _free_name(wanted: str, taken: set[str]) -> str:
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    return name
