"""Names: a unique one for every node, and the one that was probably meant."""

import difflib
from collections.abc import Iterable
from typing import Any

__all__ = ["closest", "name_nodes"]


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


def closest(name: str, known: Iterable[str]) -> str:
    """Say which known name is nearest; unlike a list of all, this stays short for thousands of tensors."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)
    return f"the nearest name is {found[0]!r}" if found else "there are no names to choose from"
