"""Orders of axes: which ones fit a shape, and what people call them."""

from collections.abc import Iterator

import numpy as np

__all__ = ["MOST_AXES", "Shape", "core", "full_axes", "inverse", "name_of", "orderings", "show", "usual_name"]

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


def name_of(axes: tuple[int, ...], target: Shape) -> str:
    """What a person calls the change of axes that ends in the shape `target`.

    Args:
        axes: Order of all axes, or of those longer than one.
        target: Shape after the change, axes of length one included.
    """
    return usual_name(axes, target) or f"axes {show(axes)}"


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
