"""Shapes for hypothesis."""

import math

from hypothesis import strategies as st

Shape = tuple[int, ...]


def shapes(*, most_axes: int = 4, most: int = 6, least_axes: int = 0) -> st.SearchStrategy[Shape]:
    """Small shapes, with axes of length one among them."""
    return st.lists(st.integers(1, most), min_size=least_axes, max_size=most_axes).map(tuple)


@st.composite
def arrays_in_other_layouts(draw: st.DrawFn) -> tuple[Shape, Shape]:
    """The shape of a reference, and one that the same tensor might have in another dump."""
    shape = draw(shapes(least_axes=1))
    other = list(draw(st.permutations(shape)))
    change = draw(st.sampled_from(["permuted", "flat", "squeezed", "padded", "blocks"]))
    if change == "flat":
        return shape, (math.prod(shape),)
    if change == "squeezed":
        return shape, tuple(size for size in other if size != 1)
    if change == "padded":
        axis = draw(st.integers(0, len(other) - 1))
        other[axis] += draw(st.integers(1, 5))
    if change == "blocks" and len(shape) == 4:
        return shape, (shape[0], math.ceil(shape[1] / 4), *shape[2:], 4)
    return shape, tuple(other)
