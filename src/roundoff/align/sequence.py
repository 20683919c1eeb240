"""Matching by order: both sides list what a network computes, so that the lists are aligned like two sequences.

A tensor that is wrong fits no values, but it still has a shape, a sign and a place between two others. All of
these are votes; what each alignment of the two lists is worth is summed over all of them, so that a pair has a
probability: two places that fit equally well share it, and neither is certain.
"""

import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from roundoff.align.evidence import SAMPLES
from roundoff.align.layout import Floats, Shape, positions, seen_through, take
from roundoff.align.pairing import Match, MatchedBy
from roundoff.align.usual_layout import LayoutFit, UsualLayout
from roundoff.align.values import SampleSide
from roundoff.core.tensors import TensorInfo

Matrix = npt.NDArray[np.float64]

LEAST_POSTERIOR = 0.25
"""A pair less probable than this is no pair."""

_STRANGER = -3.0
"""Log-weight of a tensor of the candidate that is none of the reference: copies and casts of a compiler's own."""

_COPY = 0.0
"""The same of one that holds what another holds."""

_DUMPED = (0.02, 0.98)
"""Probability that a tensor of a kind was dumped is never taken for more certain than this."""

_ROUNDS = 3
"""Times that the probability of each kind being dumped is learnt from the alignment it gave."""

_MOST_VALUE = 7.0
"""Most that agreement of values may count. One wrong vote must not outweigh shapes and places of several."""

_VALUE_NOISE = 0.02
"""Unexplained variance that says no more: a correlation of 0.99 between float and 8 bits is as good as any."""

_NO_AGREEMENT = -0.7
"""What it costs not to agree: little, since all values behind a fault do not."""

_CONTRADICTED = -3.0
"""The same of what an activation reads whose own values agree."""

_FLIPPED = 1.5
"""What it costs that all values have the other sign: a fault, but no accident."""

_SIGN = 1.2
"""A tensor without negative values against one with many (Relu, Sigmoid against what they read)."""

_BOTH_POSITIVE = 0.5
_NEGATIVE_SHARE = 0.02
_SIZE, _MOST_SIZE = 0.35, 1.5
"""Weight of the ratio of magnitudes, per factor e, and the most it may cost; codes have none."""

_CONSTANT = 1e-6
_FEWEST = 8
"""Fewer elements correlate by chance."""


ACTIVATIONS = frozenset(
    [
        "Relu",
        "Clip",
        "LeakyRelu",
        "PRelu",
        "Elu",
        "Selu",
        "Celu",
        "Gelu",
        "Mish",
        "Softplus",
        "Softsign",
        "Sigmoid",
        "HardSigmoid",
        "HardSwish",
        "Tanh",
    ]
)
"""Operations that are computed with the layer in front of them."""


class Anchors:
    """Pairs that are certain, as places in both orders; those against the order are left out.

    Args:
        pairs: Places in the reference and in the candidate's order.
    """

    def __init__(self, pairs: Collection[tuple[int, int]]) -> None:
        self.all = sorted(pairs)
        self.rising = _longest_rising(self.all)

    @property
    def log_odds(self) -> float:
        """How much the pairs speak for the order: neighbours that rise against those that fall."""
        places = [candidate for _, candidate in self.all]
        rising = sum(left < right for left, right in itertools.pairwise(places))
        falling = max(len(places) - 1, 0) - rising
        return rising * math.log(0.95 / 0.5) + falling * math.log(0.05 / 0.5)


