"""Scores of one place on one curve, taken in sample by sample."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice

import numpy as np

from roundoff.core.tensors import Array
from roundoff.measure.light_pairs import LIGHT_FIELDS, ErrorTotals, LightMeter, MeterJob
from roundoff.measure.metrics import Metric, sample_sqnr_db, sqnr_db
from roundoff.measure.pairs import NOTHING, PairSums, channel_axis_of, measure_pair
from roundoff.measure.rows import SampleTally

__all__ = ["Pair", "PlaceTally", "compare"]

Pair = tuple[Array, Array]
"""A reference and a candidate."""

# Blocks of so many candidates stay in the cache of a core.
_AT_A_TIME = 6


class PlaceTally:
    """What was seen at one place of one curve.

    Attributes:
        score: The metric, over all samples and of the worst of them.
        nonfinite: How many values are not finite in the candidate but in float.
        nonfinite_in_float: How many values are not finite in float.
        unlike: How many samples have another shape than in float.
        sample_sqnr_db: Signal to noise of each sample, NaN where there is none.
    """

    def __init__(self, metric: Metric) -> None:
        self.score = SampleTally(metric)
        self.nonfinite = self.nonfinite_in_float = self.unlike = 0
        self.sample_sqnr_db: list[float] = []
        self._seen = False

    def add(self, moments: PairSums | None, sample: str) -> None:
        """Take in one sample; None stands for shapes that differ."""
        if moments is None:
            self.unlike += 1
            self.sample_sqnr_db.append(math.nan)
            return
        more = max(0, moments.candidate.nonfinite - moments.reference.nonfinite)
        self.sample_sqnr_db.append(sample_sqnr_db(moments))
        # Where nothing is finite in float there is nothing to compare with.
        self._seen = self._seen or moments.count > 0 or more > 0 or not moments.excluded
        self.nonfinite += more
        self.nonfinite_in_float += moments.reference.nonfinite
        self.score.add(moments, sample)

    def add_equal(self, sample: str) -> None:
        """Take in one sample in which both are the same."""
        self._seen = True
        self.sample_sqnr_db.append(math.inf)
        self.score.add_equal(sample)

    @property
    def sqnr_db(self) -> float | None:
        """Signal to noise of all samples together."""
        if not self._seen:
            return None
        return -math.inf if self.nonfinite else sqnr_db(self.score.sums or NOTHING)


def compare(meter: LightMeter, metric: Metric, pairs: Sequence[Pair]) -> list[PairSums | None]:
    """Compare references with candidates; those of another shape give None.

    Args:
        meter: Measures where few sums are enough.
        metric: What the sums are for.
        pairs: References, each with a candidate; neighbours with the same reference are measured together.
    """
    found: list[PairSums | None] = [None] * len(pairs)
    alike = [at for at, (reference, candidate) in enumerate(pairs) if candidate.shape == reference.shape]
    if not metric.needs <= LIGHT_FIELDS:
        for at in alike:
            reference, candidate = pairs[at]
            found[at] = measure_pair(reference, candidate, channel_axis=channel_axis_of(reference.shape))
        return found
    totals = {at: ErrorTotals() for at in alike}
    with np.errstate(all="ignore"):
        meter.measure(list(_jobs(pairs, totals)))
    for at, sums in totals.items():
        found[at] = sums.sums()
    return found


def _jobs(pairs: Sequence[Pair], totals: Mapping[int, ErrorTotals]) -> Iterator[MeterJob]:
    for _, group in groupby(totals, key=lambda at: id(pairs[at][0])):
        for part in _batched(group, _AT_A_TIME):
            yield MeterJob(pairs[part[0]][0], [pairs[at][1] for at in part], [totals[at] for at in part])


def _batched(items: Iterable[int], size: int) -> Iterator[list[int]]:
    """Items in groups of at most so many."""
    rest = iter(items)
    while group := list(islice(rest, size)):
        yield group
