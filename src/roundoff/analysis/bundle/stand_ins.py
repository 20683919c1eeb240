"""Numbers that take the place of confidential ones: other values with the same statistics."""

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["SHUFFLED_FROM", "jittered", "like", "sample_like", "shuffled"]

# What is taken over of a distribution is known to so many digits.
_DIGITS = 3
# Points of a distribution function that are taken over, and values per point: a few values must not be given away.
_MOST_POINTS, _VALUES_PER_POINT = 33, 4
SHUFFLED_FROM = 8
"""Slices of fewer values are not drawn anew but changed a little: their order would say nothing, or everything."""
_JITTER = 0.05


def like(values: Array, axis: int | None, random: np.random.Generator, *, other: int | None = None) -> Array:
    """Random values; each slice has about the mean, the spread and the extremes that it had.

    Args:
        values: Float array.
        axis: Axis of the slices; None to take all values together.
        random: Where they come from.
        other: A second axis along which slices keep their size, as the input channels of a weight.
    """
    if _rows(values, axis).shape[1] < SHUFFLED_FROM:
        return jittered(values, random)
    sizes = _sizes(values, axis, other)
    rows = _rows(values / sizes, axis)
    drawn = np.stack([_drawn(row, random) for row in rows])
    return np.asarray((_unrowed(drawn, values, axis) * _rounded(sizes)).astype(values.dtype))


def shuffled(values: Array, axis: int | None, random: np.random.Generator, *, other: int | None = None) -> Array:
    """The values of each slice in another order: its statistics stay as they are; arguments as for `like`."""
    if _rows(values, axis).shape[1] < SHUFFLED_FROM:
        return jittered(values, random)
    sizes = _sizes(values, axis, other)
    rows = _rows(values / sizes, axis)
    return np.asarray((_unrowed(random.permuted(rows, axis=1), values, axis) * sizes).astype(values.dtype))


def _sizes(values: Array, axis: int | None, other: int | None) -> Array:
    """Size of the slices along the second axis, once those along the first are of one size; broadcasts."""
    if axis is None or other is None or values.ndim < 2 or values.shape[other] < 2:
        return np.ones((1,) * values.ndim)
    exact = values.astype(np.float64)
    rest = tuple(place for place in range(values.ndim) if place != axis)
    spread = np.sqrt(np.square(exact).mean(axis=rest, keepdims=True))
    even = exact / np.where(spread > 0, spread, 1.0)
    rest = tuple(place for place in range(values.ndim) if place != other)
    found = np.sqrt(np.square(even).mean(axis=rest, keepdims=True))
    return np.where(found > 0, found, 1.0)


def jittered(values: Array, random: np.random.Generator) -> Array:
    """Each value changed by up to five per cent, never by nothing; zero stays zero."""
    change = random.uniform(_JITTER / 5, _JITTER, values.shape) * random.choice([-1, 1], values.shape)
    return np.asarray((values.astype(np.float64) * (1 + change)).astype(values.dtype))


def sample_like(values: Array, random: np.random.Generator) -> Array:
    """An input with the statistics of another one, in which nothing of that can be recognised.

    Of pictures and the like, the two longest axes keep how strongly neighbours resemble each other. Whole numbers
    are drawn between the smallest and the largest; what is only 0 and 1, such as a mask, stays.
    """
    if values.dtype.kind in "iub":
        few = values.size == 0 or (values.min() >= 0 and values.max() <= 1)
        if few:
            return values.copy()
        return random.integers(values.min(), values.max(), values.shape, endpoint=True).astype(values.dtype)
    if values.dtype.kind != "f" or values.size < SHUFFLED_FROM:
        return jittered(values, random) if values.dtype.kind == "f" else values.copy()
    if values.ndim < 3:
        return like(values, None, random)
    longest = tuple(sorted(sorted(range(values.ndim), key=lambda axis: -values.shape[axis])[:2]))
    exact = np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0)
    spectrum = np.fft.fft2(exact, axes=longest)
    # The same turn for all channels keeps how they go together.
    shape = [values.shape[axis] if axis in longest else 1 for axis in range(values.ndim)]
    noise = np.fft.fft2(random.standard_normal(shape), axes=longest)
    turned = np.real(np.fft.ifft2(spectrum * noise / np.maximum(np.abs(noise), 1e-12), axes=longest))
    rest = tuple(axis for axis in range(values.ndim) if axis not in longest)
    order = (*rest, *longest)
    flat = turned.transpose(order).reshape(-1, shape[longest[0]] * shape[longest[1]])
    source = exact.transpose(order).reshape(flat.shape)
    moved = np.stack([_ranked(row, like_row, random) for row, like_row in zip(flat, source, strict=True)])
    back = moved.reshape([values.shape[axis] for axis in order]).transpose(np.argsort(order))
    return np.ascontiguousarray(back, dtype=values.dtype)


def _ranked(order: Array, source: Array, random: np.random.Generator) -> Array:
    """Values drawn like `source`, put in the order of `order`."""
    drawn = np.sort(_drawn(source, random) if source.size >= SHUFFLED_FROM else jittered(source, random))
    found = np.empty_like(drawn)
    found[np.argsort(order, kind="stable")] = drawn
    return found


def _drawn(row: Array, random: np.random.Generator) -> Array:
    exact = row.astype(np.float64)
    points = int(np.clip(row.size // _VALUES_PER_POINT, 2, _MOST_POINTS))
    grid = np.linspace(0, 1, points)
    function = _rounded(np.quantile(exact, grid))
    # One in each of equal parts, so that mean and spread are met; the ends are the extremes.
    places = (random.permutation(row.size) + random.uniform(size=row.size)) / row.size
    places[np.argmin(places)], places[np.argmax(places)] = 0.0, 1.0
    found = np.interp(places, grid, function)
    centre, spread = _rounded(np.array([exact.mean(), exact.std()]))
    if found.std() > 0 and spread > 0:
        found = np.clip((found - found.mean()) * (spread / found.std()) + centre, function[0], function[-1])
        found[np.argmin(places)], found[np.argmax(places)] = function[0], function[-1]
    return np.asarray(found.astype(row.dtype))


def _rounded(values: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        step = 10.0 ** (np.floor(np.log10(np.abs(values))) - _DIGITS + 1)
        return np.where(values == 0, 0.0, np.round(values / step) * step)


def _rows(values: Array, axis: int | None) -> Array:
    if axis is None or values.ndim < 2:
        return values.reshape(1, -1) if values.ndim != 1 else values.reshape(-1, 1)
    moved = np.moveaxis(values, axis, 0)
    return moved.reshape(moved.shape[0], -1)


def _unrowed(rows: Array, values: Array, axis: int | None) -> Array:
    if axis is None or values.ndim < 2:
        return rows.reshape(values.shape)
    moved = np.moveaxis(values, axis, 0)
    return np.ascontiguousarray(np.moveaxis(rows.reshape(moved.shape), 0, axis))
