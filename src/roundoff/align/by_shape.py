"""The last resort: tensors whose shape nobody else has.

Behind a fault values no longer tell which tensor is which, but the ten logits are still the only ten numbers.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence

from roundoff.align.match import Match
from roundoff.align.shapes import relabelled
from roundoff.core.tensors import TensorInfo

__all__ = ["match_by_shape"]

_CONFIDENCE = 0.3
"""A shape is a hint, not more."""


def match_by_shape(
    ours: Sequence[TensorInfo], theirs: Sequence[TensorInfo], *, found: Collection[Match]
) -> list[Match]:
    """Pair what is left where a shape, axes of length 1 aside, belongs to one tensor on each side and no other."""
    our_owners, their_owners = _owners(ours), _owners(theirs)
    taken = {match.reference for match in found}, {match.candidate for match in found}
    matches = []
    for key in our_owners.keys() & their_owners.keys():
        (reference, *more), (candidate, *others) = our_owners[key], their_owners[key]
        if more or others or reference in taken[0] or candidate in taken[1]:
            continue
        left, right = ours[reference].shape, theirs[candidate].shape
        layout = None if left == right else relabelled(left, right)
        if left == right or layout is not None:
            matches.append(Match(reference, candidate, "shape", _CONFIDENCE, layout))
    return matches


def _owners(tensors: Sequence[TensorInfo]) -> dict[tuple[int, ...], list[int]]:
    owners = defaultdict(list)
    for index, info in enumerate(tensors):
        key = tuple(size for size in info.shape if size != 1)
        if key and 0 not in key and info.dtype and "complex" not in info.dtype and not info.problem:
            owners[key].append(index)
    return owners