def _longest_rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest part of pairs, sorted by their first place, in which the second rises too."""
    tails: list[int] = []
    before: list[int] = []
    ends: list[int] = []
    for index, (_, place) in enumerate(pairs):
        low, high = 0, len(tails)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if tails[middle] < place else (low, middle)
        before.append(ends[low - 1] if low else -1)
        tails[low : low + 1] = [place]
        ends[low : low + 1] = [index]
    chosen: list[tuple[int, int]] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        chosen.append(pairs[at])
        at = before[at]
    return chosen[::-1]


def alignment_posteriors(scores: Matrix, skip_reference: Floats, skip_candidate: Floats) -> tuple[Matrix, float]:
    """Probability of each pair over all alignments that keep both orders, and the log-weight of them all.

    Args:
        scores: Log-weight of each pair, ``-inf`` for those that cannot be. Shape (reference, candidate).
        skip_reference: Log-weight of leaving each tensor of the reference without a partner.
        skip_candidate: The same of the candidate.
    """
    before = _all_prefixes(scores, skip_reference, skip_candidate)
    behind = _all_prefixes(scores[::-1, ::-1], skip_reference[::-1], skip_candidate[::-1])[::-1, ::-1]
    total = float(before[-1, -1])
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        found = np.exp(before[:-1, :-1] + scores + behind[1:, 1:] - total)
    return np.nan_to_num(found), total


def _all_prefixes(scores: Matrix, skip_reference: Floats, skip_candidate: Floats) -> Matrix:
    """Log of the summed weights of all alignments of the first i with the first j tensors."""
    # Between two pairs the reference's gaps come first and the candidate's last, so that each alignment is counted
    # once. A row depends on its own left neighbours only through the candidate's gaps, whose weights add up: with
    # these taken off, the row is a running sum.
    rows, columns = scores.shape
    gaps = np.concatenate([[0.0], np.cumsum(skip_candidate)])
    found = np.empty((rows + 1, columns + 1))
    closed = np.full(columns + 1, -np.inf)
    closed[0] = 0.0
    found[0] = gaps
    with np.errstate(invalid="ignore"):
        for row in range(rows):
            closed = closed + skip_reference[row]
            closed[1:] = np.logaddexp(closed[1:], found[row, :-1] + scores[row])
            found[row + 1] = np.logaddexp.accumulate(closed - gaps) + gaps
    return found


# The orders in which a candidate may have been listed.

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class CandidateOrder:
    """One way to read the order of execution from a list of tensors.

    Attributes:
        places: Indices of the tensors in that order.
        prior: Log-probability of it being right, up to a constant, before anything is looked at.
        numbered: Whether numbers in the names say so.
    """

    places: tuple[int, ...]
    prior: float
    numbered: bool = False


def candidate_orders(tensors: Sequence[TensorInfo], *, ordered: bool) -> list[CandidateOrder]:
    """As listed, by the numbers and time stamps in the names, and all of these backwards.

    Args:
        tensors: As the source lists them.
        ordered: Whether the source says that this is the order of execution.
    """
    everything = range(len(tensors))
    found = {tuple(everything): 0.0 if ordered else _LISTED}
    numbered: set[tuple[int, ...]] = set()
    for numbers in _number_columns([info.name for info in tensors]):
        places = tuple(sorted(everything, key=lambda index: (numbers.get(index, math.inf), index)))
        # A number that every name has, each another one, counts something: most often what ran when.
        found[places] = max(found.get(places, -math.inf), _NUMBERED if not ordered else _NUMBERED + _LISTED)
        numbered |= {places, places[::-1]}
    backwards = {places[::-1]: prior + _BACKWARDS for places, prior in found.items()}
    both = {**backwards, **found}
    return [CandidateOrder(places, prior, places in numbered) for places, prior in both.items()]


_LISTED, _NUMBERED, _BACKWARDS, _NO_ORDER = -3.0, -0.5, -3.0, -1.0
"""Log-probabilities, up to a constant: of the list as it stands, where the source does not say that it is in
order; of one by numbers in the names; of either backwards; of no order at all."""

_MOST_NUMBERED = 0.9
"""Share of the names that a number must tell apart to count what ran when."""

_MOST_SPARSE, _TIME_SPAN = 16.0, 0.01
"""Numbers count when they leave out no more than so many each, or are times: all within this part of the last."""


def _number_columns(names: Sequence[str]) -> Iterator[dict[int, float]]:
    """Numbers in names by their place, from the front and from the end, where they may count what ran when."""
    columns: dict[int, dict[int, float]] = defaultdict(dict)
    for index, name in enumerate(names):
        found = _NUMBER.findall(name)
        for back, digits in enumerate(reversed(found)):
            columns[-1 - back][index] = float(digits)
        if found:
            columns[0][index] = float(found[0])
    for numbers in columns.values():
        different = set(numbers.values())
        span = max(different) - min(different)
        counts = span <= _MOST_SPARSE * len(different) or span <= _TIME_SPAN * max(different)
        if counts and len(different) >= _MOST_NUMBERED * len(names):
            yield numbers


# What speaks for a pair besides its place.


@dataclass(frozen=True, slots=True)
class _Look:
    """What a few elements of a tensor show.

    Attributes:
        unit: The elements less their mean, of length one; None where they say nothing.
        negative: Share of negative ones; None when unknown.
        size: Log of their root mean square; None when unknown, or of codes.
    """

    unit: npt.NDArray[np.float32] | None = None
    negative: float | None = None
    size: float | None = None


_BLIND = _Look()


def _look(values: Floats | None, *, codes: bool) -> _Look:
    if values is None:
        return _BLIND
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0:
        return _Look(None, 0.0, None)
    scaled = values / largest
    centred = scaled - scaled.mean()
    length = float(np.sqrt(centred @ centred))
    telling = values.size >= _FEWEST and length > _CONSTANT * math.sqrt(values.size)
    unit = (centred / length).astype(np.float32) if telling else None
    size = None if codes else math.log(largest) + 0.5 * math.log(float(np.mean(scaled**2)))
    return _Look(unit, None if codes else float(np.mean(values < -1e-6 * largest)), size)


class _Looks:
    """Looks at tensors of both sides, each element at the same place in the network."""

    def __init__(self, reference: SampleSide, candidate: SampleSide, layout: UsualLayout) -> None:
        self._sides, self._layout = (reference, candidate), layout
        self._ours: dict[int, _Look] = {}
        self._theirs: dict[tuple[int, Shape], _Look] = {}

    def ours(self, index: int) -> _Look:
        if index not in self._ours:
            array = self._sides[0].read(index)
            seen = None if array is None else take(array, positions(array.size, SAMPLES))
            self._ours[index] = _look(seen, codes=False)
        return self._ours[index]

    def read_theirs(self, index: int, shapes: Collection[Shape]) -> None:
        """Look at one tensor as each of the shapes would show it; it is read once."""
        wanted = [shape for shape in shapes if (index, shape) not in self._theirs]
        array = self._sides[1].read(index) if wanted else None
        for shape in wanted:
            seen = None
            if array is not None and (fit := self._layout.fit(shape, array.shape)) is not None:
                seen = take(array, seen_through(fit.layout, shape, array.shape, count=SAMPLES))
            codes = array is not None and array.dtype.kind in "iu"
            self._theirs[index, shape] = _look(seen, codes=codes)

    def theirs(self, index: int, shape: Shape) -> _Look:
        return self._theirs[index, shape]


def _value_votes(correlation: Matrix) -> Matrix:
    """Log-weights of correlations: much for those that agree, little against those that do not."""
    residual = 1 - np.square(correlation)
    votes = np.minimum(-1.8 * np.log(residual + _VALUE_NOISE), _MOST_VALUE)
    votes = np.where(correlation > 0, votes, np.maximum(votes - _FLIPPED, 0.0))
    return np.asarray(votes + _NO_AGREEMENT)


def _sign_votes(ours: Sequence[_Look], theirs: Sequence[_Look]) -> Matrix:
    votes = np.zeros((len(ours), len(theirs)))
    for row, left in enumerate(ours):
        for column, right in enumerate(theirs):
            if left.negative is None or right.negative is None:
                continue
            signs = left.negative > _NEGATIVE_SHARE, right.negative > _NEGATIVE_SHARE
            if not any(signs):
                votes[row, column] += _BOTH_POSITIVE
            elif signs[0] != signs[1]:
                votes[row, column] -= _SIGN
            if left.size is not None and right.size is not None:
                votes[row, column] -= min(_SIZE * abs(left.size - right.size), _MOST_SIZE)
    return votes


class _Aligner:
    """All that is known of two lists of tensors but the candidate's order."""

    def __init__(
        self, reference: SampleSide, candidate: SampleSide, known: Sequence[Match], layout: UsualLayout
    ) -> None:
        self.reference, self.candidate, self.layout = reference, candidate, layout
        self.known = {match.reference: match.candidate for match in known}
        taken = set(self.known.values())
        self.ours = [i for i, info in enumerate(reference.tensors) if i not in self.known and _usable(info)]
        self.theirs = [i for i, info in enumerate(candidate.tensors) if i not in taken and _usable(info)]
        self._looks = _Looks(reference, candidate, layout)
        self.copies = self._find_copies()
        self._kinds = _kinds(reference.tensors)
        self._shapes = Counter(info.shape for info in reference.tensors)
        by_value = [match.reference for match in known if match.how == "value"]
        self._read_rightly = frozenset(
            index - 1
            for index in by_value
            if index
            and reference.tensors[index].op_type in ACTIVATIONS
            and reference.tensors[index].shape == reference.tensors[index - 1].shape
        )

    def _find_copies(self) -> frozenset[int]:
        """Tensors that hold what another of the same shape holds: a compiler's copies, or what was left behind."""
        shapes = {self.candidate.tensors[index].shape for index in self.theirs}
        groups: dict[Shape, list[int]] = defaultdict(list)
        for index in (*self.known.values(), *self.theirs):
            shape = self.candidate.tensors[index].shape
            if shape in shapes:
                groups[shape].append(index)
        seen: set[bytes] = set()
        copies = set()
        for indices in groups.values():
            # A shape that one tensor has needs no reading.
            for index in indices if len(indices) > 1 else ():
                array = self.candidate.read(index)
                few = None if array is None else take(array, positions(array.size, SAMPLES))
                if few is None or float(np.ptp(few)) == 0:
                    continue
                key = few.tobytes()
                if key in seen and index not in self.known.values():
                    copies.add(index)
                seen.add(key)
        return frozenset(copies)

    def scores(self, ours: Sequence[int], theirs: Sequence[int]) -> Matrix:
        """Log-odds of each pair by shape, values and sign; -inf where the shapes cannot be one."""
        found = np.full((len(ours), len(theirs)), -np.inf)
        rows: dict[Shape, list[int]] = defaultdict(list)
        for row, index in enumerate(ours):
            rows[self.reference.tensors[index].shape].append(row)
        columns: dict[Shape, list[int]] = defaultdict(list)
        for column, index in enumerate(theirs):
            columns[self.candidate.tensors[index].shape].append(column)
        fits = {
            (shape, stored): fit
            for shape in rows
            for stored in columns
            if (fit := self.layout.fit(shape, stored)) is not None
        }
        wanted: dict[Shape, list[Shape]] = defaultdict(list)
        for shape, stored in fits:
            wanted[stored].append(shape)
        for stored, shapes in wanted.items():
            for column in columns[stored]:
                self._looks.read_theirs(theirs[column], shapes)
        total = sum(self._shapes.values())
        for (shape, stored), fit in fits.items():
            # A shape that few tensors have says more.
            rarity = math.log(total / self._shapes[shape]) if self._shapes[shape] else 0.0
            left = [self._looks.ours(ours[row]) for row in rows[shape]]
            right = [self._looks.theirs(theirs[column], shape) for column in columns[stored]]
            votes = rarity + fit.prior + _sign_votes(left, right)
            values = _correlation_votes(left, right)
            # What only an activation reads that is right is right itself, as far as it is this tensor at all.
            right_behind = np.array([ours[row] in self._read_rightly for row in rows[shape]])
            votes += np.where(right_behind[:, None] & (values <= 0), _CONTRADICTED, values)
            found[np.ix_(rows[shape], columns[stored])] = votes
        return found

    def posteriors(self, order: Sequence[int], scored: "_Scored") -> "_Aligned":
        """Probabilities of pairs when the candidate ran in this order."""
        place = {index: position for position, index in enumerate(order)}
        anchors = Anchors([(ours, place[theirs]) for ours, theirs in self.known.items()])
        blocks = list(self._blocks(anchors, place))
        dumped = self._dumped({})
        found: dict[tuple[int, int], float] = {}
        total = 0.0
        for _ in range(_ROUNDS):
            found, total = {}, 0.0
            for ours, theirs in blocks:
                share = np.array([dumped[index] for index in ours])
                scores = scored.block(ours, theirs) + np.log(share)[:, None]
                probable, weight = alignment_posteriors(scores, np.log1p(-share), self._alone(theirs))
                total += weight
                for row, column in np.argwhere(probable > _NEGLIGIBLE):
                    found[ours[row], theirs[column]] = float(probable[row, column])
            dumped = self._dumped(found)
        return _Aligned(found, total, anchors.log_odds)

    def only_one(self, candidate: int, reference: int) -> bool:
        """Whether nothing else that is left has the shape of this tensor of the reference."""
        shape = self.reference.tensors[reference].shape
        fitting = [each for each in self.theirs if self.layout.fit(shape, self.candidate.tensors[each].shape)]
        return fitting == [candidate]

    def _alone(self, theirs: Sequence[int]) -> Floats:
        """Log-weight of each tensor of the candidate being none of the reference."""
        return np.array([_COPY if index in self.copies else _STRANGER for index in theirs])

    def without_order(self, scored: "_Scored") -> dict[tuple[int, int], float]:
        """Probabilities of pairs when the candidate's order says nothing: who is left for whom."""
        found: dict[tuple[int, int], float] = {}
        weights = scored.block(self.ours, self.theirs)
        for _ in range(_ROUNDS):
            share = np.array(self._dumped(found))[self.ours]
            odds = np.exp(np.minimum(weights + np.log(share / (1 - share))[:, None], _MOST_LOG_ODDS))
            probable = _assignment_marginals(odds, np.exp(self._alone(self.theirs)))
            found = {
                (self.ours[row], self.theirs[column]): float(probable[row, column])
                for row, column in np.argwhere(probable > _NEGLIGIBLE)
            }
        return found

    def _blocks(self, anchors: Anchors, place: Mapping[int, int]) -> Iterator[tuple[list[int], list[int]]]:
        """What lies between one certain pair and the next on both sides; nothing crosses these."""
        edges = np.array(anchors.rising or np.empty((0, 2)), dtype=np.int64).reshape(-1, 2)
        ours: dict[int, list[int]] = defaultdict(list)
        for index in self.ours:
            ours[int(np.searchsorted(edges[:, 0], index))].append(index)
        theirs: dict[int, list[int]] = defaultdict(list)
        for index in sorted(self.theirs, key=place.__getitem__):
            theirs[int(np.searchsorted(edges[:, 1], place[index]))].append(index)
        for segment in sorted({*ours, *theirs}):
            if ours[segment]:
                yield ours[segment], theirs[segment]

    def _dumped(self, found: Mapping[tuple[int, int], float]) -> list[float]:
        """How probable it is that each tensor of the reference was dumped: who fuses one Conv fuses all.

        Args:
            found: Probabilities of pairs so far; empty before the first alignment.
        """
        own = [kind.partition(" ")[0] for kind in self._kinds]
        was = dict.fromkeys(self.known, 1.0)
        for (index, _), probability in found.items():
            was[index] = was.get(index, 0.0) + probability
        # Without an alignment only the certain pairs count, and the free ones count as the dump as a whole does.
        free = min((len(self.theirs) - len(self.copies)) / len(self.ours), 1.0)
        seen = {index: was.get(index, 0.0 if found else free) for index in (*self.known, *self.ours)}
        shares = _shares([(own[index], value) for index, value in seen.items()], lambda _: 0.5, weight=1.0)
        # A kind that few tensors are of is like the operation it belongs to.
        fine = _shares(
            [(self._kinds[index], value) for index, value in seen.items()],
            lambda kind: shares[kind.partition(" ")[0]],
            weight=1.0 if found else 4.0,
        )
        return [float(np.clip(fine.get(kind, 0.5), *_DUMPED)) for kind in self._kinds]


