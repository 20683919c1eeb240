"""From what was summed up of a tensor to its row."""

import math
from collections.abc import Collection

import numpy as np

from roundoff.analysis.layers.copies import Variant
from roundoff.analysis.layers.tally import Tally, VariantTally
from roundoff.analysis.layers.tensors import LayerTensor
from roundoff.core.layer_scores import LayerRow, LayerScore
from roundoff.core.sample_scores import keep_samples
from roundoff.metrics.error import mse, ratio_db, sqnr_db
from roundoff.metrics.scoring import status_of
from roundoff.metrics.shape import worst_channel, worst_channel_sqnr_db
from roundoff.metrics.similarity import cosine

__all__ = ["layer_row", "layer_score"]


def layer_row(order: int, tensor: LayerTensor, tally: Tally | None, variants: Collection[Variant]) -> LayerRow:
    """The row of a tensor.

    Args:
        order: Its position in execution order.
        tensor: The tensor.
        tally: What was measured of it; None when it cannot be read.
        variants: Which of the local and the accumulated error were to be measured.
    """
    value = tensor.value
    if tally is None:
        scores = {variant: LayerScore("unreadable", value.obstacle()) for variant in variants}
    else:
        scores = {variant: layer_score(tally, variant) for variant in variants}
    return LayerRow(
        order=order,
        node=value.node,
        op_type=value.op_type,
        unit=tensor.unit,
        tensor=value.name,
        shape=value.shape or () if tally is None or tally.shape is None else tally.shape,
        dtype=value.element.dtype if value.element else "",
        quantized=tensor.quantized,
        output=tensor.output,
        samples=0 if tally is None else tally.samples,
        levels=tensor.levels,
        clipped=None if tally is None or tensor.quantizer is None else _share(tally.clipped, tally.count),
        local=scores.get("local"),
        accumulated=scores.get("accumulated"),
        differing_codes=None if tally is None else _share(tally.codes_differing, tally.codes_compared),
        distant_codes=None if tally is None else _share(tally.codes_distant, tally.codes_compared),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def layer_score(tally: Tally, variant: Variant) -> LayerScore:
    """The scores of one variant of a tensor."""
    part = tally.variants[variant]
    if part.failure is not None:
        return LayerScore(*part.failure)
    moments = part.totals.moments()
    status, detail = status_of(moments)
    if moments.count == 0:
        return LayerScore(status, detail)
    channel = int(worst_channel(moments))
    rms_steps, max_steps = _steps(tally, part)
    return LayerScore(
        status=status,
        detail=detail,
        cosine=cosine(moments),
        mse=mse(moments),
        sqnr_db=sqnr_db(moments),
        rms_steps=rms_steps,
        max_steps=max_steps,
        used_levels=None if part.levels is None else part.levels.used,
        worst_channel=channel if channel >= 0 else None,
        worst_channel_sqnr_db=worst_channel_sqnr_db(moments) if channel >= 0 else None,
        worst_sample=part.worst_sample,
        worst_sample_sqnr_db=-ratio_db(part.worst_ratio, 1.0) if part.worst_sample else None,
        sample_sqnr_db=keep_samples(-ratio_db(ratio, 1.0) for ratio in part.sample_ratios),
    )


def _steps(tally: Tally, part: VariantTally) -> tuple[float | None, float | None]:
    """Root mean square and maximum of the error in steps of the tensor's quantizer."""
    quantizer, sums = tally.tensor.quantizer, part.totals
    if quantizer is None:
        return None, None
    scale = quantizer.params.scale.astype(np.float64)
    if scale.size == 1:
        step = float(scale.reshape(()))
        return math.sqrt(sums.error / sums.count) / step, sums.max_error / step
    channels = sums.channels
    if channels is None:
        return None, None
    energy = float((channels.error / scale**2).sum())
    return math.sqrt(energy / sums.count), sums.max_steps
