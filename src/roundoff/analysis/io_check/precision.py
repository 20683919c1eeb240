"""The same values with fewer digits: float16, bfloat16, or rounded to equal steps."""

from collections.abc import Sequence

import numpy as np

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
    if all(_equal(one.astype(np.float16), other) for one, other in pairs):
        return _rounded("float16")
    if all(_equal(_as_bfloat16(one), other) for one, other in pairs):
        return _rounded("bfloat16")
    return _stepped(pairs)


def _equal(rounded: Array, deployed: Array) -> bool:
    return bool(np.array_equal(rounded.astype(np.float64), deployed.astype(np.float64), equal_nan=True))


def _as_bfloat16(array: Array) -> Array:
    import ml_dtypes

    return array.astype(ml_dtypes.bfloat16)


def _rounded(name: str) -> InputChange:
    return InputChange(
        "element-type",
        f"the deployed side has training's values rounded to {name}",
        Correction("element type", "float32", "src_dtype: FP32"),
    )


def _stepped(pairs: Sequence[tuple[Array, Array]]) -> InputChange | None:
    levels = np.unique(np.concatenate([np.unique(other.astype(np.float64)) for _, other in pairs]))
    if not _FEWEST_STEPS <= len(levels) <= _MOST_STEPS or not np.isfinite(levels).all():
        return None
    gaps = np.diff(levels)
    step = float(gaps.min())
    multiples = gaps / step
    if step <= 0 or np.abs(multiples - np.rint(multiples)).max() > 1e-3 * multiples.max():
        return None
    worst = max(float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max()) for one, other in pairs)
    if not 0.1 * step < worst <= _HALF * step:
        return None
    return InputChange(
        "codes",
        f"the deployed side has training's values rounded to steps of {step:.6g}, as by a quantizer",
        Correction("quantization of the input", "more bits, or none, where that matters"),
    )