def _shares(
    seen: Sequence[tuple[str, float]], prior: Callable[[str], float], *, weight: float
) -> dict[str, float]:
    """Mean of what was seen of each kind, drawn towards its prior as if that had been seen `weight` times."""
    sums: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = Counter(kind for kind, _ in seen)
    for kind, value in seen:
        sums[kind] += value
    return {kind: (sums[kind] + weight * prior(kind)) / (counts[kind] + weight) for kind in counts}


_NEGLIGIBLE = 1e-3


_MOST_LOG_ODDS = 40.0
_SWEEPS = 60


def _assignment_marginals(odds: Matrix, alone: Floats) -> Matrix:
    """Roughly how probable each pair is when every tensor has at most one partner.

    Rows and columns are scaled in turn until each sums to one, what is left without a partner included.
    """
    rows, columns = np.ones(odds.shape[0]), np.ones(odds.shape[1])
    for _ in range(_SWEEPS):
        rows = 1 / (1 + odds @ columns)
        columns = 1 / (alone + rows @ odds)
    return np.asarray(rows[:, None] * odds * columns)


@dataclass(frozen=True, slots=True)
class _Aligned:
    """What an order gives.

    Attributes:
        pairs: Probabilities of pairs.
        log_weight: Log of the weight of all alignments, the certain pairs left aside.
        anchored: How much the certain pairs speak for the order.
    """

    pairs: Mapping[tuple[int, int], float]
    log_weight: float
    anchored: float


