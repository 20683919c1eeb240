"""How the values of tensors and channels are distributed, and what quantizers make of them, as data."""

from dataclasses import dataclass
from typing import Literal

from roundoff.messages.message import Message

InspectedKind = Literal["weight", "bias", "constant", "activation", "node"]
"""weight, bias: a constant with a quantizer; constant: one without; activation: what a quantizer is fed with;
node: what a node computes, or an input of the network, before and after quantization."""


@dataclass(frozen=True, slots=True)
class Bins:
    """A histogram of equal bins.

    Attributes:
        start: Lower border of the first bin.
        width: Of each bin.
        counts: Values in each bin; parts of one where values are known only by wider bins.
    """

    start: float
    width: float
    counts: tuple[float, ...]

    @property
    def edges(self) -> tuple[float, ...]:
        """Borders of the bins, one more than there are bins."""
        return tuple(self.start + index * self.width for index in range(len(self.counts) + 1))


@dataclass(frozen=True, slots=True)
class ValueSummary:
    """One set of values. What is not finite is counted and left out of the rest.

    Attributes:
        count: All values.
        nonfinite: Values that are NaN or infinite.
        zeros: Values that are zero.
        minimum: Smallest finite value; None when there is none, as for all that follows.
        maximum: Largest.
        mean: Mean.
        std: Standard deviation of the population.
        skewness: 0 for what is symmetric, above 0 with a long tail to the right; None for a constant.
        excess_kurtosis: 0 for a normal distribution, above 0 with heavy tails; None for a constant.
        quantiles: Share of the values (``0.01``) to the value they do not exceed.
        edge_share: Share of the values in the outermost hundredth of their range, at both ends together.
        central_range: Share of their range that the middle 99.9 % of the values take.
        bins: Histogram.
    """

    count: int
    nonfinite: int
    zeros: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    std: float | None
    skewness: float | None
    excess_kurtosis: float | None
    quantiles: dict[str, float]
    edge_share: float | None
    central_range: float | None
    bins: Bins | None

    @property
    def largest(self) -> float | None:
        """Largest magnitude."""
        if self.minimum is None or self.maximum is None:
            return None
        return max(abs(self.minimum), abs(self.maximum))


@dataclass(frozen=True, slots=True)
class QuantizerFacts:
    """What a quantizer makes of the values it is fed with.

    Attributes:
        name: Its name.
        dtype: Of its codes: ``u8``, ``s8``, ``s16`` ...
        axis: Along which each slice has a scale of its own; None for one scale.
        scales: Smallest and largest scale.
        scale_ratio: Largest scale over the median one.
        zero_point: Code of zero; None when slices have different ones.
        low: Value of the lowest code; the highest of these where there is one for each slice.
        high: Value of the highest code; the lowest of these where there is one for each slice.
        widest: Value of the lowest and of the highest code of the slice with the widest range.
        clipped_low: Share of the values more than half a step below what can be represented.
        clipped_high: The same above.
        zeroed: Share of the values other than zero that become zero.
        levels_used: Distinct codes that occur.
        levels: Codes there are.
        entropy_bits: Information in a code, of at most as many bits as it has.
        sqnr_db: Energy of the values over energy of what quantization changes; +inf when it changes nothing, None
            when there are no finite values.
    """

    name: str
    dtype: str
    axis: int | None
    scales: tuple[float, float]
    scale_ratio: float
    zero_point: int | None
    low: float
    high: float
    widest: tuple[float, float]
    clipped_low: float
    clipped_high: float
    zeroed: float
    levels_used: int
    levels: int
    entropy_bits: float
    sqnr_db: float | None

    @property
    def clipped(self) -> float:
        """Share of the values that are clipped."""
        return self.clipped_low + self.clipped_high

    @property
    def bits(self) -> int:
        """Width of a code."""
        return int(self.dtype[1:])


