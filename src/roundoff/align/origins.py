"""Matching by what each tensor is of the original model, as recorded by the tool that fused or renamed it."""

from collections.abc import Sequence
from dataclasses import replace

from roundoff.align.match import Match, Named
from roundoff.align.names import SPELLINGS, match_by_spelling

__all__ = ["match_by_origin"]


def match_by_origin(reference: Sequence[Named], candidate: Sequence[Named]) -> list[Match]:
    """Pair tensors that are the same one of the original model.

    A side that records nothing of a tensor is taken for the original model itself. Where several tensors have one
    origin (the result of an operator, and its copies in other layouts), the first is meant.
    """
    if not any(tensor.info.origin for tensor in (*reference, *candidate)):
        return []
    alike = {(tensor.name, tensor.info.origin) for tensor in reference} & {
        (tensor.name, tensor.info.origin) for tensor in candidate
    }
    left, right = (
        _under_origins([tensor for tensor in side if (tensor.name, tensor.info.origin) not in alike])
        for side in (reference, candidate)
    )
    found = match_by_spelling(left, right)
    taken = {match.reference for match in found}, {match.candidate for match in found}
    nodes = [
        replace(tensor, name=tensor.info.node)
        for tensor in left
        if tensor.info.node and not tensor.info.origin and tensor.index not in taken[0]
    ]
    found += match_by_spelling(nodes, [tensor for tensor in right if tensor.index not in taken[1]])
    ours, theirs = ({tensor.index: tensor for tensor in side} for side in (reference, candidate))
    return [
        replace(match, how="origin", confidence=1.0)
        for match in found
        if _tells(ours[match.reference], theirs[match.candidate])
    ]


def _under_origins(tensors: Sequence[Named]) -> list[Named]:
    """Each tensor under the name it had in the original model; the first of several."""
    first: dict[str, Named] = {}
    for tensor in tensors:
        name = tensor.info.origin or tensor.name
        first.setdefault(name, replace(tensor, name=name))
    return list(first.values())


def _tells(ours: Named, theirs: Named) -> bool:
    """Whether a record says more than the names do; names that are enough can still be doubted."""
    key = SPELLINGS[0].key
    renamed = any(tensor.info.origin and key(tensor.info.origin) != key(tensor.name) for tensor in (ours, theirs))
    return renamed and key(ours.name) != key(theirs.name)
