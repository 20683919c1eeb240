"""Choosing tensors by name patterns, so that no pattern goes unanswered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from roundoff.errors import BadInput, nearest
from roundoff.graph.shapes import Value

__all__ = ["Selection", "select_tensors"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Chosen tensors.

    Attributes:
        names: The tensors, in execution order.
        matches: How many tensors each pattern matched, in the order given; empty when all were taken.
    """

    names: tuple[str, ...]
    matches: tuple[tuple[str, int], ...] = ()


def select_tensors(
    values: Sequence[Value], patterns: Sequence[str], *, hidden: Mapping[str, str] | None = None
) -> Selection:
    """Take the tensors whose names match any pattern; all of them when there is none.

    A pattern that is exactly a tensor's name means that tensor, whatever special characters it holds;
    otherwise ``*`` stands for any characters (``/`` too), ``?`` for one, ``[ab]`` for a or b.

    Raises:
        BadInput: A pattern matches nothing.
    """
    if not patterns:
        return Selection(tuple(value.name for value in values))
    names = [value.name for value in values]
    chosen: set[str] = set()
    matches = []
    for pattern in patterns:
        found = {pattern} if pattern in names else {name for name in names if fnmatchcase(name, pattern)}
        if not found:
            raise BadInput(
                f"--tensors {pattern!r} matches none of the {len(names)} tensors.",
                fix=_advice(pattern, values, hidden or {}),
            )
        chosen |= found
        matches.append((pattern, len(found)))
    return Selection(tuple(name for name in names if name in chosen), tuple(matches))


def _advice(pattern: str, values: Sequence[Value], hidden: Mapping[str, str]) -> str:
    for name, holder in hidden.items():
        if fnmatchcase(name, pattern):
            return f"{name!r} is computed inside node {holder!r} and cannot be seen; take that node's outputs"
    for value in values:
        if fnmatchcase(value.node, pattern):
            return f"node {value.node!r} computes tensor {value.name!r}; give tensor names, not node names"
    return nearest(pattern.strip("*?"), (value.name for value in values))
