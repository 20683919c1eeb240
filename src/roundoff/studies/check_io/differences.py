"""Two arrays of one shape, walked together in blocks: nothing of their size is ever made."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.measure.statistics import release_pages, split_blocks
from roundoff.messages.message import message, verbatim
from roundoff.studies.check_io.result import Correction, IoChange

# Values of a block: as float64 with what is computed of them a few MiB.
_BLOCK = 1 << 18
# Mapped pages are given back each time so many blocks have been read.
_RELEASED = 16


def blocks(array: Array) -> Iterator[Array]:
    """An array in parts, as float64."""
    for number, part in enumerate(split_blocks(array.shape, _BLOCK), 1):
        yield _exact(array[part.index])
        if number % _RELEASED == 0:
            release_pages(array)
    release_pages(array)


def paired_blocks(one: Array, other: Array) -> Iterator[tuple[Array, Array]]:
    """Two arrays of one shape in parts, as float64."""
    for number, part in enumerate(split_blocks(one.shape, _BLOCK), 1):
        yield _exact(one[part.index]), _exact(other[part.index])
        if number % _RELEASED == 0:
            release_pages(one)
            release_pages(other)
    release_pages(one)
    release_pages(other)


def _exact(part: Array) -> Array:
    # Bytes that are no numbers may be signalling ones.
    with np.errstate(invalid="ignore", over="ignore"):
        return part.astype(np.float64)


@dataclass(frozen=True, slots=True)
class ArrayDistance:
    """How far two arrays are apart.

    Attributes:
        worst: Largest absolute difference; infinite where one side alone is not finite.
        square: Sum of the squares of finite differences.
        finite: How many of these there are.
        total: Sum of absolute differences; not finite where values are not.
        count: How many values there are.
    """

    worst: float = 0.0
    square: float = 0.0
    finite: int = 0
    total: float = 0.0
    count: int = 0

    def merge(self, other: "ArrayDistance") -> "ArrayDistance":
        """Both together."""
        return ArrayDistance(
            max(self.worst, other.worst),
            self.square + other.square,
            self.finite + other.finite,
            self.total + other.total,
            self.count + other.count,
        )


def array_distance(one: Array, other: Array) -> ArrayDistance:
    """Measure two arrays of one shape; values that are not finite are equal when both sides have the same."""
    found = ArrayDistance()
    for wanted, had in paired_blocks(one, other):
        with np.errstate(invalid="ignore", over="ignore"):
            plain = np.abs(wanted - had)
            same = (wanted == had) | (np.isnan(wanted) & np.isnan(had))
            error = np.where(same, 0.0, np.where(np.isnan(plain), np.inf, plain))
            known = error[np.isfinite(error)]
            part = ArrayDistance(
                float(error.max(initial=0)),
                float(np.square(known).sum()),
                known.size,
                float(plain.sum()),
                plain.size,
            )
        found = found.merge(part)
    return found


def all_finite(array: Array) -> bool:
    """Whether every value is a finite number."""
    if array.dtype.kind in "iub":
        return True
    return all(bool(np.isfinite(part).all()) for part in blocks(array))


def differences(training: Sequence[Array], deployed: Sequence[Array]) -> tuple[float, float | None]:
    """Largest absolute difference and root mean square over all samples; infinite and None where shapes differ.

    Values that are not finite are equal when both sides have the same.
    """
    found = ArrayDistance()
    for one, other in zip(training, deployed, strict=True):
        if one.shape != other.shape:
            return np.inf, None
        found = found.merge(array_distance(one, other))
    return found.worst, float(np.sqrt(found.square / max(found.finite, 1)))


# The same values with fewer digits: float16, bfloat16, or rounded to equal steps.

_MOST_STEPS = 1 << 16
_HALF, _NO_STEP = 0.5001, 1e-3
_FEWEST_STEPS = 8


def precision_change(training: Sequence[Array], deployed: Sequence[Array]) -> IoChange | None:
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


def _rounded(name: str) -> IoChange:
    return IoChange(
        "element-type",
        message("check_io.rounded_to", dtype=name),
        Correction(message("check_io.set_type"), verbatim("float32"), (("element type", "float32"),)),
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


def _stepped(pairs: Sequence[tuple[Array, Array]]) -> IoChange | None:
    levels = _levels([other for _, other in pairs])
    if levels is None or not _FEWEST_STEPS <= len(levels) <= _MOST_STEPS or not np.isfinite(levels).all():
        return None
    gaps = np.diff(levels)
    step = float(gaps.min())
    multiples = gaps / step
    if step <= 0 or np.abs(multiples - np.rint(multiples)).max() > 1e-3 * multiples.max():
        return None
    signed = (wanted - had for pair in pairs for wanted, had in paired_blocks(*pair))
    lows, highs = zip(*((float(each.min()), float(each.max())) for each in signed), strict=True)
    low, high = min(lows), max(highs)
    nearest = 0.1 * step < max(-low, high) <= _HALF * step
    if not nearest and not (low > -_NO_STEP * step and _HALF * step < high < (1 + _NO_STEP) * step):
        return None
    return IoChange(
        "codes",
        message("check_io.rounded_to_steps" if nearest else "check_io.cut_to_steps", step=f"{step:.6g}"),
        Correction(message("check_io.set_quantization"), message("check_io.set_more_bits")),
    )
