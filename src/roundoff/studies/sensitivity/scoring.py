"""Scores of many samples at once: sums over rows, and the metrics that are functions of them."""

import math
from collections.abc import Sequence

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.measure.metrics import Metric, all_metrics, get_metric
from roundoff.measure.pairs import PairMoments, SideMoments
from roundoff.run.blocks.chain import rows_of

__all__ = ["Scorer", "row_moments", "usable_metrics"]

# Elements of a row, and of all rows, that are summed at a time: longer sums would start BLAS's threads, and larger
# arrays would be taken from the system and given back each time.
_PIECE, _BLOCK = 8192, 1 << 13
# Relative errors below these are counted; see `roundoff.core.measure`.
_NEAR, _FAIR = 1e-3, 5e-3
# These need distributions or channels.
_NEEDS_MORE = frozenset({"kl_divergence", "worst_channel_sqnr_db"})


def usable_metrics() -> tuple[str, ...]:
    """Metrics that parts of a network can be ranked by."""
    return tuple(m.name for m in all_metrics() if m.direction != "none" and m.name not in _NEEDS_MORE)


class Scorer:
    """Scores outputs by some metrics.

    Raises:
        BadInput: A metric does not exist, or cannot rank.
    """

    def __init__(self, metrics: Sequence[str]) -> None:
        self.metrics: tuple[Metric, ...] = tuple(get_metric(name) for name in dict.fromkeys(metrics))
        usable = usable_metrics()
        for metric in self.metrics:
            if metric.name not in usable:
                what = f"Nothing can be ranked by {metric.name!r}: it describes, or needs whole distributions."
                raise BadInput(what, fix=f"choose from: {', '.join(usable)}")
        self._shares = any(metric.unit == "share" for metric in self.metrics)
        if not self.metrics:
            raise BadInput("No metric was given.", fix=f"choose from: {', '.join(usable)}")

    def score(self, references: Sequence[Array], candidates: Sequence[Array], count: int) -> Array:
        """Scores of so many samples that were run together.

        Args:
            references: Each output as it should be, all samples one after the other.
            candidates: Each output as it is.
            count: How many samples.

        Returns:
            Of shape (samples, outputs, metrics); NaN where shapes differ or nothing is a number.
        """
        values = np.full((count, len(references), len(self.metrics)), np.nan)
        for place, (reference, candidate) in enumerate(zip(references, candidates, strict=True)):
            if reference.shape != candidate.shape:
                continue
            rows = row_moments(rows_of(reference, count), rows_of(candidate, count), shares=self._shares)
            for row, moments in enumerate(rows):
                values[row, place] = [_value(metric, moments) for metric in self.metrics]
        return values


def _value(metric: Metric, moments: PairMoments) -> float:
    if moments.count:
        return metric.compute(moments)
    return math.nan if moments.excluded or metric.perfect is None else metric.perfect


def row_moments(reference: Array, candidate: Array, *, shares: bool = True) -> list[PairMoments]:
    """Compare two tables row by row.

    Sums are float64, in sums of at most 8,192 terms that are added up. Distributions and channels are left out.

    Args:
        reference: Of shape (rows, elements), any real type.
        candidate: Of the same shape.
        shares: Count how many elements are near one another.
    """
    rows, length = reference.shape
    width = min(_PIECE, length)
    step = min(rows, max(1, _BLOCK // max(1, width)))
    space = np.empty((5, step, width))
    found: list[PairMoments] = []
    for start in range(0, rows, step):
        sums = _RowSums(len(reference[start : start + step]), shares=shares)
        for at in range(0, length, _PIECE):
            part = slice(start, start + step), slice(at, at + _PIECE)
            high, wide = reference[part].shape
            work = space[:, :high, :wide]
            work[0], work[1] = reference[part], candidate[part]
            sums.add(work)
        found += sums.moments()
    return found


class _RowSums:
    """Running sums of a few rows."""

    def __init__(self, rows: int, *, shares: bool) -> None:
        self._shares = shares
        self._counts = np.zeros((7, rows), dtype=np.int64)
        self._sums = np.zeros((6, rows))
        self._largest = np.zeros((2, rows))

    def add(self, work: Array) -> None:
        """Take in a piece of each row.

        Args:
            work: Of shape (5, rows, elements): reference, candidate, and room for the error, its magnitude and its
                share of the reference. All are overwritten.
        """
        x, y, error, magnitude, relative = work
        keep = None
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            np.subtract(x, y, out=error)
            if not np.isfinite(error).all():
                keep = self._without_nonfinite(x, y)
                np.subtract(x, y, out=error)
            np.abs(error, out=magnitude)
            zeros = np.abs(x, out=relative) == 0
            np.divide(magnitude, relative, out=relative)
            if zeros.any():
                relative[zeros] = 0.0
            self._sums += [
                np.vecdot(x, x), np.vecdot(y, y), np.vecdot(x, y), np.vecdot(error, error),
                magnitude.sum(axis=1), relative.sum(axis=1),
            ]  # fmt: skip
        self._counts[0] += x.shape[1] if keep is None else keep.sum(axis=1)
        self._counts[4] += x.shape[1] - zeros.sum(axis=1)
        if self._shares:
            # Elements without a relative error are near when they are equal; what was left out is not counted.
            near = ~zeros | (magnitude == 0) if keep is None else (~zeros | (magnitude == 0)) & keep
            self._counts[5:] += [((relative < bound) & near).sum(axis=1) for bound in (_NEAR, _FAIR)]
        np.maximum(self._largest, [magnitude.max(axis=1), relative.max(axis=1)], out=self._largest)

    def _without_nonfinite(self, x: Array, y: Array) -> Array:
        """Set to zero, in place, what is not finite on either side; gives what is left."""
        finite = np.isfinite(x), np.isfinite(y)
        keep = finite[0] & finite[1]
        x[~keep] = y[~keep] = 0.0
        self._counts[1:4] += [(~side).sum(axis=1) for side in (keep, *finite)]
        return keep

    def moments(self) -> list[PairMoments]:
        """What was summed, for each row."""
        counts, sums, largest = self._counts.T.tolist(), self._sums.T.tolist(), self._largest.T.tolist()
        return [_moments(*row) for row in zip(counts, sums, largest, strict=True)]


def _moments(counts: list[int], sums: list[float], largest: list[float]) -> PairMoments:
    return PairMoments(
        count=counts[0],
        excluded=counts[1],
        reference=_side(sums[0], nonfinite=counts[2]),
        candidate=_side(sums[1], nonfinite=counts[3]),
        product=sums[2],
        square_error=sums[3],
        abs_error=sums[4],
        relative_error=sums[5],
        max_abs_error=largest[0],
        max_relative_error=largest[1],
        relative_count=counts[4],
        within_1e3=counts[5],
        within_5e3=counts[6],
    )


def _side(square: float, *, nonfinite: int) -> SideMoments:
    limits = (0.0, 0.0) if square == 0 else (math.inf, -math.inf)
    return SideMoments(square=square, low=limits[0], high=limits[1], nonfinite=nonfinite)
