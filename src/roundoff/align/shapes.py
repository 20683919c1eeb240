"""Every change of layout that two shapes allow, before looking at any value."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from roundoff.align.axes import Shape, core, full_axes, inverse, name_of, orderings, show, usual_name
from roundoff.align.channel_blocks import blocked, blocked_buffer
from roundoff.core.pairing import Layout

__all__ = ["layouts_between", "layouts_within", "relabelled"]

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
