"""The same values with fewer digits: float16, bfloat16, or rounded to equal steps."""

from collections.abc import Callable, Sequence

import numpy as np

from roundoff.analysis.io_check.streaming import apart, blocks, paired_blocks
from roundoff.core.io_check import Correction, InputChange
from roundoff.core.tensors import Array

__all__ = ["precision_change"]

_MOST_STEPS = 1 << 16
_HALF = 0.5001
_FEWEST_STEPS = 8


def precision_change(training: Sequence[Array], deployed: Sequence[Array]) -> InputChange | None:
    """What made training's values the deployed side's by rounding alone; None when nothing did."""
    if any(one.shape != other.shape for one, other in zip(training, deployed, strict=True)):
        return None
    pairs = list(zip(training, deployed, strict=True))
    if _all_equal(pairs, lambda array: array.astype(np.float16)):
        return _rounded("float16")
    if _all_equal(pairs, _as_bfloat16):
        return _rounded("bfloat16")
    return _stepped(pairs)


def _all_equal(pairs: Sequence[tuple[Array, Array]], rounded: Callable[[Array], Array]) -> bool:
    return all(
        np.array_equal(rounded(one).astype(np.float64), other, equal_nan=True)
        for pair in pairs
        for one, other in paired_blocks(*pair)
    )


def _as_bfloat16(array: Array) -> Array:
    import ml_dtypes

    # Twice rounded values would differ: the first rounding must be that of the stored type.
    return array.astype(np.float32).astype(ml_dtypes.bfloat16)


def _rounded(name: str) -> InputChange:
    return InputChange(
        "element-type",
        f"the deployed side has training's values rounded to {name}",
        Correction("element type", "float32", (("element type", "float32"),)),
    )


def _levels(arrays: Sequence[Array]) -> Array | None:
    """All different values, in order; None when there are too many for codes."""
    levels: Array = np.zeros(0)
    for array in arrays:
        for part in blocks(array):
            levels = np.union1d(levels, part)
            if len(levels) > _MOST_STEPS:
                return None
    return levels


def _stepped(pairs: Sequence[tuple[Array, Array]]) -> InputChange | None:
    levels = _levels([other for _, other in pairs])
    if levels is None or not _FEWEST_STEPS <= len(levels) <= _MOST_STEPS or not np.isfinite(levels).all():
        return None
    gaps = np.diff(levels)
    step = float(gaps.min())
    multiples = gaps / step
    if step <= 0 or np.abs(multiples - np.rint(multiples)).max() > 1e-3 * multiples.max():
        return None
    worst = max(apart(one, other).worst for one, other in pairs)
    if not 0.1 * step < worst <= _HALF * step:
        return None
    return InputChange(
        "codes",
        f"the deployed side has training's values rounded to steps of {step:.6g}, as by a quantizer",
        Correction("quantization of the input", "more bits, or none, where that matters"),
    )
