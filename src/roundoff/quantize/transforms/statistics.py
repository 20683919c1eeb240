"""What the samples say of the channels of tensors."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.quantize.steps import StepContext
from roundoff.run.capture import LiveSource

__all__ = ["ChannelStatistics", "channel_statistics"]


@dataclass(frozen=True, slots=True, eq=False)
class ChannelStatistics:
    """Of each channel of a tensor, elements that are not finite left out; float64 [C].

    Attributes:
        low: Smallest value; 0 where there is none.
        high: Largest value.
        energy: Mean of the squares.
        moving: Share of the values that are neither zero nor the largest: of a Relu6, those it hands on.
    """

    low: Array
    high: Array
    energy: Array
    moving: Array

    @property
    def peak(self) -> Array:
        """Largest magnitude."""
        return np.maximum(-self.low, self.high)


def channel_statistics(
    model: Model, context: StepContext, tensors: Mapping[str, int], *, title: str
) -> dict[str, ChannelStatistics]:
    """Observe channels on all samples, in one pass.

    Args:
        model: The model.
        context: Where the samples are.
        tensors: Tensors, each with the axis of its channels.
        title: What progress says.

    Raises:
        BadInput: A tensor's number of channels changes from sample to sample, or samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    tallies = {name: _Tally() for name in tensors}
    if not tensors:
        return {}
    source = LiveSource(
        model, context.samples, tensors=list(tensors), max_memory=context.max_memory, threads=context.threads
    )
    names = [info.name for info in source.tensors]
    context.progress.start(title, len(source.samples))
    try:
        for sample in source.samples:
            for name in names:
                if not tallies[name].add(np.moveaxis(source.read(name, sample), tensors[name], 0)):
                    what = f"The number of channels of {name!r} differs from sample to sample ({sample!r})."
                    raise BadInput(what, fix="give samples of one shape")
            context.progress.advance()
    finally:
        context.progress.finish()
        source.close()
    return {name: tallies[name].result() for name in names}


class _Tally:
    """What was seen of one tensor."""

    def __init__(self) -> None:
        self._low, self._high, self._squares, self._count = (np.zeros(0) for _ in range(4))
        self._still, self._at_high = np.zeros(0), np.zeros(0)

    def add(self, values: Array) -> bool:
        """Take in the values of one sample, channels first; False when these are not as many as before."""
        rows = values.reshape(values.shape[0], -1)
        fine = np.isfinite(rows)
        if not fine.all():
            rows = np.where(fine, rows, 0)
        if not self._count.size:
            self._low, self._high = np.full(len(rows), np.inf), np.full(len(rows), -np.inf)
            self._squares, self._count, self._still, self._at_high = (np.zeros(len(rows)) for _ in range(4))
        if len(rows) != self._count.size:
            return False
        self._low = np.minimum(self._low, rows.min(axis=1, initial=np.inf, where=fine))
        high = np.maximum(self._high, rows.max(axis=1, initial=-np.inf, where=fine))
        self._at_high = np.where(high > self._high, 0, self._at_high) + (rows == high[:, None]).sum(axis=1)
        self._high = high
        self._still += ((rows == 0) & fine).sum(axis=1)
        self._squares += np.einsum("cn,cn->c", rows, rows, dtype=np.float64)
        self._count += fine.sum(axis=1)
        return True

    def result(self) -> ChannelStatistics:
        seen = self._count > 0
        still = self._still + np.where(self._high == 0, 0, self._at_high)
        return ChannelStatistics(
            np.where(seen, self._low, 0.0),
            np.where(seen, self._high, 0.0),
            self._squares / np.maximum(self._count, 1),
            1 - np.minimum(still / np.maximum(self._count, 1), 1),
        )
