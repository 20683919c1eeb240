"""Changes of layout between two arrays: those that the shapes allow, and the one that the values show."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from roundoff.align.pairing import Layout
from roundoff.core.tensors import Array
from roundoff.measure.statistics import release_pages
from roundoff.messages.message import english

Shape = tuple[int, ...]

MOST_AXES = 6
"""Beyond this many axes longer than one only the order as it stands is tried: 7! orders are too many."""

_USUAL: dict[tuple[int, ...], str] = {
    (0, 3, 1, 2): "NHWC -> NCHW",
    (0, 2, 3, 1): "NCHW -> NHWC",
    (3, 2, 0, 1): "HWCN -> NCHW",
    (2, 0, 1): "HWC -> CHW",
    (1, 2, 0): "CHW -> HWC",
    (0, 4, 1, 2, 3): "NDHWC -> NCDHW",
    (0, 2, 3, 4, 1): "NCDHW -> NDHWC",
}
"""`numpy.transpose` arguments that have a name among users."""


def show(shape: Shape) -> str:
    """A shape or an order of axes as text: ``(1,3,224,224)``."""
    return "(" + ",".join(map(str, shape)) + ")"


def core(shape: Shape) -> Shape:
    """The shape without its axes of length one, which never change the order of the elements."""
    return tuple(size for size in shape if size != 1)


def inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The order of axes that undoes `axes`."""
    return tuple(int(axis) for axis in np.argsort(axes))


def orderings(parts: Shape, wholes: Shape) -> Iterator[tuple[int, ...]]:
    """All orders of the axes `parts` in which runs of neighbours multiply to `wholes`.

    Both shapes have the same number of elements and no axis of length one. With as many parts as wholes
    these are the permutations from one shape to the other; the order as it stands comes first if it fits.
    """
    if len(parts) > MOST_AXES:
        return

    def extend(taken: tuple[int, ...], left: Shape) -> Iterator[tuple[int, ...]]:
        if not left:
            yield taken
            return
        for axis, size in enumerate(parts):
            if axis not in taken and left[0] % size == 0:
                rest = left[0] // size
                yield from extend((*taken, axis), left[1:] if rest == 1 else (rest, *left[1:]))

    yield from extend((), wholes)


def full_axes(order: tuple[int, ...], source: Shape, target: Shape) -> tuple[int, ...]:
    """Turn an order of the axes of `core(source)` into one of all axes of `source`.

    Axes of length one fill the places of length one in `target` in their own order, which is what makes
    ``(1,1,1,64) -> (1,64,1,1)`` come out as NHWC -> NCHW.
    """
    units = iter([axis for axis, size in enumerate(source) if size == 1])
    longer = [axis for axis, size in enumerate(source) if size != 1]
    ordered = iter([longer[axis] for axis in order])
    return tuple(next(units) if size == 1 else next(ordered) for size in target)


def _then(before: str, after: str) -> str:
    """Two steps of a change of layout, one after the other."""
    return english("{before}, {after}", before=before, after=after)


def name_of(axes: tuple[int, ...], target: Shape) -> str:
    """What a person calls the change of axes that ends in the shape `target`.

    Args:
        axes: Order of all axes, or of those longer than one.
        target: Shape after the change, axes of length one included.
    """
    return usual_name(axes, target) or english("axes {axes}", axes=show(axes))


def _padding_name(axis: int, length: int, padded: int) -> str:
    return english("axis {axis} padded {length} -> {padded}", axis=axis, length=length, padded=padded)


def _reshape_name(before: Shape, after: Shape) -> str:
    return english("reshaped {before} -> {after}", before=show(before), after=show(after))


def usual_name(axes: tuple[int, ...], target: Shape) -> str | None:
    """The name of a change of axes that has one, like ``NHWC -> NCHW``; arguments as for `name_of`."""
    for usual, name in _USUAL.items():
        if len(usual) == len(target) and axes in (usual, _reduced(usual, target)):
            return name
    return None


