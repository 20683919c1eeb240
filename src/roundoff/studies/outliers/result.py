"""How many channels of each tensor are small against its largest value, as data."""

from dataclasses import dataclass

from roundoff.messages.message import Remark

__all__ = ["OUTLIER_LEVELS", "OutlierReport", "OutlierRow"]

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
    skipped: dict[str, Remark]
    notes: tuple[Remark, ...] = ()
    preparation: tuple[Remark, ...] = ()
