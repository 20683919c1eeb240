"""Delta debugging over sets: from a set that shows something to one of which no member can be left out."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

__all__ = ["shrink"]

ItemT = TypeVar("ItemT")


def shrink(items: Sequence[ItemT], shows: Callable[[Sequence[ItemT]], bool]) -> list[ItemT]:
    """The smallest set that is found by leaving out halves, quarters, ... and at last single members.

    No member of the result can be left out alone. Their order is kept, and they need not be neighbours. A set that
    was tried is not tried again.

    Args:
        items: A set that shows it.
        shows: Whether a set does.
    """
    current = list(range(len(items)))
    known: dict[tuple[int, ...], bool] = {}

    def test(chosen: Sequence[int]) -> bool:
        key = tuple(chosen)
        if key not in known:
            known[key] = bool(key) and shows([items[index] for index in key])
        return known[key]

    pieces = 2
    while len(current) > 1:
        parts = _split(current, pieces)
        smaller = next((part for part in parts if test(part)), None)
        if smaller is not None:
            current, pieces = smaller, 2
            continue
        rest = next((left for part in parts if test(left := _without(current, part))), None)
        if rest is not None:
            current, pieces = rest, max(pieces - 1, 2)
            continue
        if pieces >= len(current):
            break
        pieces = min(2 * pieces, len(current))
    return [items[index] for index in current]


def _split(items: list[int], pieces: int) -> list[list[int]]:
    """Pieces of nearly the same size, none of them empty."""
    ends = [len(items) * number // pieces for number in range(pieces + 1)]
    return [items[start:end] for start, end in pairwise(ends) if end > start]


def _without(items: list[int], part: list[int]) -> list[int]:
    left_out = set(part)
    return [item for item in items if item not in left_out]