def _reduced(axes: tuple[int, ...], target: Shape) -> tuple[int, ...]:
    """The order that `axes` puts the axes longer than one in."""
    kept = [axis for axis, size in zip(axes, target, strict=True) if size != 1]
    ranks = {axis: rank for rank, axis in enumerate(sorted(kept))}
    return tuple(ranks[axis] for axis in kept)


# Channels stored in blocks, as accelerators like them: NC1HWC0 and its kin.

_BLOCK_SIZES = (4, 8, 16, 32, 64)
"""Channels per block that accelerators use; tried where the shape itself does not tell."""


@dataclass(frozen=True, slots=True)
class _Blocks:
    """A way of storing channels in blocks: some axes, the blocks, the other axes, the places in a block.

    Attributes:
        name: What users call it.
        rank: Rank of the reference it stores.
        axis: The reference's channel axis.
        leading: How many of the reference's other axes come before the blocks.
    """

    name: str
    rank: int
    axis: int
    leading: int

    def stored_shape(self, reference: Shape, block: int) -> Shape:
        others = reference[: self.axis] + reference[self.axis + 1 :]
        blocks = math.ceil(reference[self.axis] / block)
        return (*others[: self.leading], blocks, *others[self.leading :], block)

    def undo(self, reference: Shape, candidate: Shape, *, stored: Shape) -> Layout:
        others = [place for place in range(len(stored) - 1) if place != self.leading]
        channels = stored[self.leading] * stored[-1]
        wide = (*reference[: self.axis], channels, *reference[self.axis + 1 :])
        name = self.name
        if wide != reference:
            padding = _padding_name(self.axis, reference[self.axis], channels)
            name = _then(name, padding)
        if stored != candidate:
            name = _then(name, _reshape_name(candidate, stored))
        return Layout(
            name,
            split=None if stored == candidate else stored,
            axes=(*others[: self.axis], self.leading, len(stored) - 1, *others[self.axis :]),
            merged=wide,
            crop=None if wide == reference else reference,
        )


_BLOCKS = (
    _Blocks("NC1HWC0 -> NCHW", rank=4, axis=1, leading=1),
    _Blocks("NC1HWC0 -> NHWC", rank=4, axis=3, leading=1),
    _Blocks("C1HWC0 -> CHW", rank=3, axis=0, leading=0),
    _Blocks("C1HWC0 -> HWC", rank=3, axis=2, leading=0),
    _Blocks("NDC1HWC0 -> NCDHW", rank=5, axis=1, leading=2),
    _Blocks("NDC1HWC0 -> NDHWC", rank=5, axis=4, leading=2),
)


def blocked(reference: Shape, candidate: Shape) -> Iterator[Layout]:
    """Channels in blocks, as in NC1HWC0, told by the candidate's shape (its batch axis may be missing)."""
    if not candidate or candidate[-1] < min(_BLOCK_SIZES):
        return
    for blocks in _BLOCKS:
        if blocks.rank == len(reference):
            stored = blocks.stored_shape(reference, candidate[-1])
            unbatched = stored[0] == 1 and stored[blocks.leading] > 1 and stored[1:] == candidate
            if stored == candidate or unbatched:
                yield blocks.undo(reference, candidate, stored=stored)


def blocked_buffer(reference: Shape, candidate: Shape) -> Iterator[Layout]:
    """Channels in blocks, given as a flat buffer whose size alone speaks for it."""
    if len(core(candidate)) != 1 or len(core(reference)) < 2:
        return
    for blocks in _BLOCKS:
        for block in _BLOCK_SIZES if blocks.rank == len(reference) else ():
            stored = blocks.stored_shape(reference, block)
            if stored[blocks.leading] > 1 and math.prod(stored) == math.prod(candidate):
                yield blocks.undo(reference, candidate, stored=stored)


