"""Everything the metrics need to know of a pair of tensors, as float64 sums gathered in one pass.

`roundoff.core.measure.measure_pair` gathers them block by block; `PairMoments.merge` joins what was measured
apart (other samples, other parts), so that nothing ever needs all values at once.
"""

import math
from dataclasses import dataclass

from roundoff.core.histogram import EMPTY_HISTOGRAM, Histogram
from roundoff.core.tensors import Array

__all__ = ["NOTHING", "ChannelEnergies", "PairMoments", "SideMoments"]


@dataclass(frozen=True, slots=True)
class SideMoments:
    """One side of a pair. Elements that are not finite on either side are left out of all but `nonfinite`.

    Attributes:
        total: Sum of the values.
        square: Sum of their squares.
        low: Smallest value; +inf when there is none.
        high: Largest value; -inf when there is none.
        at_low: How many elements sit exactly at `low`.
        at_high: How many elements sit exactly at `high`.
        zeros: How many elements are zero.
        nonfinite: How many elements of this side are NaN or infinite.
        histogram: Distribution, estimated from evenly spaced elements of large tensors.
    """

    total: float = 0.0
    square: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    at_low: int = 0
    at_high: int = 0
    zeros: int = 0
    nonfinite: int = 0
    histogram: Histogram = EMPTY_HISTOGRAM

    @property
    def is_zero(self) -> bool:
        """Whether every value is zero."""
        return self.low == self.high == 0

    def merge(self, other: "SideMoments") -> "SideMoments":
        """This side of both pairs together."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        sides = (self, other)
        return SideMoments(
            total=self.total + other.total,
            square=self.square + other.square,
            low=low,
            high=high,
            at_low=sum(side.at_low for side in sides if side.low == low),
            at_high=sum(side.at_high for side in sides if side.high == high),
            zeros=self.zeros + other.zeros,
            nonfinite=self.nonfinite + other.nonfinite,
            histogram=self.histogram.merge(other.histogram),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ChannelEnergies:
    """Sums of squares per channel.

    Attributes:
        reference: Of the reference, shape (channels,).
        error: Of the difference, shape (channels,).
    """

    reference: Array
    error: Array

    def merge(self, other: "ChannelEnergies | None") -> "ChannelEnergies | None":
        """Both together; None when the channels are not the same ones."""
        if other is None or other.reference.shape != self.reference.shape:
            return None
        return ChannelEnergies(self.reference + other.reference, self.error + other.error)


@dataclass(frozen=True, slots=True)
class PairMoments:
    """Sums over a reference and a candidate of equal shape; "error" is reference minus candidate.

    Attributes:
        count: Elements compared: finite on both sides.
        excluded: Elements left out because one side or both are not finite.
        reference: The reference's own sums.
        candidate: The candidate's own sums.
        product: Sum of reference times candidate.
        abs_error: Sum of absolute errors.
        square_error: Sum of squared errors.
        max_abs_error: Largest absolute error.
        relative_count: Elements whose reference is not zero; only these have a relative error.
        relative_error: Sum of their relative errors.
        max_relative_error: The largest of them.
        within_1e3: Elements whose relative error is below 1e-3 (zero against zero counts).
        within_5e3: The same for 5e-3.
        channels: Energies per channel; None when there are no channels, or they differ between parts.
    """

    count: int = 0
    excluded: int = 0
    reference: SideMoments = SideMoments()
    candidate: SideMoments = SideMoments()
    product: float = 0.0
    abs_error: float = 0.0
    square_error: float = 0.0
    max_abs_error: float = 0.0
    relative_count: int = 0
    relative_error: float = 0.0
    max_relative_error: float = 0.0
    within_1e3: int = 0
    within_5e3: int = 0
    channels: ChannelEnergies | None = None

    def merge(self, other: "PairMoments") -> "PairMoments":
        """The moments of both sets of elements together."""
        return PairMoments(
            count=self.count + other.count,
            excluded=self.excluded + other.excluded,
            reference=self.reference.merge(other.reference),
            candidate=self.candidate.merge(other.candidate),
            product=self.product + other.product,
            abs_error=self.abs_error + other.abs_error,
            square_error=self.square_error + other.square_error,
            max_abs_error=max(self.max_abs_error, other.max_abs_error),
            relative_count=self.relative_count + other.relative_count,
            relative_error=self.relative_error + other.relative_error,
            max_relative_error=max(self.max_relative_error, other.max_relative_error),
            within_1e3=self.within_1e3 + other.within_1e3,
            within_5e3=self.within_5e3 + other.within_5e3,
            channels=None if self.channels is None else self.channels.merge(other.channels),
        )


# The moments of no elements at all.
NOTHING = PairMoments()
