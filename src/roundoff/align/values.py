"""Matching tensors by their values alone, whatever they are called and however their axes are arranged."""

import contextlib
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roundoff.align.evidence import (
    LEAST_CORRELATION,
    LEAST_NOISE,
    SAME_VALUE,
    SAMPLES,
    Choice,
    Fingerprints,
    MatchEvidence,
    assign,
    compare,
    fingerprints,
    joined,
    order_prior,
)
from roundoff.align.layout import (
    Floats,
    Shape,
    correlation,
    layouts_between,
    layouts_within,
    only_padding,
    positions,
    relabelled,
    seen_through,
    take,
)
from roundoff.align.pairing import Layout, Match
from roundoff.core.progress import Progress
from roundoff.core.tensors import Array, TensorSource
from roundoff.errors import RoundoffError

# A closer look at the matches that were chosen and at those that came near.

_SAMPLES = 8192
"""Elements that the chosen matches and their rivals are judged by in the end. From 10,000 on BLAS would put
more time into waking threads than into the product."""

_CONTESTED = 4.0
"""A residual within this factor of the chosen one makes a rival..."""

_CONTESTED_FLOOR = 1e-5
"""...and so does a difference that float32 products hardly show."""

_CLEAR_ELEMENTS = 512
_CLEAR_RESIDUAL = 0.05
"""A match without rivals needs no closer look when so many independent elements of its fingerprint leave no
more unexplained than this."""

_ROUNDING = 1e-12
"""Unexplained variance below this is the rounding of float64 sums."""

Reader = Callable[[int], Array | None]


def verified(
    evidence: Sequence[MatchEvidence], anchors: Sequence[tuple[int, int]], *, reference: Reader, candidate: Reader
) -> list[MatchEvidence]:
    """Measure anew, with more elements and in float64, what is chosen and what rivals it, where in doubt.

    Evidence that does not hold, or that would crop away more than padding, is dropped; what is chosen in its place
    is measured as well.

    Args:
        evidence: Everything found, at most one item per pair.
        anchors: Pairs known to be right (reference index, candidate index).
        reference: Reads a tensor of the reference by index.
        candidate: Reads a tensor of the candidate by index.
    """
    seen: set[tuple[int, int]] = set()
    while True:
        chosen, _ = choose_partners(evidence, anchors)
        doubtful = [each for each in _doubtful(evidence, chosen) if each.key not in seen]
        if not doubtful:
            return list(evidence)
        seen.update(each.key for each in doubtful)
        evidence = _anew(evidence, doubtful, reference, candidate)


def _anew(
    evidence: Sequence[MatchEvidence], items: Sequence[MatchEvidence], reference: Reader, candidate: Reader
) -> list[MatchEvidence]:
    """The evidence with some of it measured again; each tensor of the reference is read once."""
    doubtful = defaultdict(list)
    for item in items:
        doubtful[item.reference].append(item)
    settled = {item.key: item for item in evidence}
    for index, some in doubtful.items():
        array = reference(index)
        for item in some:
            other = candidate(item.candidate)
            anew = None if array is None or other is None else _measured(item, array, other)
            if anew is None:
                del settled[item.key]
            else:
                settled[item.key] = anew
    return list(settled.values())


def _doubtful(evidence: Sequence[MatchEvidence], chosen: Choice) -> list[MatchEvidence]:
    """What comes near a choice for either tensor, what it is near to, and what is not clear by itself."""
    by_candidate = {item.candidate: item for item in chosen.values()}
    doubtful = {item.key for item in chosen.values() if not _clear(item)}
    for item in evidence:
        for other in (chosen.get(item.reference), by_candidate.get(item.candidate)):
            near = other and item.residual <= _CONTESTED * other.residual + _CONTESTED_FLOOR
            if other and near and other.key != item.key:
                doubtful |= {item.key, other.key}
    return [item for item in evidence if item.key in doubtful]


def _clear(item: MatchEvidence) -> bool:
    """Whether the fingerprint says all: many elements agree closely, and nothing is cropped."""
    cropped = item.layout is not None and item.layout.crop is not None
    return item.effective >= _CLEAR_ELEMENTS and item.residual <= _CLEAR_RESIDUAL and not cropped


def _measured(item: MatchEvidence, reference: Array, candidate: Array) -> MatchEvidence | None:
    if item.layout and not only_padding(item.layout, reference, candidate):
        return None
    left = take(reference, positions(reference.size, _SAMPLES))
    right = take(candidate, seen_through(item.layout, reference.shape, candidate.shape, count=_SAMPLES))
    if left is None or right is None:
        return None
    scale = float(np.abs(left).max()) or 1.0  # so that no square over- or underflows
    left, right = left / scale, right / scale
    squared = float(np.mean((left - right) ** 2))
    if item.constant:
        gap = max(squared / (float(np.mean(left**2)) or 1.0), _ROUNDING)
        return replace(item, residual=gap, difference=gap) if gap <= SAME_VALUE else None
    agreement = correlation(left, right)
    if agreement < LEAST_CORRELATION:
        return None
    residual = max(1 - agreement**2, _ROUNDING)
    return replace(item, residual=residual, difference=max(squared / float(left.var()), _ROUNDING))