_AS_STORED = Layout("")
"""The elements stand in the reference's order already."""

_ALIGNMENTS = (2, 4, 8, 16, 32, 64)
"""A raw buffer is taken as padded only to the next multiple of one of these, and in a usual order of axes:
its shape says nothing, and all that could be tried would take long and mean little."""


@lru_cache(maxsize=4096)
def layouts_between(reference: Shape, candidate: Shape) -> tuple[Layout, ...]:
    """Changes that give `candidate` the shape `reference`, most usual first; none for equal shapes.

    Axes may be in another order, merged, split, missing (when of length one), padded (one axis), or the
    channels stored in blocks.
    """
    if reference == candidate or 0 in reference or 0 in candidate:
        return ()
    found = [*blocked(reference, candidate)]
    if math.prod(reference) == math.prod(candidate):
        found += [*_rearranged(reference, candidate), _in_order(candidate, reference)]
    found += _padded(reference, candidate)
    found += blocked_buffer(reference, candidate)
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=1024)
def layouts_within(shape: Shape) -> tuple[Layout, ...]:
    """Changes that keep the shape: axes of equal length exchanged, or a buffer under the wrong label."""
    longer = core(shape)
    as_is = tuple(range(len(longer)))
    found = []
    for order in orderings(longer, longer):
        if order != as_is:
            axes = full_axes(order, shape, shape)
            found.append(Layout(_exchange_name(axes, shape), axes=axes))
    for order in _all_orders(longer):
        stored = tuple(longer[axis] for axis in order)
        if stored != longer:
            back = inverse(order)
            turned = name_of(back, shape)
            name = english("{order}, though labelled {shape}", order=turned, shape=show(shape))
            found.append(Layout(name, split=stored, axes=back, merged=shape))
    return tuple(found)


def relabelled(reference: Shape, candidate: Shape) -> Layout | None:
    """The change between two shapes of one size whose elements stand in the same order."""
    return None if reference == candidate else _in_order(candidate, reference)


def _all_orders(longer: Shape) -> Iterator[tuple[int, ...]]:
    return orderings(longer, (math.prod(longer),)) if len(longer) > 1 else iter(())


def _exchange_name(axes: tuple[int, ...], shape: Shape) -> str:
    moved = [place for place, axis in enumerate(axes) if place != axis]
    if len(moved) == 2:
        return english("axes {first},{second} swapped", first=moved[0], second=moved[1])
    return name_of(axes, shape)


def _rearranged(reference: Shape, candidate: Shape) -> Iterator[Layout]:
    """Changes between shapes of one size that only reorder, merge or split axes."""
    wanted, given = core(reference), core(candidate)
    if len(given) >= len(wanted):
        for order in orderings(given, wanted):
            yield _permuted(order, candidate, reference)
    else:
        for order in orderings(wanted, given):
            yield _split(order, candidate, reference)


def _permuted(order: tuple[int, ...], candidate: Shape, reference: Shape) -> Layout:
    """The candidate's axes in another order, neighbours merged where the reference has fewer."""
    given = core(candidate)
    same_rank = len(candidate) == len(reference) and len(given) == len(core(reference))
    axes = full_axes(order, candidate, reference) if same_rank else order
    turned = reference if same_rank else tuple(given[axis] for axis in order)
    if order == tuple(range(len(order))) and not (same_rank and usual_name(axes, turned)):
        return _reshaped(candidate, reference)
    if same_rank:
        return Layout(name_of(axes, turned), axes=axes)
    name = _then(name_of(axes, turned), _reshaped(candidate, reference).name)
    return Layout(name, split=None if given == candidate else given, axes=order, merged=reference)


def _in_order(candidate: Shape, reference: Shape) -> Layout:
    if core(candidate) == core(reference):
        return _permuted(tuple(range(len(core(candidate)))), candidate, reference)
    return _reshaped(candidate, reference)


