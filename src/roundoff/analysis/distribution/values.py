"""Recording one set of values, and summing it up."""

import numpy as np

from roundoff.analysis.distribution.layout import Layout, counted_in
from roundoff.analysis.spread import Spread, resolution, spreads
from roundoff.core.central_moments import CentralMoments
from roundoff.core.distributions import ValueSummary
from roundoff.core.peaks import certain_peaks
from roundoff.core.statistics import TensorStats
from roundoff.core.tensors import Array
from roundoff.quantize.calibration.observer import Observer

__all__ = ["QUANTILES", "ValueRecord"]

QUANTILES = (0.001, 0.01, 0.25, 0.5, 0.75, 0.99, 0.999)
# The middle of the values, for how much of the range they take.
_MIDDLE = (0.0005, 0.9995)
# Of the range, at each end.
_EDGE = 0.01
# Peaks are looked for between these quantiles; what is beyond is far less than a peak.
_BULK, _BULK_BINS = (0.005, 0.995), 254
# So few distinct values are taken one by one.
_FEW_VALUES = 256


class ValueRecord:
    """All that is remembered of values seen so far; its size does not depend on how many there were."""

    def __init__(self) -> None:
        self._observer = Observer()
        self._stats = TensorStats()
        self._moments = CentralMoments()
        self._spread: Spread | None = None

    def add(self, values: Array) -> None:
        """See values of any real type."""
        self._spread = None
        self._observer.add(values)
        self._stats = self._stats.merge(TensorStats.of(values))
        self._moments = self._moments.merge(CentralMoments.of(values))

    @property
    def spread(self) -> Spread:
        """How they are spread."""
        if self._spread is None:
            self._spread = next(iter(spreads(self._observer.observation())))
        return self._spread

    @property
    def resolution(self) -> float:
        """Width of the bins they are known by, as a share of the value; 0 when each is known."""
        return resolution(self._observer.observation())

    def summary(self, layout: Layout | None) -> ValueSummary:
        """Sum them up.

        Args:
            layout: Where the bins of the histogram are; None for no histogram.
        """
        stats, spread = self._stats, self.spread
        known = stats.finite > 0
        span = stats.maximum - stats.minimum if known else 0.0
        edge_share = central_range = None
        if span > 0:
            borders = np.array([stats.minimum + _EDGE * span, stats.maximum - _EDGE * span])
            below = spread.below(np.array([np.nextafter(borders[0], np.inf), borders[1]])) / spread.count
            edge_share = float(below[0] + 1 - below[1])
            first, last = spread.quantiles(np.array(_MIDDLE))
            central_range = float((last - first) / span)
        return ValueSummary(
            count=stats.count,
            nonfinite=stats.nans + stats.infs,
            zeros=stats.zeros,
            minimum=stats.minimum if known else None,
            maximum=stats.maximum if known else None,
            mean=stats.mean if known else None,
            std=stats.std if known else None,
            skewness=self._moments.skewness,
            excess_kurtosis=self._moments.excess_kurtosis,
            quantiles=self._quantiles() if known else {},
            edge_share=edge_share,
            central_range=central_range,
            bins=None if layout is None or not known else counted_in(spread, layout),
        )

    def _quantiles(self) -> dict[str, float]:
        found = self.spread.quantiles(np.array(QUANTILES))
        return {f"{share:g}": float(value) for share, value in zip(QUANTILES, found, strict=True)}

    def peaks(self) -> tuple[float, ...]:
        """Where the peaks are that are there for certain."""
        spread = self.spread
        if not spread.count:
            return ()
        if spread.low == spread.high:
            return (spread.low,)
        few = spread.distinct(_FEW_VALUES)
        if few is not None:
            values, counts = few
            return certain_peaks(_between(values).tolist(), counts.tolist())
        first, last = spread.quantiles(np.array(_BULK))
        edges = np.unique(np.concatenate([[spread.low], np.linspace(first, last, _BULK_BINS), [spread.high]]))
        below = spread.below(edges)
        below[0], below[-1] = 0, spread.count
        return certain_peaks(edges.tolist(), np.diff(below).tolist())


def _between(values: Array) -> Array:
    """Borders half-way between values; the gaps between the values of an image are no valleys."""
    middles = values[:-1] / 2 + values[1:] / 2
    return np.concatenate([[2 * values[0] - middles[0]], middles, [2 * values[-1] - middles[-1]]])
