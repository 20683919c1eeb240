"""Scores of many samples at once: sums over rows, and the metrics that are functions of them."""

import math
from collections.abc import Sequence

import numpy as np

from roundoff.core.moments import PairMoments, SideMoments
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.metrics.registry import Metric, all_metrics, get_metric
from roundoff.runtime.blocks.chunks import rows_of

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
            rows = row_moments(rows_of(reference, count), rows_of(candidate, count))
            for row, moments in enumerate(rows):
                values[row, place] = [_value(metric, moments) for metric in self.metrics]
        return values


def _value(metric: Metric, moments: PairMoments) -> float:
    if moments.count:
        return metric.compute(moments)
    return math.nan if moments.excluded or metric.perfect is None else metric.perfect


def row_moments(reference: Array, candidate: Array) -> list[PairMoments]:
    """Compare two tables row by row.

    Sums are float64, in sums of at most 8,192 terms that are added up. Distributions and channels are left out.

    Args:
        reference: Of shape (rows, elements), any real type.
        candidate: Of the same shape.
    """
    step = max(1, _BLOCK // max(1, min(_PIECE, reference.shape[1])))
    found: list[PairMoments] = []
    for start in range(0, reference.shape[0], step):
        sums = _RowSums(len(reference[start : start + step]))
        for at in range(0, reference.shape[1], _PIECE):
            part = slice(start, start + step), slice(at, at + _PIECE)
            sums.add(reference[part].astype(np.float64), candidate[part].astype(np.float64))
        found += sums.moments()
    return found


class _RowSums:
    """Running sums of a few rows."""

    def __init__(self, rows: int) -> None:
        self._counts = np.zeros((7, rows), dtype=np.int64)
        self._sums = np.zeros((6, rows))
        self._largest = np.zeros((2, rows))
        self._zero = np.ones((2, rows), dtype=np.bool_)

    def add(self, x: Array, y: Array) -> None:
        """Take in a piece of each row."""
        with np.errstate(invalid="ignore", over="ignore"):
            error = x - y
        keep = None
        if not np.isfinite(error).all():
            finite = np.isfinite(x), np.isfinite(y)
            keep = finite[0] & finite[1]
            x, y = np.where(keep, x, 0.0), np.where(keep, y, 0.0)
            with np.errstate(over="ignore"):
                error = x - y
            self._counts[1:4] += [(~side).sum(axis=1) for side in (keep, *finite)]
        width = x.shape[1] if keep is None else keep.sum(axis=1)
        magnitude, size = np.abs(error), np.abs(x)
        nonzero = size > 0
        with np.errstate(over="ignore"):
            relative = np.divide(magnitude, size, out=np.zeros_like(size), where=nonzero)
            self._sums += [
                np.vecdot(x, x), np.vecdot(y, y), np.vecdot(x, y), np.vecdot(error, error),
                magnitude.sum(axis=1), relative.sum(axis=1),
            ]  # fmt: skip
        compared = nonzero.sum(axis=1)
        self._counts[0] += width
        self._counts[4] += compared
        # Of elements without a relative error those count as near that are equal.
        equal = ~nonzero & (magnitude == 0) if keep is None else ~nonzero & (magnitude == 0) & keep
        for row, bound in ((5, _NEAR), (6, _FAIR)):
            self._counts[row] += ((relative < bound) & nonzero).sum(axis=1) + equal.sum(axis=1)
        np.maximum(self._largest, [magnitude.max(axis=1), relative.max(axis=1)], out=self._largest)
        self._zero &= [~nonzero.any(axis=1), ~y.any(axis=1)]

    def moments(self) -> list[PairMoments]:
        """What was summed, for each row."""
        return [self._row(row) for row in range(self._sums.shape[1])]

    def _row(self, row: int) -> PairMoments:
        count, excluded, left, right, compared, near, fair = self._counts[:, row].tolist()
        xx, yy, xy, square, absolute, relative = self._sums[:, row].tolist()
        largest, largest_relative = self._largest[:, row].tolist()
        zero = self._zero[:, row].tolist()
        return PairMoments(
            count=count,
            excluded=excluded,
            reference=_side(xx, zero=zero[0], nonfinite=left),
            candidate=_side(yy, zero=zero[1], nonfinite=right),
            product=xy,
            abs_error=absolute,
            square_error=square,
            max_abs_error=largest,
            relative_count=compared,
            relative_error=relative,
            max_relative_error=largest_relative,
            within_1e3=near,
            within_5e3=fair,
        )


def _side(square: float, *, zero: bool, nonfinite: int) -> SideMoments:
    limit = 0.0 if zero else math.inf
    return SideMoments(square=square, low=limit, high=limit if zero else -math.inf, nonfinite=nonfinite)