def _split(order: tuple[int, ...], candidate: Shape, reference: Shape) -> Layout:
    """The reference's axes lie in another `order` in a candidate that shows fewer of them."""
    plain = _reshaped(candidate, reference)
    if order == tuple(range(len(order))):
        return plain
    wanted = core(reference)
    back = inverse(order)
    name = _then(name_of(back, reference), plain.name)
    return Layout(name, split=tuple(wanted[axis] for axis in order), axes=back, merged=reference)


def _reshaped(candidate: Shape, reference: Shape) -> Layout:
    if candidate == reference:
        return _AS_STORED
    return Layout(_reshape_name(candidate, reference), merged=reference)


def _padded(reference: Shape, candidate: Shape) -> Iterator[Layout]:
    """Changes in which one axis of the candidate is longer; its length follows from the sizes."""
    given = core(candidate)
    exact = [axis for axis in range(len(reference)) if _widened(reference, candidate, axis) == candidate]
    rest = [axis for axis in range(len(reference)) if axis not in exact]
    for axis in exact + rest:
        wide = _widened(reference, candidate, axis)
        if wide is None:
            continue
        layouts = list(_rearranged(wide, candidate))
        if len(given) == 1 and len(core(wide)) > 1:
            layouts = layouts if _aligned(reference[axis], wide[axis]) else []
            layouts = [layout for layout in layouts if not layout.axes or usual_name(layout.axes, wide)]
        elif sorted(given) != sorted(core(wide)):
            continue
        padding = _padding_name(axis, reference[axis], wide[axis])
        for layout in layouts:
            name = _then(layout.name, padding) if layout.name else padding
            yield replace(layout, name=name, crop=reference)


def _aligned(length: int, padded: int) -> bool:
    return any(math.ceil(length / unit) * unit == padded for unit in _ALIGNMENTS)


def _widened(reference: Shape, candidate: Shape, axis: int) -> Shape | None:
    others = math.prod(reference) // reference[axis]
    length, remainder = divmod(math.prod(candidate), others)
    if remainder or length <= reference[axis]:
        return None
    return (*reference[:axis], length, *reference[axis + 1 :])


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

_MANY_ALIKE = 16
_PADDING_SPREAD = 1e-3
"""Padding may be this far from zero, over what the kept elements vary."""


def find_layout(reference: Array, candidate: Array) -> Layout | None:
    """The change of layout that maps `candidate` onto `reference`.

    For different shapes: what the shapes allow, decided by the values where they allow several; None when
    nothing explains the difference. For equal shapes: None when the values agree or nothing restores
    them, else the change of axes that does.
    """
    if reference.shape == candidate.shape:
        return _restoring(reference, candidate)
    options = [
        layout
        for layout in layouts_between(reference.shape, candidate.shape)
        if only_padding(layout, reference, candidate)
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


def only_padding(layout: Layout, reference: Array, candidate: Array) -> bool:
    """Whether everything that `layout` crops away is padding: zeros, or in codes of real numbers one code.

    One value all over is that of a code, too, where it is so many times there and what is kept varies.
    """
    if layout.crop is None:
        return True
    if not is_real(candidate):
        return False
    whole = replace(layout, crop=None).apply(candidate)
    axis = next(axis for axis, size in enumerate(layout.crop) if size != whole.shape[axis])
    ordered = np.moveaxis(whole, axis, 0)
    kept, extra = ordered[: layout.crop[axis]], ordered[layout.crop[axis] :]
    low, high = float(extra.min()), float(extra.max())
    if candidate.dtype.kind in "iu" and reference.dtype.kind not in "iu":
        return low == high  # the zero point, whatever it is
    signal = kept[np.isfinite(kept)]
    spread = float(signal.max()) - float(signal.min()) if signal.size else 0.0
    if low == high and spread > 0 and extra.size >= _MANY_ALIKE:
        return True
    return max(abs(low), abs(high)) <= _PADDING_SPREAD * spread


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
