"""What the samples say of the channels of tensors."""

from collections.abc import Mapping

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.quantize.calibration import calibrate
from roundoff.quantize.work_context import WorkContext

__all__ = ["ChannelRange", "channel_ranges"]

ChannelRange = tuple[Array, Array]
"""Smallest and largest value of each channel, float64 [C]; zero where none is finite."""


def channel_ranges(model: Model, context: WorkContext, tensors: Mapping[str, int]) -> dict[str, ChannelRange]:
    """Observe channels on all samples, in one pass.

    Args:
        model: The model.
        context: Where the samples are.
        tensors: Tensors, each with the axis of its channels.

    Raises:
        BadInput: A tensor's number of channels changes from sample to sample, or samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    seen = calibrate(
        model,
        context.samples,
        dict(tensors),
        detail="range",
        threads=context.threads,
        max_memory=context.max_memory,
        progress=context.progress,
    )
    return {
        name: (np.where(np.isfinite(each.low), each.low, 0.0), np.where(np.isfinite(each.high), each.high, 0.0))
        for name, each in seen.observations.items()
    }