class _Scored:
    """Scores of all pairs, computed once whatever orders are tried."""

    def __init__(self, aligner: _Aligner) -> None:
        self._rows = {index: row for row, index in enumerate(aligner.ours)}
        self._columns = {index: column for column, index in enumerate(aligner.theirs)}
        self._scores = aligner.scores(aligner.ours, aligner.theirs)

    def block(self, ours: Sequence[int], theirs: Sequence[int]) -> Matrix:
        rows, columns = [self._rows[index] for index in ours], [self._columns[index] for index in theirs]
        return self._scores[np.ix_(rows, columns)]


def _correlation_votes(ours: Sequence[_Look], theirs: Sequence[_Look]) -> Matrix:
    votes = np.zeros((len(ours), len(theirs)))
    rows = [row for row, look in enumerate(ours) if look.unit is not None]
    columns = [column for column, look in enumerate(theirs) if look.unit is not None]
    if rows and columns:
        left = np.stack([look.unit for row in rows if (look := ours[row]).unit is not None])
        right = np.stack([look.unit for column in columns if (look := theirs[column]).unit is not None])
        votes[np.ix_(rows, columns)] = _value_votes(left.astype(np.float64) @ right.T.astype(np.float64))
    return votes


def _usable(info: TensorInfo) -> bool:
    return info.dtype.startswith(_REAL) and not info.problem and 0 not in info.shape


