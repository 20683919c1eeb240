"""Samples that are the same, or nearly, and samples that are unlike all others."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from roundoff.analysis.calibration_check.inputs import SampleFacts
from roundoff.core.tensors import Array

__all__ = ["distances_to", "exact_groups", "hardly_differ", "near_groups", "nearest_distances"]

# Two samples are nearly the same when their squared distance is below this share of what is usual.
_NEAR = 0.01
# With fewer numbers, samples come close to each other by chance.
_FEWEST_VALUES = 16
# All samples together hardly differ when what they differ by is below this share of what they have in common.
_HARDLY = 5e-4
_ROWS = 512


def exact_groups(samples: Sequence[SampleFacts]) -> list[tuple[int, ...]]:
    """Samples whose values are all the same, in groups of two or more."""
    groups: dict[bytes, list[int]] = defaultdict(list)
    for each in samples:
        groups[each.digest].append(each.index)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def near_groups(samples: Sequence[SampleFacts]) -> list[tuple[int, ...]]:
    """Samples that are nearly the same as others, in groups; those that are exactly the same count as one.

    Distances are measured from what samples have in common, in units of what they are usually apart.
    """
    unique = list({each.digest: each for each in reversed(samples)}.values())[::-1]
    kept, pictures = _pictures(unique)
    if len(kept) < 3 or pictures.shape[1] < _FEWEST_VALUES:
        return []
    usual = _usual(pictures)
    if not usual > 0:
        return []
    parent = list(range(len(kept)))

    def root(place: int) -> int:
        while parent[place] != place:
            place = parent[place]
        return place

    for start, squares in _squared_distances(pictures, pictures):
        for row, column in zip(*np.nonzero(squares < 2 * usual * _NEAR), strict=True):
            if start + row < column:
                parent[root(int(column))] = root(int(start + row))
    groups: dict[int, list[int]] = defaultdict(list)
    for place, facts in enumerate(kept):
        groups[root(place)].append(facts.index)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def hardly_differ(samples: Sequence[SampleFacts]) -> bool:
    """Whether all samples are so much alike that they could be one; they are not equal, though."""
    kept, pictures = _pictures(samples)
    if len(kept) < 3 or pictures.shape[1] < _FEWEST_VALUES:
        return False
    common = np.median(pictures, axis=0)
    structure = float(np.square(common - common.mean()).sum())
    return 0 < _usual(pictures) < _HARDLY * structure


def nearest_distances(samples: Sequence[SampleFacts]) -> Array:
    """How far each sample is from the nearest other one, squared; those without a small picture are left out."""
    _, pictures = _pictures(samples)
    found = [np.empty(0)]
    for start, squares in _squared_distances(pictures, pictures):
        rows = np.arange(len(squares))
        squares[rows, start + rows] = np.inf
        found.append(squares.min(axis=1))
    return np.concatenate(found)


def distances_to(samples: Sequence[SampleFacts], others: Sequence[SampleFacts]) -> Array:
    """How far each of `others` is from the nearest of `samples`, squared."""
    theirs, ours = _pictures(others)[1], _pictures(samples)[1]
    if theirs.shape[1] != ours.shape[1] or not len(ours):
        return np.empty(0)
    return np.concatenate([np.empty(0), *(squares.min(axis=1) for _, squares in _squared_distances(theirs, ours))])


def _pictures(samples: Sequence[SampleFacts]) -> tuple[list[SampleFacts], Array]:
    """Those samples whose small pictures can be compared, and these; float64 [samples, n]."""
    shown = [each for each in samples if each.picture is not None and not each.nonfinite]
    sizes = [each.picture.size for each in shown if each.picture is not None]
    size = max(set(sizes), key=sizes.count) if sizes else 0
    kept = [each for each in shown if each.picture is not None and each.picture.size == size]
    arrays = [each.picture for each in kept if each.picture is not None]
    return kept, np.stack(arrays).astype(np.float64) if arrays else np.empty((0, 0))


def _usual(pictures: Array) -> float:
    """What a sample is usually away from the middle of all, squared; a few strange ones do not change it."""
    return float(np.median(np.square(pictures - np.median(pictures, axis=0)).sum(axis=1)))


def _squared_distances(rows: Array, columns: Array) -> Iterator[tuple[int, Array]]:
    """Squared distances of some rows at a time to all columns, with the number of the first row."""
    # Far from zero the squares would cancel.
    middle = np.median(columns, axis=0) if len(columns) else 0.0
    rows, columns = rows - middle, columns - middle
    norms = np.square(columns).sum(axis=1)
    for start in range(0, len(rows), _ROWS):
        part = rows[start : start + _ROWS]
        squares = np.square(part).sum(axis=1)[:, None] + norms - 2 * part @ columns.T
        yield start, np.maximum(squares, 0.0)