# Progress as a block, so that it is finished whatever happens in it.


@contextlib.contextmanager
def reported(progress: Progress, title: str, total: int) -> Iterator[None]:
    """Announce a job of `total` steps and that it is over, done or not."""
    progress.start(title, total)
    try:
        yield
    finally:
        progress.finish()


# How sure a match by value is.

SURE = 0.9
"""Matches as sure as this are taken for granted when the others are judged."""

_NOISE_QUANTILE = 0.75
"""The residual that this share of the matches stays below is the usual noise between the two sides."""

_FEWEST_AGREEING, _FAR_BETTER, _UNRELATED = 4, 100.0, 0.01
"""Unless so many leave so many times less than the next, and that more than this: then only these count."""

_PRODUCTS = 1e-6
"""What float32 products of fingerprints leave of equal tensors."""

_NOISE_SLACK = 3.0
"""So many times that noise is added to residuals before they are compared: less than it tells nothing."""

_CONSTANT_CEILING = 0.5
"""Equality of constants is never better than a guess."""

_CLOSENESS = (
    (0.5, 0.25),
    (0.7, 0.45),
    (0.8, 0.55),
    (0.9, 0.7),
    (0.95, 0.8),
    (0.98, 0.9),
    (0.99, 0.97),
    (0.994, 1.0),
)
"""How far a correlation is trusted: a tensor whose partner is missing may find its neighbour, at 0.9 or so."""

_SUSPICION = 0.85
"""What is left of the confidence of a match that is unlike the others, for it may be a neighbour's."""

_SUSPICIOUS_RESIDUAL = 10.0
"""Unlike the others: a residual so many times the usual noise,"""

_UNSUSPICIOUS = 1e-7
"""unless it is as small as this;"""

_UNUSUAL = 0.25
"""or a change of layout, or a gain, that fewer than this share of the matches have or lack."""

_MOST_LOG_ODDS = 50.0


def choose_partners(
    evidence: Sequence[MatchEvidence], anchors: Sequence[tuple[int, int]]
) -> tuple[Choice, dict[int, float]]:
    """Choose partners and say how sure each choice is, by index of the reference tensor.

    Args:
        evidence: At most one item per pair; the order decides between equal ones.
        anchors: Pairs known to be right (reference index, candidate index).
    """
    # Twice: the first choice, by values alone, tells how noisy matches usually are and gives pairs that are beyond
    # doubt. Networks run in order, so these vote on the others in the second (`order_prior`): of equal tensors the
    # one in the right place wins.
    weights = {item.key: item.strength(LEAST_NOISE) for item in evidence}
    chosen = assign(evidence, weights)
    usual = _Usual.of(chosen)
    sure = _confidence(evidence, chosen, usual=usual, prior=lambda _: 0.0)
    known = [item.key for row, item in chosen.items() if sure[row] >= SURE]
    prior = order_prior([*anchors, *known])
    chosen = assign(evidence, {item.key: weights[item.key] + prior(item) for item in evidence})
    return chosen, _confidence(evidence, chosen, usual=usual, prior=prior)


@dataclass(frozen=True, slots=True)
class _Usual:
    """What most matches between these two sides are like.

    Attributes:
        noise: Differences to be expected, as a residual.
        changed: Share of matches with a change of layout.
        plain: Share of matches that agree without gain and offset.
    """

    noise: float
    changed: float
    plain: float

    @classmethod
    def of(cls, chosen: Choice) -> "_Usual":
        items = [item for item in chosen.values() if not item.constant]
        if not items:
            return cls(LEAST_NOISE, 0.5, 0.5)
        noise = _usual_noise([item.residual for item in items])
        changed = sum(item.layout is not None for item in items) / len(items)
        return cls(noise, changed, sum(item.agrees_plainly(noise) for item in items) / len(items))

    def suspects(self, item: MatchEvidence) -> bool:
        """Whether a match is unlike the others."""
        changed = self.changed if item.layout else 1 - self.changed
        plain = self.plain if item.agrees_plainly(self.noise) else 1 - self.plain
        noisy = item.residual > max(_SUSPICIOUS_RESIDUAL * self.noise, _UNSUSPICIOUS)
        return noisy or min(changed, plain) < _UNUSUAL


def _usual_noise(residuals: Sequence[float]) -> float:
    """The residual that most right matches stay below.

    Behind a fault nothing agrees, and what is matched there by chance is no noise: where some agree far better
    than all others, they are the ones in front of it.
    """
    sizes = np.sort(np.maximum(residuals, LEAST_NOISE))
    gaps = sizes[_FEWEST_AGREEING:] / sizes[_FEWEST_AGREEING - 1 : -1]
    if gaps.size and gaps.max() >= _FAR_BETTER and sizes[_FEWEST_AGREEING + int(gaps.argmax())] > _UNRELATED:
        sizes = sizes[: _FEWEST_AGREEING + int(gaps.argmax())]
        return max(float(np.quantile(sizes, _NOISE_QUANTILE)), _PRODUCTS)
    return float(np.quantile(sizes, _NOISE_QUANTILE))


