"""Two tensors that carry each other's names."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from roundoff.align.alignment import pair_names
from roundoff.core.tensors import Array, TensorInfo

_MOSTLY_NAMED = 0.6
"""Names tell tensors where they do so of this share of them."""
_SAME = 0.98
"""Two tensors are one, up to rounding, above this cosine; swapped ones agree so crosswise and not otherwise."""
_MOST_TRIED = 12


def swapped_names(
    ours: Sequence[TensorInfo], theirs: Sequence[TensorInfo], pairs: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Pairs of tensors, by their names on our side, that were matched against their names, each to the other's.

    Args:
        ours: Tensors of the reference.
        theirs: Those of the candidate.
        pairs: Which is which: our name -> their name.
    """
    named = pair_names(ours, theirs)
    # Names of a compiler's own counting are no names of the reference, however they look. Where all are the
    # reference's letter by letter, as of outputs alone, that those fit that are not swapped need not show it.
    spelt = {info.name for info in theirs} <= {info.name for info in ours if not info.name.isdigit()}
    if not spelt and sum(named.get(name) == other for name, other in pairs.items()) < _MOSTLY_NAMED * len(pairs):
        return []
    owners = {other: name for name, other in named.items()}
    found = []
    for name, other in pairs.items():
        second, own = owners.get(other, name), named.get(name)
        if second != name and own is not None and pairs.get(second) == own and (second, name) not in found:
            found.append((name, second))
    return found


def swapped_values(
    wrong: Iterable[str], exact: Callable[[str], Array], found: Callable[[str], Array]
) -> list[tuple[str, str]]:
    """Pairs among wrong tensors each of which holds what the other should."""
    names = list(wrong)[:_MOST_TRIED]
    swapped: list[tuple[str, str]] = []
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            right = exact(one), exact(other)
            had = found(one), found(other)
            if right[0].size != right[1].size or any(each.size != right[0].size for each in had):
                continue
            if min(_cosine(right[0], had[1]), _cosine(right[1], had[0])) > _SAME > _cosine(right[0], had[0]):
                swapped.append((one, other))
    return swapped


def _cosine(one: Array, other: Array) -> float:
    left, right = (np.asarray(each, np.float64).ravel() for each in (one, other))
    sizes = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(left @ right) / sizes if sizes > 0 and np.isfinite(sizes) else 0.0