_REAL = ("float", "int", "uint", "bool", "bfloat")


def _kinds(tensors: Sequence[TensorInfo]) -> list[str]:
    """Operation that makes a tensor and the one behind it in the list: these decide whether it is fused away."""
    types = [info.op_type for info in tensors]
    return [f"{own} {after}" for own, after in zip(types, [*types[1:], ""], strict=True)]


_SELDOM, _MOSTLY, _FEWEST_OF_KIND = 0.2, 0.8, 2


def doubted_by_kind(certain: Sequence[Match], tensors: Sequence[TensorInfo]) -> list[Match]:
    """Matches by value with a tensor of a kind that is hardly ever dumped, while the one behind it always is.

    A device that leaves out an activation writes what that should have read: values alone would call it right.

    Args:
        certain: Certain matches.
        tensors: The reference in execution order.
    """
    kinds = _kinds(tensors)
    found = {match.reference: match for match in certain}
    dumped, there = Counter(kinds[index] for index in found), Counter(kinds)
    doubted = []
    for index, match in found.items():
        behind = index + 1
        if match.how != "value" or behind >= len(tensors) or behind in found:
            continue
        if tensors[behind].shape != tensors[index].shape:
            continue
        own, other = kinds[index], kinds[behind]
        others = there[own] - 1, there[other] - 1
        seldom = others[0] >= _FEWEST_OF_KIND and (dumped[own] - 1) <= _SELDOM * others[0]
        if seldom and dumped[other] >= _MOSTLY * others[1] and dumped[other] >= _FEWEST_OF_KIND:
            doubted.append(match)
    return doubted