def _confidence(
    evidence: Sequence[MatchEvidence],
    chosen: Choice,
    *,
    usual: _Usual,
    prior: Callable[[MatchEvidence], float],
) -> dict[int, float]:
    """How sure each choice is: its odds against all rivals, times how sure it would be without them."""
    strengths = {item.key: item.strength(_NOISE_SLACK * usual.noise) + prior(item) for item in evidence}
    rivals = _rivals(strengths, chosen)
    return {row: _alone(item, usual) / (1 + rivals[row]) for row, item in chosen.items()}


def _rivals(strengths: Mapping[tuple[int, int], float], chosen: Choice) -> Mapping[int, float]:
    """Odds of all other partners of either tensor against the chosen one, the greater of both sides."""
    by_candidate = {item.candidate: item for item in chosen.values()}
    odds: dict[tuple[int, str], float] = defaultdict(float)
    for key, strength in strengths.items():
        row, column = chosen.get(key[0]), by_candidate.get(key[1])
        if row is column:  # the choice itself; two tensors without partners have no evidence in common
            continue
        for side, mine, other in (("row", row, column), ("column", column, row)):
            if mine:
                # A rival that has a better partner of its own is less of one.
                lost = min(0.0, strength - strengths[other.key]) if other else 0.0
                log_odds = strength - strengths[mine.key] + lost
                odds[mine.reference, side] += math.exp(min(log_odds, _MOST_LOG_ODDS))
    return {row: max(odds[row, "row"], odds[row, "column"]) for row in chosen}


def _alone(item: MatchEvidence, usual: _Usual) -> float:
    """Confidence of a match that has no rivals."""
    if item.constant:
        return _CONSTANT_CEILING * item.beyond_chance()
    points, values = zip(*_CLOSENESS, strict=True)
    sure = float(np.interp(math.sqrt(1 - item.residual), points, values)) * item.beyond_chance()
    return sure * _SUSPICION if usual.suspects(item) else sure


_LEAST_CONFIDENCE = 0.2
"""A match less sure than this is left unmatched."""

_BLOCK = 32
"""Tensors standardised and correlated at a time."""

_TIED = 1.1
"""Residuals within this factor are equal."""

_View = tuple[Shape, Layout]
"""The shape of reference tensors, and a layout in which a candidate tensor has that shape."""

_Views = Callable[[Sequence[Shape], Shape], list[_View]]


class SampleSide:
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


def match_by_value(
    reference: SampleSide, candidate: SampleSide, *, known: Sequence[Match], progress: Progress
) -> list[Match]:
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
    # From cheap to costly: first as stored (every tensor is read once, compared by fingerprints), then through
    # other orders of axes, then through padding. Each round looks only at what the one before left in doubt, for
    # the number of layouts tried is what makes chance agreements likely.
    evidence = list(_as_stored(our_scan, their_scan))
    for title, views in (("Trying layouts", _views_of_same_size), ("Trying padding", _views_of_other_size)):
        chosen, sure = choose_partners(evidence, anchors)
        settled = {row: item.candidate for row, item in chosen.items() if sure[row] >= SURE}
        rest, their_rest = our_scan.without(settled), their_scan.without(set(settled.values()))
        with reported(progress, title, len(their_rest.shapes)):
            moved = _rearranged(rest, their_rest, views=views, candidate=candidate, progress=progress)
            evidence = _best_of_each_pair([*evidence, *moved])
    # Fingerprints are few elements in float32: what was chosen, and what came near it, is measured anew.
    evidence = verified(evidence, anchors, reference=reference.read, candidate=candidate.read)
    chosen, sure = choose_partners(evidence, anchors)
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


def _scan(side: SampleSide, indices: Sequence[int], progress: Progress) -> _Scan:
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


def _as_stored(known: _Scan, other: _Scan) -> Iterator[MatchEvidence]:
    for size, prints in known.prints.items():
        if size in other.prints:
            trials = len(prints.owners) + len(other.prints[size].owners)
            for item in compare(prints, other.prints[size], layout=None, trials=trials):
                shapes = known.shapes[item.reference], other.shapes[item.candidate]
                yield replace(item, layout=relabelled(*shapes))


def _rearranged(
    known: _Scan, other: _Scan, *, views: _Views, candidate: SampleSide, progress: Progress
) -> Iterator[MatchEvidence]:
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
    known: _Scan, views: Sequence[_View], *, candidate: SampleSide, indices: Sequence[int]
) -> Iterator[MatchEvidence]:
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


def _best_of_each_pair(evidence: Iterable[MatchEvidence]) -> list[MatchEvidence]:
    """The best layout of each pair; the earlier, more usual one where the values hardly tell."""
    best: dict[tuple[int, int], MatchEvidence] = {}
    for item in evidence:
        if item.key not in best or item.residual * _TIED < best[item.key].residual:
            best[item.key] = item
    return list(best.values())
