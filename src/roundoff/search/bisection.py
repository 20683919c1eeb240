"""Bisection over a ranking: how many of the leading nodes must give way before the goal is met."""

from collections.abc import Sequence

__all__ = ["next_count"]


def next_count(nodes: int, outcomes: Sequence[bool]) -> int | None:
    """How many of the leading nodes to try next; None when the bisection has ended.

    Assumes that a count which meets the goal is met by every larger one too. Who cannot rely on that verifies
    the answer.

    Args:
        nodes: How many there are.
        outcomes: Whether each count proposed so far met the goal, in the order of proposals.

    Returns:
        A count from 1 to `nodes`.

    Raises:
        ValueError: There are more outcomes than proposals.
    """
    first, last = 0, nodes - 1
    for met in outcomes:
        if first > last:
            raise ValueError(f"bisection over {nodes} nodes had ended before the last of {len(outcomes)} outcomes")
        middle = (first + last) // 2
        first, last = (first, middle - 1) if met else (middle + 1, last)
    return (first + last) // 2 + 1 if first <= last else None
