"""Matching tensors by their values alone, whatever they are called and however their axes are arranged."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from roundoff.align.axes import Shape
from roundoff.align.confidence import SURE, settle
from roundoff.align.evidence import Evidence, compare
from roundoff.align.fingerprints import SAMPLES, Fingerprints, fingerprints, joined
from roundoff.align.sampling import Floats, Positions, positions, source_positions, take
from roundoff.align.shapes import layouts_between, relabelled
from roundoff.align.verify import verified
from roundoff.core.pairing import Layout
from roundoff.core.progress import Progress
from roundoff.core.tensors import Array, TensorSource
from roundoff.errors import RoundoffError

__all__ = ["Match", "Side", "match_by_value"]

_LEAST_CONFIDENCE = 0.2
"""A match less sure than this is left unmatched."""

_BLOCK = 32
"""Tensors standardised and correlated at a time."""


@dataclass(frozen=True, slots=True)
class Match:
    """A pair found by value, by index on both sides."""

    reference: int
    candidate: int
    confidence: float
    layout: Layout | None


@dataclass(frozen=True, slots=True)
class Side:
    """What is left to match of one source, in one sample."""

    source: TensorSource
    sample: str
    indices: Sequence[int]

    def read(self, index: int) -> Array | None:
        """The values, or None when they cannot be read."""
        info = self.source.tensors[index]
        if info.problem:
            return None
        try:
            return np.asarray(self.source.read(info.name, self.sample))
        except RoundoffError:
            return None  # it stays unmatched and is listed so

    def name(self, index: int) -> str:
        """Name of a tensor."""
        return self.source.tensors[index].name


def match_by_value(
    reference: Side, candidate: Side, *, anchors: Sequence[tuple[int, int]], progress: Progress
) -> list[Match]:
    """Pair what is left on both sides by value.

    Args:
        reference: What is left of the reference.
        candidate: What is left of the candidate.
        anchors: Pairs already made (reference index, candidate index), for the order of tensors.
        progress: Told of each tensor read.
    """
    progress.start("Matching by value", len(reference.indices) + len(candidate.indices))
    try:
        known, other = _scan(reference, progress), _scan(candidate, progress)
    finally:
        progress.finish()
    evidence = _unique(_as_stored(known, other), reference, candidate)
    chosen, sure = settle(evidence, anchors)
    settled = {row: item.candidate for row, item in chosen.items() if sure[row] >= SURE}
    rest, other_rest = known.without(settled), other.without(set(settled.values()))
    evidence += _rearranged(rest, other_rest, candidate=candidate)
    evidence = _unique(evidence, reference, candidate)
    chosen, _ = settle(evidence, anchors)
    evidence = verified(evidence, chosen, reference=reference.read, candidate=candidate.read)
    chosen, sure = settle(evidence, anchors)
    return [
        Match(row, item.candidate, sure[row], item.layout)
        for row, item in sorted(chosen.items())
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


def _scan(side: Side, progress: Progress) -> _Scan:
    shapes: dict[int, Shape] = {}
    waiting: dict[int, dict[int, Floats]] = defaultdict(dict)
    done: dict[int, list[Fingerprints]] = defaultdict(list)
    for index in side.indices:
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


def _rearranged(known: _Scan, other: _Scan, *, candidate: Side) -> Iterator[Evidence]:
    """Compare in every layout the shapes allow; each candidate tensor is read once."""
    by_shape: dict[Shape, list[int]] = defaultdict(list)
    for index, shape in other.shapes.items():
        by_shape[shape].append(index)
    for shape, indices in by_shape.items():
        views = [
            (wanted, layout)
            for wanted in dict.fromkeys(known.shapes.values())
            for layout in layouts_between(wanted, shape)
            if layout != relabelled(wanted, shape)
        ]
        for start in range(0, len(indices) if views else 0, _BLOCK):
            block = indices[start : start + _BLOCK]
            yield from _through_views(known, views, candidate=candidate, indices=block)


def _through_views(
    known: _Scan, views: Sequence[tuple[Shape, Layout]], *, candidate: Side, indices: Sequence[int]
) -> Iterator[Evidence]:
    rows: dict[tuple[Shape, Layout], dict[int, Floats]] = defaultdict(dict)
    for index in indices:
        array = candidate.read(index)
        if array is None:
            continue
        for wanted, layout in views:
            row = take(array, _seen_through(layout, wanted, array.shape))
            if row is not None:
                rows[wanted, layout][index] = row
    for (wanted, layout), some in rows.items():
        prints = known.of_shape(wanted)
        trials = (len(prints.owners) + len(some)) * len(views)
        yield from compare(prints, fingerprints(some), layout=layout, trials=trials)


@lru_cache(maxsize=1024)
def _seen_through(layout: Layout, wanted: Shape, stored: Shape) -> Positions:
    at = positions(math.prod(wanted), SAMPLES)
    return source_positions(layout, at, reference_shape=wanted, candidate_shape=stored)


def _unique(evidence: Iterable[Evidence], reference: Side, candidate: Side) -> list[Evidence]:
    """The best evidence of each pair, by name, so that ties do not depend on the order of the sources."""
    best: dict[tuple[int, int], Evidence] = {}
    for item in evidence:
        if item.key not in best or item.residual < best[item.key].residual:
            best[item.key] = item
    return sorted(best.values(), key=lambda item: (reference.name(item.reference), candidate.name(item.candidate)))
