"""Every change of layout that two shapes allow, before looking at any value."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from roundoff.align.axes import Shape, core, full_axes, inverse, name_of, orderings, show, usual_name
from roundoff.align.pairing import Layout

__all__ = [
    "blocked",
    "blocked_buffer",
    "layouts_between",
    "layouts_within",
    "relabelled",
]


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
        parts = [self.name]
        if wide != reference:
            parts.append(f"axis {self.axis} padded {reference[self.axis]} -> {channels}")
        if stored != candidate:
            parts.append(f"reshaped {show(candidate)} -> {show(stored)}")
        return Layout(
            ", ".join(parts),
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
            name = f"{name_of(back, shape)}, though labelled {show(shape)}"
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
        return f"axes {moved[0]},{moved[1]} swapped"
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
    name = f"{name_of(axes, turned)}, {_reshaped(candidate, reference).name}"
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
    name = f"{name_of(back, reference)}, {plain.name}"
    return Layout(name, split=tuple(wanted[axis] for axis in order), axes=back, merged=reference)


def _reshaped(candidate: Shape, reference: Shape) -> Layout:
    if candidate == reference:
        return _AS_STORED
    return Layout(f"reshaped {show(candidate)} -> {show(reference)}", merged=reference)


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
        padding = f"axis {axis} padded {reference[axis]} -> {wide[axis]}"
        for layout in layouts:
            name = f"{layout.name}, {padding}" if layout.name else padding
            yield replace(layout, name=name, crop=reference)


def _aligned(length: int, padded: int) -> bool:
    return any(math.ceil(length / unit) * unit == padded for unit in _ALIGNMENTS)


def _widened(reference: Shape, candidate: Shape, axis: int) -> Shape | None:
    others = math.prod(reference) // reference[axis]
    length, remainder = divmod(math.prod(candidate), others)
    if remainder or length <= reference[axis]:
        return None
    return (*reference[:axis], length, *reference[axis + 1 :])
