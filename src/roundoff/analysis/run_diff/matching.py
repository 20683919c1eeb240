"""Which node of one run is which of another: by name, else by operation, shape and place."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from roundoff.analysis.run_diff.readings import Reading

__all__ = ["Matched", "match_readings"]

_Signature = tuple[str, tuple[int, ...]]


class Matched(NamedTuple):
    """What belongs together.

    Attributes:
        pairs: Scores that both runs have, in the order of the second.
        only_before: Tensors that only the first run has.
        only_after: Tensors that only the second has.
        renamed: Names in the first and in the second run.
    """

    pairs: tuple[tuple[Reading, Reading], ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]


def match_readings(before: Sequence[Reading], after: Sequence[Reading]) -> Matched:
    """Pair the scores of two runs; names that both have decide, then what lies between them."""
    left, right = _signatures(before), _signatures(after)
    renamed = _renamed(left, right)
    old_names = {new: old for old, new in renamed}
    known = {(each.tensor, each.measure): each for each in before}
    pairs = []
    for each in after:
        name = each.tensor if each.tensor in left else old_names.get(each.tensor, "")
        other = known.get((name, each.measure))
        if other is not None:
            pairs.append((other, each))
    gone = {old for old, _ in renamed}
    return Matched(
        pairs=tuple(pairs),
        only_before=tuple(name for name in left if name not in right and name not in gone),
        only_after=tuple(name for name in right if name not in left and name not in old_names),
        renamed=renamed,
    )


def _signatures(readings: Sequence[Reading]) -> dict[str, _Signature]:
    """What each tensor looks like, in their order."""
    return {each.tensor: (each.op_type, each.shape) for each in readings}


def _renamed(left: dict[str, _Signature], right: dict[str, _Signature]) -> tuple[tuple[str, str], ...]:
    """Tensors between the same neighbours that look alike, one after the other."""
    ours, theirs = _stretches(left, right), _stretches(right, left)
    found: list[tuple[str, str]] = []
    for anchor, old in ours.items():
        new = theirs.get(anchor, [])
        blocks = SequenceMatcher(
            None, [left[name] for name in old], [right[name] for name in new], autojunk=False
        ).get_matching_blocks()
        for block in blocks:
            # Without an operation there is nothing to know a tensor by.
            found += [
                (old[block.a + at], new[block.b + at]) for at in range(block.size) if left[old[block.a + at]][0]
            ]
    return tuple(found)


def _stretches(own: dict[str, _Signature], other: dict[str, _Signature]) -> dict[str | None, list[str]]:
    """Tensors that the other run does not name, by the last one before them that it does."""
    anchor: str | None = None
    found: dict[str | None, list[str]] = {}
    for name in own:
        if name in other:
            anchor = name
        else:
            found.setdefault(anchor, []).append(name)
    return found
