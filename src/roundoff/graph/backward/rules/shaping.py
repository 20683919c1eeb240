"""Elements that only move: the gradient moves back the same way."""

import numpy as np

from roundoff.graph.backward.operations import (
    along_axis,
    crop,
    flip,
    reduce_sum,
    reduce_to,
    reshape,
    reshape_like,
    transpose,
    zero_pad,
    zeros,
)
from roundoff.graph.backward.registry import rule
from roundoff.graph.backward.step import NoRule, Step

__all__ = ()

# What numpy calls Pad's modes.
_PAD_MODES = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}


@rule("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _reshape(at: Step, index: int) -> str | None:
    return None if index else reshape_like(at, at.gradient, 0)


@rule("Transpose")
def _transpose(at: Step, _index: int) -> str:
    order = at.attribute("perm")
    if order is None:
        return at.op("Transpose", at.gradient)
    return transpose(at, at.gradient, [int(axis) for axis in np.argsort(order)])


@rule("Expand")
def _expand(at: Step, _index: int) -> str:
    return reduce_to(at, at.gradient, at.output_shape(), at.shape(0))


@rule("Tile")
def _tile(at: Step, _index: int) -> str:
    shape, tiled = at.shape(0), at.output_shape()
    if 0 in tiled:
        return zeros(at, shape)
    pairs = [(whole // size, size) for whole, size in zip(tiled, shape, strict=True)]
    copies = reshape(at, at.gradient, [number for pair in pairs for number in pair])
    return reshape(at, reduce_sum(at, copies, range(0, 2 * len(pairs), 2)), shape)


@rule("Concat")
def _concat(at: Step, index: int) -> str:
    axis = at.attribute("axis") % len(at.output_shape())
    start = sum(at.shape(place)[axis] for place in range(index))
    return crop(at, at.gradient, axis=axis, start=start, end=start + at.shape(index)[axis])


@rule("Split", every_output=True)
def _split(at: Step, index: int) -> str | None:
    if index:
        return None
    axis = at.attribute("axis", 0) % len(at.shape(0))
    parts = [
        zeros(at, at.output_shape(place)) if gradient is None else gradient
        for place, gradient in enumerate(at.gradients)
    ]
    return at.op("Concat", *parts, axis=axis)


@rule("DepthToSpace")
def _depth_to_space(at: Step, _index: int) -> str:
    batch, channels, height, width = at.shape(0)
    block = at.attribute("blocksize")
    apart = reshape(at, at.gradient, [batch, channels // block**2, height, block, width, block])
    order = [0, 3, 5, 1, 2, 4] if at.attribute("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
    return reshape(at, transpose(at, apart, order), at.shape(0))


@rule("SpaceToDepth")
def _space_to_depth(at: Step, _index: int) -> str:
    batch, channels, height, width = at.shape(0)
    block = at.attribute("blocksize")
    apart = reshape(at, at.gradient, [batch, block, block, channels, height // block, width // block])
    return reshape(at, transpose(at, apart, [0, 3, 4, 1, 5, 2]), at.shape(0))


@rule("Trilu")
def _trilu(at: Step, _index: int) -> str:
    return at.op("Trilu", at.gradient, *at.inputs[1:], upper=at.attribute("upper", 1))


@rule("Slice")
def _slice(at: Step, index: int) -> str:
    if index:
        raise NoRule("its bounds have no gradient")
    shape, gradient, current = at.shape(0), at.gradient, list(at.output_shape())
    before, after = [0] * len(shape), [0] * len(shape)
    for axis, taken in _taken(at, shape).items():
        size = shape[axis]
        if len(taken) != current[axis]:
            raise NoRule(f"it takes {current[axis]} elements along axis {axis}, its bounds say {len(taken)}")
        if not taken:
            return zeros(at, shape)
        if abs(taken.step) > 1 and len(taken) > 1:
            # A column for each element that was taken, with a one where it came from.
            places = np.zeros((size, len(taken)))
            places[list(taken), range(len(taken))] = 1
            gradient = along_axis(at, gradient, places, axis=axis, shape=current)
            current[axis] = size
            continue
        if taken.step < 0:
            gradient = flip(at, gradient, axis=axis, size=len(taken))
        before[axis], after[axis] = min(taken), size - 1 - max(taken)
    return zero_pad(at, gradient, before, after)


def _taken(at: Step, shape: tuple[int, ...]) -> dict[int, range]:
    """The indices that a Slice takes along each axis it names."""
    if at.opset >= 10:
        starts, ends = at.ints(1), at.ints(2)
        axes = at.ints(3) if at.has(3) else tuple(range(len(starts)))
        steps = at.ints(4) if at.has(4) else (1,) * len(starts)
    else:
        starts, ends = tuple(at.attribute("starts")), tuple(at.attribute("ends"))
        axes = tuple(at.attribute("axes") or range(len(starts)))
        steps = (1,) * len(starts)
    rows = zip(axes, starts, ends, steps, strict=True)
    return {
        axis % len(shape): _range(start, end, step, size=shape[axis % len(shape)])
        for axis, start, end, step in rows
    }


def _range(start: int, end: int, step: int, *, size: int) -> range:
    """The indices between two bounds as the standard cuts them off, which is not quite as Python does."""
    low, high = (0, size) if step > 0 else (-1, size - 1)
    start, end = (bound + size if bound < 0 else bound for bound in (start, end))
    return range(min(max(start, 0), high), min(max(end, low), high), step)


@rule("Pad")
def _pad(at: Step, index: int) -> str:
    if index:
        raise NoRule("the value it pads with has no rule")
    shape, gradient, current = at.shape(0), at.gradient, list(at.output_shape())
    before, after = _pads(at, len(shape))
    mode = at.attribute("mode", "constant")
    if mode != "constant":
        if min(*before, *after) < 0 or mode not in _PAD_MODES:
            raise NoRule(f"padding by {mode!r} with these sizes has no rule")
        for axis, size in enumerate(shape):
            if before[axis] or after[axis]:
                source = np.pad(np.arange(size), (before[axis], after[axis]), _PAD_MODES[mode])  # type: ignore[call-overload]
                matrix = (source[None, :] == np.arange(size)[:, None]).astype(np.float64)
                gradient = along_axis(at, gradient, matrix, axis=axis, shape=current)
                current[axis] = size
        return gradient
    for axis, size in enumerate(current):
        start, end = max(before[axis], 0), size - max(after[axis], 0)
        if (start, end) != (0, size):
            gradient = crop(at, gradient, axis=axis, start=start, end=end)
    # Negative padding took elements away.
    return zero_pad(at, gradient, [max(-pad, 0) for pad in before], [max(-pad, 0) for pad in after])


def _pads(at: Step, rank: int) -> tuple[list[int], list[int]]:
    """How much is added before and after each axis."""
    pads = at.ints(1) if at.opset >= 11 else tuple(at.attribute("pads"))
    axes = [axis % rank for axis in at.ints(3)] if at.has(3) else list(range(rank))
    before, after = [0] * rank, [0] * rank
    for place, axis in enumerate(axes):
        before[axis], after[axis] = pads[place], pads[place + len(axes)]
    return before, after