_FEWEST_TENSORS, _FEWEST_SHAPES = 4, 3
"""Without one certain pair, so many tensors of so many shapes must come in the same order."""

_SHUFFLES, _LUCK = 5, 3.0
_SEED = 1801
_MOST_SCORES = 6_000_000
"""Pairs scored at most; beyond these only values tell (2,400 tensors on each side without a partner)."""


_MOST_PERMUTED = 6
_IN_ORDER = math.log(3.0)
"""Log-odds that two tensors which a list has in one order are those that the network hands out in that order."""


def jointly_probable(
    fits: Mapping[tuple[int, int], LayoutFit], reference: SampleSide, candidate: SampleSide
) -> dict[tuple[int, int], float]:
    """How probable each pair is when every tensor of the candidate is one of these, by all ways to pair them.

    Args:
        fits: Pairs that shapes allow, by index.
        reference: What is right, in execution order.
        candidate: What is judged.
    """
    ours, theirs = (sorted({pair[side] for pair in fits}) for side in (0, 1))
    if len(ours) > _MOST_PERMUTED or len(theirs) > len(ours):
        return {}
    weights: dict[tuple[int, int], float] = {}
    for (ours_at, theirs_at), fit in fits.items():
        exact, stored = reference.read(ours_at), candidate.read(theirs_at)
        if exact is None or stored is None:
            continue
        at = seen_through(fit.layout, exact.shape, stored.shape, count=SAMPLES)
        left = [_look(take(exact, positions(exact.size, SAMPLES)), codes=False)]
        right = [_look(take(stored, at), codes=stored.dtype.kind in "iu")]
        votes = fit.prior + _sign_votes(left, right) + _correlation_votes(left, right)
        weights[ours_at, theirs_at] = float(votes[0, 0])
    ways: list[tuple[float, tuple[tuple[int, int], ...]]] = []
    for chosen in itertools.permutations(ours, len(theirs)):
        pairs = tuple(zip(chosen, theirs, strict=True))
        if all(pair in weights for pair in pairs):
            rising = sum(left < right for left, right in itertools.pairwise(chosen))
            ways.append((sum(weights[pair] for pair in pairs) + _IN_ORDER * rising, pairs))
    total = float(np.logaddexp.reduce([weight for weight, _ in ways])) if ways else 0.0
    found: dict[tuple[int, int], float] = defaultdict(float)
    for weight, pairs in ways:
        for pair in pairs:
            found[pair] += math.exp(weight - total)
    return found


