"""Where two networks differ most: a tensor, or one slice of it, that one of them has clearly better."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["BEST_DB", "Gap", "Spot", "largest_gap", "sqnr_at"]

BEST_DB = 60.0
"""Better than this is as good as exact."""

_SHARE_OF_WHOLE = 0.5
# A slice of fewer values is judged by chance, ...
_FEWEST_VALUES = 16
# ... one of more slices is no axis of channels, ...
_MOST_SLICES = 2048
# ... and one whose energy is less than this part of what others have on average holds nothing.
_SMALLEST_SHARE = 1e-9

Arrays = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Spot:
    """A tensor, or a slice of it.

    Attributes:
        tensor: The tensor.
        axis: Axis of the slice; None for all of it.
        index: Which slice.
    """

    tensor: str
    axis: int | None = None
    index: int = 0

    @property
    def text(self) -> str:
        """In words."""
        return repr(self.tensor) + ("" if self.axis is None else f", slice {self.index} of axis {self.axis}")

    def of(self, array: Array) -> Array:
        """Its elements."""
        return array if self.axis is None else array.take(self.index, axis=self.axis)


@dataclass(frozen=True, slots=True)
class Gap:
    """How much worse one network is at a spot than another.

    Attributes:
        spot: Where.
        faulty_db: Signal to noise of the worse one; at most `BEST_DB`.
        mended_db: Of the better one.
    """

    spot: Spot
    faulty_db: float
    mended_db: float

    @property
    def db(self) -> float:
        """The difference."""
        return self.mended_db - self.faulty_db


def largest_gap(exact: Sequence[Arrays], faulty: Sequence[Arrays], mended: Sequence[Arrays]) -> Gap | None:
    """The spot where faulty values are worse than mended ones.

    A whole tensor is told where it has at least half of the decibels that its worst slice has.

    Args:
        exact: What the values should be, by sample.
        faulty: What they are.
        mended: What they are without the fault.

    Returns:
        None where nothing can be compared.
    """
    whole: list[Gap] = []
    sliced: list[Gap] = []
    for tensor in exact[0] if exact else ():
        arrays = [[each[tensor] for each in side] for side in (exact, faulty, mended)]
        shapes = {array.shape for side in arrays for array in side}
        if any(array.dtype.kind not in "fiu" for side in arrays for array in side):
            continue
        whole.append(
            Gap(Spot(tensor), _db(*_energies(arrays[0], arrays[1])), _db(*_energies(arrays[0], arrays[2])))
        )
        if len(shapes) == 1:
            sliced += _slices(tensor, *(np.stack(side).astype(np.float64) for side in arrays))
    best, worst_slice = (max(gaps, key=lambda gap: gap.db, default=None) for gaps in (whole, sliced))
    if best is None or worst_slice is None:
        return best
    return best if best.db >= _SHARE_OF_WHOLE * worst_slice.db else worst_slice


def sqnr_at(spot: Spot, exact: Sequence[Arrays], other: Sequence[Arrays]) -> float:
    """Signal to noise at a spot, at most `BEST_DB`."""
    pairs = [[spot.of(each[spot.tensor]) for each in side] for side in (exact, other)]
    return _db(*_energies(pairs[0], pairs[1]))


def _energies(exact: Sequence[Array], other: Sequence[Array]) -> tuple[float, float]:
    signal = noise = 0.0
    for left, right in zip(exact, other, strict=True):
        if left.shape != right.shape:
            return 0.0, math.inf
        a, b = left.astype(np.float64), right.astype(np.float64)
        finite = np.isfinite(a)
        with np.errstate(over="ignore", invalid="ignore"):
            signal += float(np.square(a[finite]).sum())
            noise += float(np.nan_to_num(np.square(a[finite] - b[finite]), nan=math.inf).sum())
    return signal, noise


def _db(signal: float, noise: float) -> float:
    if noise == 0:
        return BEST_DB
    if signal == 0 or not math.isfinite(noise):
        return -BEST_DB
    return max(-BEST_DB, min(BEST_DB, 10 * math.log10(signal / noise)))


def _slices(tensor: str, exact: Array, faulty: Array, mended: Array) -> Iterator[Gap]:
    """Every slice along every axis but that of samples; arrays have the samples as their first axis."""
    if not all(np.isfinite(each).all() for each in (exact, faulty, mended)):
        return
    power, faults, rest = np.square(exact), np.square(exact - faulty), np.square(exact - mended)
    for axis in range(1, exact.ndim - 1):
        count = exact.shape[axis + 1]
        if not 1 < count <= _MOST_SLICES or exact.size // count < _FEWEST_VALUES:
            continue
        others = tuple(at for at in range(exact.ndim) if at != axis + 1)
        signal, noise, left = (each.sum(axis=others) for each in (power, faults, rest))
        enough = signal > _SMALLEST_SHARE * signal.mean()
        for index in np.flatnonzero(enough):
            one = Spot(tensor, axis, int(index))
            yield Gap(
                one, _db(float(signal[index]), float(noise[index])), _db(float(signal[index]), float(left[index]))
            )
