"""Finding the change of layout between two arrays by looking at their values."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from roundoff.align.axes import Shape
from roundoff.align.pairing import Layout
from roundoff.align.shapes import layouts_between, layouts_within
from roundoff.core.tensors import Array
from roundoff.measure.blocks import release_pages

__all__ = [
    "Floats",
    "Positions",
    "correlation",
    "find_layout",
    "is_real",
    "only_padding",
    "positions",
    "seen_through",
    "take",
]


# Looking at a few elements of a tensor, in any layout, without copying the tensor.

Floats = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

_SEED = 20_011

_LARGE_BYTES = 16 * 2**20
_AT_A_TIME = 32
"""Touching an element of a mapped file makes its neighbours resident; large tensors give them back so often."""


@lru_cache(maxsize=512)
def positions(size: int, count: int) -> Positions:
    """Flat positions of at most `count` elements of a tensor of `size`, ascending, the same at each call.

    One from each of `count` equal stretches, at a random place in it: an even stride would see one channel
    only where the number of channels divides it.
    """
    if size <= count:
        return np.arange(size, dtype=np.int64)
    random = np.random.default_rng((_SEED, size, count))
    edges = np.arange(count + 1, dtype=np.int64) * size // count
    chosen: Positions = random.integers(edges[:-1], edges[1:], dtype=np.int64)
    return chosen


@lru_cache(maxsize=512)
def seen_through(
    layout: Layout | None, reference_shape: Shape, candidate_shape: Shape, *, count: int
) -> Positions:
    """Where in the candidate as stored those elements stand that are at `positions` in the reference."""
    at = positions(math.prod(reference_shape), count)
    if layout is None:
        return at
    if layout.crop is not None:  # the same coordinates in a larger shape
        at = np.ravel_multi_index(np.unravel_index(at, reference_shape), _uncropped(layout, candidate_shape))
    if layout.axes is not None:
        split = layout.split or candidate_shape
        turned = tuple(split[axis] for axis in layout.axes)
        coordinates = np.unravel_index(at, turned)
        at = np.ravel_multi_index([coordinates[place] for place in np.argsort(layout.axes)], split)
    return np.asarray(at, dtype=np.int64)


def _uncropped(layout: Layout, candidate_shape: Shape) -> Shape:
    if layout.merged is not None:
        return layout.merged
    split = layout.split or candidate_shape
    return split if layout.axes is None else tuple(split[axis] for axis in layout.axes)


def is_real(array: Array) -> bool:
    """Whether the elements are real numbers of any type, bfloat16 and booleans included."""
    return np.can_cast(array.dtype, np.float64, casting="same_kind")


def _pick(array: Array, at: Positions) -> Floats:
    in_order = array.flags.c_contiguous
    # Flattening anything else would copy the whole tensor.
    chosen = array.reshape(-1)[at] if in_order else array[np.unravel_index(at, array.shape)]
    if array.nbytes > _LARGE_BYTES:
        release_pages(array)
    return chosen.astype(np.float64)


def take(array: Array, at: Positions) -> Floats | None:
    """The elements at flat positions as float64, or None when they are no real numbers.

    Values that are not finite count as the mean of the others; None when they are the majority.
    """
    array = np.asarray(array)
    if not is_real(array) or not at.size:
        return None
    parts = [at] if array.nbytes <= _LARGE_BYTES else np.array_split(at, -(-at.size // _AT_A_TIME))
    values: Floats = np.concatenate([_pick(array, part) for part in parts])
    finite = np.isfinite(values)
    if finite.all():
        return values
    if finite.sum() * 2 < values.size:
        return None
    values[~finite] = values[finite].mean()
    return values


_SAMPLES = 8192
"""Elements looked at to tell layouts apart."""

_AGREES = 0.9
"""Arrays of one shape that correlate this well are taken as they are."""

_RESTORED = 0.8
"""A layout of the same shape must bring the correlation this high..."""

_RESTORED_RESIDUAL = 0.5
"""...and at least halve the share of the variance that is not explained."""

_SUPPORTED = 0.3
"""Least correlation with which the values decide between layouts that fit the shape."""

_SIGNIFICANT_Z = 3.0
"""And how many standard errors (Fisher's z) it must be from no correlation: short tensors agree by chance."""

_TIED = 1.1
"""Layouts whose unexplained variance is within this factor of the best explain the values equally well."""

_ROUNDING = 1e-9
"""Unexplained variance below this is the rounding of float64 sums."""

_ALMOST_ONE = 1 - _ROUNDING

_CONSTANT = 1e-5
"""A spread this small, relative to the largest value, is rounding and not signal."""

_PADDING_SPREAD = 1e-3
"""Padding may vary this much of what the kept elements vary."""


def find_layout(reference: Array, candidate: Array) -> Layout | None:
    """The change of layout that maps `candidate` onto `reference`.

    For different shapes: what the shapes allow, decided by the values where they allow several; None when
    nothing explains the difference. For equal shapes: None when the values agree or nothing restores
    them, else the change of axes that does.
    """
    if reference.shape == candidate.shape:
        return _restoring(reference, candidate)
    options = [
        layout for layout in layouts_between(reference.shape, candidate.shape) if only_padding(layout, candidate)
    ]
    return _decided(reference, candidate, options=options) if options else None


def correlation(left: Floats, right: Floats) -> float:
    """Pearson's correlation; 0 when one side is constant."""
    if _is_constant(left) or _is_constant(right):
        return 0.0
    # Scaled first so that no square over- or underflows.
    left, right = left / np.abs(left).max(), right / np.abs(right).max()
    left, right = left - left.mean(), right - right.mean()
    product = float(left @ right) / float(np.sqrt((left @ left) * (right @ right)))
    return max(-1.0, min(1.0, product))


def only_padding(layout: Layout, candidate: Array) -> bool:
    """Whether everything that `layout` crops away is one constant, or nothing beside what is kept."""
    if layout.crop is None:
        return True
    if not is_real(candidate):
        return False
    whole = replace(layout, crop=None).apply(candidate)
    axis = next(axis for axis, size in enumerate(layout.crop) if size != whole.shape[axis])
    ordered = np.moveaxis(whole, axis, 0)
    kept, extra = ordered[: layout.crop[axis]], ordered[layout.crop[axis] :]
    spread = float(extra.max()) - float(extra.min())
    if spread == 0:
        return True
    signal = kept[np.isfinite(kept)]
    return signal.size > 0 and spread <= _PADDING_SPREAD * (float(signal.max()) - float(signal.min()))


def _restoring(reference: Array, candidate: Array) -> Layout | None:
    at = positions(reference.size, _SAMPLES)
    left, right = take(reference, at), take(candidate, at)
    if left is None or right is None:
        return None
    before = correlation(left, right)
    options = layouts_within(reference.shape)
    if before >= _AGREES or not options or _is_constant(left) or _is_constant(right):
        return None
    after, layout = max(
        zip(_correlations(reference, candidate, options=options), options, strict=True),
        key=lambda scored: scored[0],
    )
    enough = after >= _RESTORED and 1 - after**2 <= _RESTORED_RESIDUAL * (1 - before**2)
    return layout if enough else None


def _decided(reference: Array, candidate: Array, *, options: Sequence[Layout]) -> Layout | None:
    """The option that the values support; the only or the first one where they need not decide."""
    options = _distinct(reference, candidate, options=options)
    if len(options) == 1:
        return options[0]
    at = positions(reference.size, _SAMPLES)
    left, right = take(reference, at), take(candidate, positions(candidate.size, _SAMPLES))
    if left is None or right is None or _is_constant(left) or _is_constant(right):
        return options[0]
    scores = _correlations(reference, candidate, options=options)
    best = max(scores)
    z = math.atanh(min(best, _ALMOST_ONE)) * math.sqrt(max(at.size - 3, 1))
    if best >= _SUPPORTED and z >= _SIGNIFICANT_Z:
        residual = _TIED * (1 - best**2) + _ROUNDING
        good = (layout for score, layout in zip(scores, options, strict=True) if 1 - score**2 <= residual)
        return next(good)
    # A plain reshape is unlikely where the axes themselves can be put in order.
    moved = [layout for layout in options if layout.axes is not None]
    return moved[0] if len(moved) == 1 else None


def _distinct(reference: Array, candidate: Array, *, options: Sequence[Layout]) -> list[Layout]:
    """The options without those that give the same view as an earlier one."""
    views: dict[bytes, Layout] = {}
    for layout in options:
        view = seen_through(layout, reference.shape, candidate.shape, count=_SAMPLES)
        views.setdefault(view.tobytes(), layout)
    return list(views.values())


def _correlations(reference: Array, candidate: Array, *, options: Sequence[Layout]) -> list[float]:
    left = take(reference, positions(reference.size, _SAMPLES))
    found = []
    for layout in options:
        view = seen_through(layout, reference.shape, candidate.shape, count=_SAMPLES)
        right = take(candidate, view)
        found.append(0.0 if left is None or right is None else correlation(left, right))
    return found


def _is_constant(values: Floats) -> bool:
    spread = float(values.max() - values.min())
    return not spread > _CONSTANT * float(np.abs(values).max())