def match_by_order(
    reference: SampleSide,
    candidate: SampleSide,
    *,
    known: Sequence[Match],
    layout: UsualLayout,
    ordered: bool,
) -> list[Match]:
    """Pair by place what has no certain partner yet.

    Args:
        reference: What is right, in execution order.
        candidate: What is judged.
        known: Certain pairs.
        layout: How most of the candidate is stored.
        ordered: Whether the candidate says that it is in execution order.
    """
    aligner = _Aligner(reference, candidate, known, layout)
    if not aligner.ours or not aligner.theirs or len(aligner.ours) * len(aligner.theirs) > _MOST_SCORES:
        return []
    shapes = {candidate.tensors[index].shape for index in aligner.theirs}
    if not known and (len(shapes) < _FEWEST_SHAPES or len(aligner.theirs) < _FEWEST_TENSORS):
        return []  # nothing shows that both are one network
    scored = _Scored(aligner)
    orders = candidate_orders(candidate.tensors, ordered=ordered)
    tried = [(order, aligner.posteriors(order.places, scored)) for order in orders]
    weights = [order.prior + aligned.log_weight + aligned.anchored for order, aligned in tried]
    # What no order at all would give, for comparison: where every order aligns as well, none is known.
    best_order = orders[int(np.argmax(weights))]
    prior = _NO_ORDER - (_SAYS_SO if ordered else 0.0)
    without = [aligner.posteriors(each, scored).log_weight for each in _shuffled(best_order, aligner)]
    chance = prior + float(np.logaddexp.reduce(without)) - math.log(len(without))
    # Some shuffles align well by luck: a list that nothing says is in order must do better than these.
    luck = 0.0 if ordered else max(without) + _LUCK * float(np.std(without)) + prior - chance
    weights = [
        weight - (0.0 if order.numbered else luck) for (order, _), weight in zip(tried, weights, strict=True)
    ]
    everything = float(np.logaddexp.reduce([*weights, chance]))
    # Orders that say the same of a pair support it together.
    sums: dict[tuple[int, int], float] = defaultdict(float)
    in_order = math.exp(max(weights) - everything) > math.exp(chance - everything)
    shares = [(aligned.pairs, weight) for (_, aligned), weight in zip(tried, weights, strict=True)]
    for pairs, weight in (*shares, (aligner.without_order(scored), chance)):
        trust = math.exp(weight - everything)
        for pair, probability in pairs.items() if trust > _NEGLIGIBLE else ():
            sums[pair] += trust * probability
    return list(_mutually_best(sums, aligner, "order" if in_order else "elimination"))


