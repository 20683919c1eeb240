"""Matching tensors by their values alone, whatever they are called and however their axes are arranged."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roundoff.align.axes import Shape
from roundoff.align.confidence import SURE, settle
from roundoff.align.evidence import Evidence, compare
from roundoff.align.fingerprints import SAMPLES, Fingerprints, fingerprints, joined
from roundoff.align.match import Match
from roundoff.align.reporting import reported
from roundoff.align.sampling import Floats, positions, seen_through, take
from roundoff.align.shapes import layouts_between, layouts_within, relabelled
from roundoff.align.verify import verified
from roundoff.core.pairing import Layout
from roundoff.core.progress import Progress
from roundoff.core.tensors import Array, TensorSource
from roundoff.errors import RoundoffError

__all__ = ["Side", "match_by_value"]

_LEAST_CONFIDENCE = 0.2
"""A match less sure than this is left unmatched."""

_BLOCK = 32
"""Tensors standardised and correlated at a time."""

_TIED = 1.1
"""Residuals within this factor are equal."""

_View = tuple[Shape, Layout]
"""The shape of reference tensors, and a layout in which a candidate tensor has that shape."""

_Views = Callable[[Sequence[Shape], Shape], list[_View]]


class Side:
    """One sample of a source, its tensors known by index."""

    def __init__(self, source: TensorSource, sample: str) -> None:
        self.tensors = source.tensors
        self._source = source
        self._sample = sample

    def read(self, index: int) -> Array | None:
        """Values of a tensor, or None when they cannot be read."""
        if self.tensors[index].problem:
            return None
        try:
            return np.asarray(self._source.read(self.tensors[index].name, self._sample))
        except RoundoffError:
            return None  # whoever compares the tensor later reports it; here it only has no values

    def left(self, taken: Collection[int]) -> list[int]:
        """Tensors that are not taken, by name, so that the order of the source decides no tie."""
        left = [index for index in range(len(self.tensors)) if index not in taken]
        return sorted(left, key=lambda index: self.tensors[index].name)


def match_by_value(reference: Side, candidate: Side, *, known: Sequence[Match], progress: Progress) -> list[Match]:
    """Pair by value what has no partner yet.

    Args:
        reference: What is right.
        candidate: What is judged.
        known: Pairs already made.
        progress: Told of each tensor read.
    """
    ours = reference.left({match.reference for match in known})
    theirs = candidate.left({match.candidate for match in known})
    if not ours or not theirs:
        return []
    with reported(progress, "Matching by value", len(ours) + len(theirs)):
        our_scan, their_scan = _scan(reference, ours, progress), _scan(candidate, theirs, progress)
    anchors = [(match.reference, match.candidate) for match in known]
    evidence = list(_as_stored(our_scan, their_scan))
    for title, views in (("Trying layouts", _views_of_same_size), ("Trying padding", _views_of_other_size)):
        chosen, sure = settle(evidence, anchors)
        settled = {row: item.candidate for row, item in chosen.items() if sure[row] >= SURE}
        rest, their_rest = our_scan.without(settled), their_scan.without(set(settled.values()))
        with reported(progress, title, len(their_rest.shapes)):
            moved = _rearranged(rest, their_rest, views=views, candidate=candidate, progress=progress)
            evidence = _best_of_each_pair([*evidence, *moved])
    chosen, _ = settle(evidence, anchors)
    evidence = verified(evidence, chosen, reference=reference.read, candidate=candidate.read)
    chosen, sure = settle(evidence, anchors)
    return [
        Match(row, item.candidate, "value", sure[row], item.layout)
        for row, item in chosen.items()
        if sure[row] >= _LEAST_CONFIDENCE
    ]


@dataclass(frozen=True, slots=True)
class _Scan:
    """Fingerprints of tensors as stored, by size, and the shapes they really have."""

    prints: Mapping[int, Fingerprints]
    shapes: Mapping[int, Shape]

    def without(self, settled: Collection[int]) -> "_Scan":
        shapes = {owner: shape for owner, shape in self.shapes.items() if owner not in settled}
        return _Scan({size: prints.subset(shapes) for size, prints in self.prints.items()}, shapes)

    def of_shape(self, shape: Shape) -> Fingerprints:
        owners = {owner for owner, own in self.shapes.items() if own == shape}
        return self.prints[math.prod(shape)].subset(owners)


def _scan(side: Side, indices: Sequence[int], progress: Progress) -> _Scan:
    shapes: dict[int, Shape] = {}
    waiting: dict[int, dict[int, Floats]] = defaultdict(dict)
    done: dict[int, list[Fingerprints]] = defaultdict(list)
    for index in indices:
        array = side.read(index)
        row = None if array is None else take(array, positions(array.size, SAMPLES))
        progress.advance()
        if array is None or row is None:
            continue
        shapes[index] = array.shape
        rows = waiting[array.size]
        rows[index] = row
        if len(rows) == _BLOCK:
            done[array.size].append(fingerprints(rows))
            rows.clear()
    for size, rows in waiting.items():
        if rows:
            done[size].append(fingerprints(rows))
    return _Scan({size: joined(parts) for size, parts in done.items()}, shapes)


def _as_stored(known: _Scan, other: _Scan) -> Iterator[Evidence]:
    for size, prints in known.prints.items():
        if size in other.prints:
            trials = len(prints.owners) + len(other.prints[size].owners)
            for item in compare(prints, other.prints[size], layout=None, trials=trials):
                shapes = known.shapes[item.reference], other.shapes[item.candidate]
                yield replace(item, layout=relabelled(*shapes))


def _rearranged(
    known: _Scan, other: _Scan, *, views: _Views, candidate: Side, progress: Progress
) -> Iterator[Evidence]:
    """Compare as the views show it; each candidate tensor is read once."""
    by_shape: dict[Shape, list[int]] = defaultdict(list)
    for index, shape in other.shapes.items():
        by_shape[shape].append(index)
    wanted = tuple(dict.fromkeys(known.shapes.values()))
    for shape, indices in by_shape.items():
        seen = views(wanted, shape)
        for start in range(0, len(indices), _BLOCK):
            block = indices[start : start + _BLOCK]
            if seen:
                yield from _through_views(known, seen, candidate=candidate, indices=block)
            progress.advance(len(block))


def _views_of_same_size(wanted: Sequence[Shape], stored: Shape) -> list[_View]:
    """Other orders of axes, and blocks that need no padding."""
    return [
        (shape, layout)
        for shape in wanted
        if math.prod(shape) == math.prod(stored)
        for layout in (layouts_within(shape) if shape == stored else layouts_between(shape, stored))
        if layout != relabelled(shape, stored)
    ]


def _views_of_other_size(wanted: Sequence[Shape], stored: Shape) -> list[_View]:
    """Padding, and blocks that need it."""
    return [
        (shape, layout)
        for shape in wanted
        if math.prod(shape) != math.prod(stored)
        for layout in layouts_between(shape, stored)
    ]


def _through_views(
    known: _Scan, views: Sequence[_View], *, candidate: Side, indices: Sequence[int]
) -> Iterator[Evidence]:
    rows: dict[_View, dict[int, Floats]] = defaultdict(dict)
    for index in indices:
        array = candidate.read(index)
        if array is None:
            continue
        for wanted, layout in views:
            row = take(array, seen_through(layout, wanted, array.shape, count=SAMPLES))
            if row is not None:
                rows[wanted, layout][index] = row
    for (wanted, layout), some in rows.items():
        prints = known.of_shape(wanted)
        trials = (len(prints.owners) + len(some)) * len(views)
        yield from compare(prints, fingerprints(some), layout=layout, trials=trials)


def _best_of_each_pair(evidence: Iterable[Evidence]) -> list[Evidence]:
    """The best layout of each pair; the earlier, more usual one where the values hardly tell."""
    best: dict[tuple[int, int], Evidence] = {}
    for item in evidence:
        if item.key not in best or item.residual * _TIED < best[item.key].residual:
            best[item.key] = item
    return list(best.values())
