"""How the channels of a tensor differ, and what that means for one scale for all of them, as data."""

from dataclasses import dataclass
from typing import Literal

from roundoff.messages.message import Remark
from roundoff.studies.distribution.result import InspectedKind

__all__ = ["LEVEL_BOUNDS", "ChannelBox", "ChannelReport", "ChannelSpread", "Risk"]

LEVEL_BOUNDS = (16, 4, 1)
"""Channels with fewer levels than these are counted."""

Risk = Literal["none", "some", "high", "own scales"]


@dataclass(frozen=True, slots=True)
class ChannelBox:
    """The values of one channel; what is not finite is left out.

    Attributes:
        channel: Its index.
        low: Smallest value; 0 when there is none, as for all others.
        p01: One per cent of its values do not exceed this.
        p25: Lower quartile.
        median: Median.
        p75: Upper quartile.
        p99: One per cent of its values exceed this.
        high: Largest value.
        mean: Mean.
        levels: Steps of one scale for the whole tensor that its range, zero included, spans; those that are
            clipped do not count.
        own_levels: The same with the scale that it has, or could have, of its own.
    """

    channel: int
    low: float
    p01: float
    p25: float
    median: float
    p75: float
    p99: float
    high: float
    mean: float
    levels: float
    own_levels: float

    @property
    def reach(self) -> float:
        """Its range, zero included."""
        return max(self.high, 0.0) - min(self.low, 0.0)


@dataclass(frozen=True, slots=True)
class ChannelSpread:
    """The channels of one tensor at one place.

    Attributes:
        name: Of the node or the tensor; of the quantizer where a tensor has several.
        kind: What that is.
        tensor: The tensor.
        node: The node that computes it; the first that reads it where it is a constant; empty for an input.
        op_type: That node's operation.
        shape: Its shape, in the first sample.
        axis: The axis along which channels are told apart.
        dtype: Of its codes.
        assumed: Whether that is only assumed, because the tensor is not quantized.
        own_scales: Whether each channel has a scale of its own.
        step: Step of the one scale, or of the one it would have with a single one.
        boxes: All channels in order.
        live: Channels that are not zero throughout.
        range_ratio: Largest range of a channel over that of the median one of those that are not zero; None when
            all are.
        below: How many of these have fewer levels than each of `LEVEL_BOUNDS`.
        gain_db: By how much rounding noise is less with a scale for each channel than with one for all.
        risk: Of one scale for all: ``none``, ``some`` (a channel has fewer than 16 levels), ``high`` (a tenth of
            them have, or a hundredth fewer than 4); ``own scales`` where that question does not arise.
        resolution: Width of the bins from which quantiles were read, as a share of the value; 0 when all values
            were known.
        advice: What to make of it, in one sentence.
    """

    name: str
    kind: InspectedKind
    tensor: str
    node: str
    op_type: str
    shape: tuple[int, ...]
    axis: int
    dtype: str
    assumed: bool
    own_scales: bool
    step: float
    boxes: tuple[ChannelBox, ...]
    live: int
    range_ratio: float | None
    below: dict[str, int]
    gain_db: float
    risk: Risk
    resolution: float
    advice: Remark


@dataclass(frozen=True, slots=True)
class ChannelReport:
    """Channels of what was asked for.

    Attributes:
        reference: Where the float network came from.
        samples: Names of the samples that were run; none when only constants were looked at.
        spreads: In execution order.
        notes: What the reader should know.
        preparation: What was noted when the model was prepared and quantized.
    """

    reference: str
    samples: tuple[str, ...]
    spreads: tuple[ChannelSpread, ...]
    notes: tuple[Remark, ...] = ()
    preparation: tuple[Remark, ...] = ()