_ONE_OF_SEVERAL = 0.45
"""What is left of the confidence of a pair without an order where others have its shape, too: not enough."""

_SAYS_SO = 6.0
"""Log-odds of a source being in order that says it is."""


def _shuffled(order: CandidateOrder, aligner: _Aligner) -> Iterator[tuple[int, ...]]:
    """The order with what has no partner yet in any other."""
    random = np.random.default_rng((_SEED, len(order.places)))
    free = set(aligner.theirs)
    slots = [position for position, index in enumerate(order.places) if index in free]
    for _ in range(_SHUFFLES):
        places = list(order.places)
        for slot, moved in zip(slots, random.permutation([places[slot] for slot in slots]), strict=True):
            places[slot] = int(moved)
        yield tuple(places)


def _mutually_best(sums: Mapping[tuple[int, int], float], aligner: _Aligner, how: MatchedBy) -> Iterator[Match]:
    best: dict[int, tuple[float, int]] = {}
    best_back: dict[int, tuple[float, int]] = {}
    for (ours, theirs), probability in sums.items():
        best[ours] = max(best.get(ours, (0.0, -1)), (probability, theirs))
        best_back[theirs] = max(best_back.get(theirs, (0.0, -1)), (probability, ours))
    for ours, (probability, theirs) in sorted(best.items()):
        if probability < LEAST_POSTERIOR or best_back[theirs][1] != ours:
            continue
        left, right = aligner.reference.tensors[ours], aligner.candidate.tensors[theirs]
        fit = aligner.layout.fit(left.shape, right.shape)
        if fit is None:
            continue
        certain = how == "order" or aligner.only_one(theirs, ours)
        yield Match(ours, theirs, how, min(probability, 1.0) * (1 if certain else _ONE_OF_SEVERAL), fit.layout)
