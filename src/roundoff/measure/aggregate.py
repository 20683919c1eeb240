"""One score for many samples: of all of them as one tensor, or the mean of their scores.

The two are different metrics with different names. ``sqnr_db`` merges the sums of all samples; ``mean_sqnr_db``
scores each sample alone and averages the decibels.
"""

import math
from collections.abc import Collection

from roundoff.measure.metrics import Metric
from roundoff.measure.pairs import NOTHING, PairSums

__all__ = ["SampleMean", "SampleTally", "mean_of_scores"]


def mean_of_scores(values: Collection[float], perfect: float | None) -> float | None:
    """The mean of scores; None when there is none.

    What is NaN has no part in it; nor has a perfect score that is infinite, unless all are.
    """
    known = [value for value in values if not math.isnan(value)]
    imperfect = [value for value in known if not (math.isinf(value) and value == perfect)]
    if imperfect:
        return math.fsum(imperfect) / len(imperfect)
    return known[0] if known else None


class SampleMean:
    """The mean of a metric over samples, taken in one by one; see `mean_of_scores`.

    Attributes:
        worst: The worst value so far; None before there is one.
        worst_sample: The sample it is from.
    """

    worst: float | None
    worst_sample: str

    def __init__(self, metric: Metric) -> None:
        self._perfect = metric.perfect
        self._sign = -1.0 if metric.direction == "lower" else 1.0
        self._total = 0.0
        self._count = self._perfect_count = 0
        self.worst, self.worst_sample = None, ""

    def add(self, value: float, sample: str) -> None:
        """Take in the value of one sample."""
        if math.isnan(value):
            return
        if math.isinf(value) and value == self._perfect:
            self._perfect_count += 1
        else:
            self._total += value
            self._count += 1
        if self.worst is None or self._sign * value < self._sign * self.worst:
            self.worst, self.worst_sample = value, sample

    @property
    def value(self) -> float | None:
        """The mean; None when no sample has a score."""
        if self._count:
            return self._total / self._count
        return self._perfect if self._perfect_count else None


class SampleTally:
    """A metric over samples that go by, with the worst of them.

    Args:
        metric: Says whether sums are merged or scores averaged.

    Attributes:
        samples: The mean over samples, and the worst of them.
        sums: Of all samples together; None before there is one.
    """

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self.samples = SampleMean(metric)
        self.sums: PairSums | None = None

    def add(self, sums: PairSums, sample: str) -> None:
        """Take in one sample."""
        self.samples.add(self._metric.value(sums), sample)
        self.sums = sums if self.sums is None else self.sums.merge(sums)

    def add_equal(self, sample: str) -> None:
        """Take in one sample in which both sides are the same; it was not summed up."""
        if self._metric.perfect is not None:
            self.samples.add(self._metric.perfect, sample)
        self.sums = self.sums or NOTHING

    @property
    def value(self) -> float | None:
        """The score; None when there is none."""
        if self._metric.per_sample:
            return self.samples.value
        if self.sums is None:
            return None
        value = self._metric.value(self.sums)
        return None if math.isnan(value) else value