@dataclass(frozen=True, slots=True)
class InspectedTensor:
    """One tensor at one place.

    Attributes:
        name: Of the node or the tensor; of the quantizer where a tensor has several.
        kind: What that is.
        tensor: The tensor.
        node: The node that computes it; the first one that reads it where it is a constant; empty for an input.
        op_type: That node's operation.
        shape: Its shape, in the first sample.
    """

    name: str
    kind: InspectedKind
    tensor: str
    node: str
    op_type: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorDistribution(InspectedTensor):
    """The distribution of one tensor at one place.

    Attributes:
        before: Float values: those a quantizer is fed with, or a node of the float network computes.
        after: What quantization makes of them: for a constant its quantized values, for a node what it hands on in
            the quantized network; None for activation quantizers and where nothing is quantized.
        difference: After less before, element by element; None where there is no after.
        quantizer: What its quantizer makes of the values before; None when there is none.
        peaks: Where the peaks of the values before are; see `roundoff.studies.distribution.values`.
        resolution: Width of the bins from which quantiles, peaks and histograms were read, as a share of the
            value; 0 when all values were known.
        suits: Whether nothing stands out that makes quantization hard.
        advice: What to make of it, in one sentence.
    """

    before: ValueSummary
    after: ValueSummary | None
    difference: ValueSummary | None
    quantizer: QuantizerFacts | None
    peaks: tuple[float, ...]
    resolution: float
    suits: bool
    advice: Message

    @property
    def unimodal(self) -> bool:
        """Whether the values before could come from a distribution with a single peak."""
        return len(self.peaks) <= 1


@dataclass(frozen=True, slots=True)
class DistributionReport:
    """Distributions of what was asked for.

    Attributes:
        reference: Where the float network came from.
        samples: Names of the samples that were run; none when only constants were looked at.
        distributions: In execution order.
        notes: What the reader should know.
        preparation: What was noted when the model was prepared and quantized.
    """

    reference: str
    samples: tuple[str, ...]
    distributions: tuple[TensorDistribution, ...]
    notes: tuple[Message, ...] = ()
    preparation: tuple[Message, ...] = ()


LEVEL_BOUNDS = (16, 4, 1)
"""Channels with fewer levels than these are counted."""

Risk = Literal["none", "some", "high", "own scales", "no values"]


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
class ChannelSpread(InspectedTensor):
    """The channels of one tensor at one place.

    Attributes:
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
            them have, or a hundredth fewer than 4); ``own scales`` where that question does not arise,
            ``no values`` where none is finite.
        resolution: Width of the bins from which quantiles were read, as a share of the value; 0 when all values
            were known.
        advice: What to make of it, in one sentence.
    """

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
    advice: Message


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
    notes: tuple[Message, ...] = ()
    preparation: tuple[Message, ...] = ()


OUTLIER_LEVELS = (3, 4, 5, 6)
"""The levels that are counted."""


@dataclass(frozen=True, slots=True)
class OutlierRow:
    """One tensor.

    The level of a channel is the logarithm of the tensor's largest magnitude over that of the channel.

    Attributes:
        order: Position in execution order.
        tensor: The tensor.
        node: The node that computes it; empty for an input.
        op_type: That node's operation.
        shape: Its shape, in the first sample.
        axis: The axis along which channels are told apart.
        quantized: Type of its codes; ``float`` when it is not quantized, ``fused`` when it never leaves its unit.
        channels: Number of channels.
        largest: Largest magnitude of the tensor.
        largest_channel: The channel that has it.
        median: Largest magnitude of the median channel.
        sparse: Channels that are zero throughout; they have no level.
        at_least: Channels of at least each of `OUTLIER_LEVELS`, by level.
        nonfinite: Values that are NaN or infinite, and were left out.
    """

    order: int
    tensor: str
    node: str
    op_type: str
    shape: tuple[int, ...]
    axis: int
    quantized: str
    channels: int
    largest: float
    largest_channel: int
    median: float
    sparse: int
    at_least: dict[str, int]
    nonfinite: int = 0

    @property
    def sparse_share(self) -> float:
        """Share of the channels that are zero throughout."""
        return self.sparse / self.channels if self.channels else 0.0

    def share(self, level: int) -> float:
        """Share of the channels that are of at least this level."""
        return self.at_least[str(level)] / self.channels if self.channels else 0.0


@dataclass(frozen=True, slots=True)
class OutlierReport:
    """The outlier table.

    Attributes:
        reference: Where the network came from.
        samples: Names of the samples.
        log_base: Base of the logarithm.
        rows: In execution order.
        skipped: Tensors without a row, with the reason.
        notes: What the reader should know.
        preparation: What was noted when the model was prepared and quantized.
    """

    reference: str
    samples: tuple[str, ...]
    log_base: float
    rows: tuple[OutlierRow, ...]
    skipped: dict[str, Message]
    notes: tuple[Message, ...] = ()
    preparation: tuple[Message, ...] = ()
