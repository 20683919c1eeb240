"""Results that are right and then cut off, wrapped, overwritten or taken from elsewhere.

These are fitted: what they depend on (a limit, a tile, a channel) is read from some samples and tried on others.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.expectation import grid_step, kind_of, rounded_to
from roundoff.messages.message import Message, message

Result = Callable[["ResultSample"], Array]

# A value is off when it differs by more than so many tolerances.
_OFF = 4.0
# A box that is more than this part of the tensor is all of it.
_LARGEST = 0.95
_FARTHEST = 2
_LEAST_AT_LIMIT = 3
_MOST_CHANNELS = 512


@dataclass(frozen=True, slots=True, eq=False)
class ResultSample:
    """A tensor in one sample.

    Attributes:
        found: What the device wrote.
        right: What it should be.
        tolerance: What may differ; broadcasts.
        before: What the device wrote of the sample before, and what it should have been; empty for the first.
        operands: What the last node reads, where it adds or joins tensors.
    """

    found: Array
    right: Array
    tolerance: Array
    before: tuple[Array, ...]
    operands: tuple[Array, ...] = ()

    @property
    def off(self) -> Array:
        """Elements that are wrong."""
        with np.errstate(invalid="ignore"):
            return np.asarray(~(np.abs(self.found - self.right) <= _OFF * self.tolerance))


def fitted_results(samples: Sequence[ResultSample]) -> Iterator[tuple[Message, Result]]:
    """Ways to spoil a right result, with what they depend on read from these samples."""
    if any(each.found.dtype.kind != "f" or not np.isfinite(each.found).all() for each in samples):
        return
    yield from _constant(samples)
    yield from _limited(samples)
    yield from _wrapped(samples)
    yield from _rounded(samples)
    yield from _weighted(samples)
    yield from _other_channels(samples)
    yield from _tiles(samples)
    yield from _moved(samples)


def _constant(samples: Sequence[ResultSample]) -> Iterator[tuple[Message, Result]]:
    values = np.unique(np.concatenate([np.unique(each.found)[:2] for each in samples]))
    if len(values) == 1 and samples[0].found.size > 1:
        value = samples[0].found.dtype.type(values[0])
        yield message("diagnosis.way_all_same", value=float(value)), lambda each: np.full_like(each.right, value)


def _limited(samples: Sequence[ResultSample]) -> Iterator[tuple[Message, Result]]:
    low, high = min(float(each.found.min()) for each in samples), max(float(each.found.max()) for each in samples)
    at_high = sum(int(np.count_nonzero(each.found >= high)) for each in samples)
    at_low = sum(int(np.count_nonzero(each.found <= low)) for each in samples)
    beyond_high = any(float(each.right.max()) > high + float(np.max(each.tolerance)) for each in samples)
    beyond_low = any(float(each.right.min()) < low - float(np.max(each.tolerance)) for each in samples)
    upper = high if at_high >= _LEAST_AT_LIMIT and beyond_high else np.inf
    lower = low if at_low >= _LEAST_AT_LIMIT and beyond_low else -np.inf
    if np.isinf(upper) and np.isinf(lower):
        return
    key = "above" if np.isinf(lower) else "below" if np.isinf(upper) else "both"
    limits = {key: value for key, value in (("low", lower), ("high", upper)) if np.isfinite(value)}
    yield message(f"diagnosis.way_cut_off_{key}", **limits), lambda each: np.clip(each.right, lower, upper)


def _wrapped(samples: Sequence[ResultSample]) -> Iterator[tuple[Message, Result]]:
    """Values that are off by a whole number of turns of one size."""
    turns = np.concatenate([(each.right - each.found)[each.off].ravel() for each in samples]).astype(np.float64)
    if turns.size < _LEAST_AT_LIMIT:
        return
    period = float(np.median(np.abs(turns)))
    count = np.rint(turns / period) if period else turns
    if period == 0 or not count.any():
        return
    period = float(turns @ count / (count @ count))
    if np.abs(turns - count * period).max() > 0.05 * period or np.any(count == 0):
        return
    high = max(float(each.found.max()) for each in samples)
    low = min(float(each.found.min()) for each in samples)
    # Where it turns is known to the values nearest to it only: half way between the ends of both sides.
    start = (low + high) / 2 - period / 2
    yield (
        message("diagnosis.way_wrapped", period=period),
        lambda each: each.right - period * np.floor((each.right - start) / period),
    )


def _rounded(samples: Sequence[ResultSample]) -> Iterator[tuple[Message, Result]]:
    found = np.concatenate([each.found.ravel() for each in samples])
    right = np.concatenate([each.right.ravel() for each in samples])
    step = grid_step(found)
    if step is not None and grid_step(right) is None:
        low, high = float(found.min()), float(found.max())
        text = message("diagnosis.way_rounded_step", levels=round((high - low) / step) + 1)
        yield text, lambda each: np.clip(np.rint((each.right - low) / step) * step + low, low, high)
    kind = kind_of(found)
    if kind in ("float16", "bfloat16") and kind_of(right) != kind:
        yield message("diagnosis.way_rounded_kind", kind=kind), lambda each: rounded_to(each.right, kind)


def _weighted(samples: Sequence[ResultSample]) -> Iterator[tuple[Message, Result]]:
    """Operands of a sum with other factors: each has a scale of its own on an integer device."""
    operands = samples[0].operands
    if len(operands) != 2 or any(each.shape != samples[0].right.shape for each in operands):
        return
    design = np.stack([np.concatenate([each.operands[at].ravel() for each in samples]) for at in (0, 1)], axis=1)
    wanted = np.concatenate([each.found.ravel() for each in samples])
    solved = np.linalg.lstsq(design.astype(np.float64), wanted.astype(np.float64), rcond=None)[0]
    first, second = (float(each) for each in solved)
    text = message("diagnosis.way_weighted_sum", first=first, second=second)
    yield text, lambda each: (first * each.operands[0] + second * each.operands[1]).astype(np.float32)


def _rows(values: Array, axis: int) -> Array:
    return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1).astype(np.float64)


def _other_channels(samples: Sequence[ResultSample]) -> Iterator[tuple[Message, Result]]:
    """Some channels hold what belongs to others; these need not be exchanged."""
    shape = samples[0].right.shape
    for axis in (1, len(shape) - 1) if len(shape) > 2 else range(1, len(shape)):
        if not 2 <= shape[axis] <= _MOST_CHANNELS or any(each.right.shape != shape for each in samples):
            continue
        x = np.concatenate([_rows(each.right, axis) for each in samples], axis=1)
        y = np.concatenate([_rows(each.found, axis) for each in samples], axis=1)
        if x.shape[1] < _LEAST_AT_LIMIT:
            continue
        distance = np.square(x).sum(1)[None] + np.square(y).sum(1)[:, None] - 2 * y @ x.T
        own = np.arange(shape[axis])
        order = np.where(distance.min(axis=1) < 0.5 * distance[own, own], np.argmin(distance, axis=1), own)
        wrong = np.flatnonzero(order != own)
        if wrong.size:
            first = int(wrong[0])
            text = message(
                "diagnosis.way_other_channels",
                count=int(wrong.size),
                all=int(own.size),
                axis=axis,
                first=first,
                other=int(order[first]),
            )
            yield text, _taker(order, axis)


def _taker(order: Array, axis: int) -> Result:
    return lambda each: np.take(each.right, order, axis=axis)


def _tiles(samples: Sequence[ResultSample]) -> Iterator[tuple[Message, Result]]:
    """A box of the tensor, the same in all samples, that is zero, old or moved."""
    shape = samples[0].right.shape
    if len(shape) < 2 or any(each.right.shape != shape for each in samples):
        return
    off = np.any([each.off for each in samples], axis=0)
    if not off.any():
        return
    ends = [(int(hit.min()), int(hit.max()) + 1) for hit in np.nonzero(off)]
    if np.prod([last - first for first, last in ends]) > _LARGEST * off.size:
        ends = [(0, size) for size in shape]
    box = tuple(slice(*each) for each in ends)
    place = message("diagnosis.way_tile", where=", ".join(f"{first}:{last}" for first, last in ends))
    # What should be the same in all samples is neither frozen nor old.
    varies = any(not np.array_equal(each.right[box], samples[0].right[box]) for each in samples[1:])
    values = np.unique(np.concatenate([each.found[box].ravel() for each in samples]))
    if len(values) == 1 and values[0] == 0:
        yield message("diagnosis.way_tile_zero", place=place), _filler(box, 0.0)
    elif len(values) == 1:
        told = message("diagnosis.way_tile_value", place=place, value=float(values[0]))
        yield told, _filler(box, float(values[0]))
    if varies and all(np.array_equal(each.found[box], samples[0].found[box]) for each in samples[1:]):
        yield message("diagnosis.way_tile_frozen", place=place), _filler(box, samples[0].found[box])
    # What was left there is what the tile should have been in the sample before, or what it was.
    for which in (0, 1) if any(each.before for each in samples) else ():
        yield message("diagnosis.way_tile_stale", place=place), _stale(box, which)
    for axis, (first, last) in enumerate(ends[1:], start=1):
        size = last - first
        steps = {*range(1, 9), size // 2, 16, 32}
        for by in sorted((each for step in steps if 0 < step < size for each in (step, -step)), key=abs):
            told = message("diagnosis.way_tile_moved", place=place, by=by, axis=axis)
            yield told, _roller(box, by, axis)


def _filler(box: tuple[slice, ...], value: float | Array) -> Result:
    def made(each: ResultSample) -> Array:
        result = np.array(each.right)
        result[box] = value
        return result

    return made


def _stale(box: tuple[slice, ...], which: int) -> Result:
    def made(each: ResultSample) -> Array:
        result = np.array(each.right)
        if each.before:
            result[box] = each.before[which][box]
        return result

    return made


def _roller(box: tuple[slice, ...], by: int, axis: int) -> Result:
    def made(each: ResultSample) -> Array:
        result = np.array(each.right)
        result[box] = np.roll(each.right[box], by, axis)
        return result

    return made


def _moved(samples: Sequence[ResultSample]) -> Iterator[tuple[Message, Result]]:
    """Pictures some pixels away, with zero or the edge where nothing moves in."""
    shape = samples[0].right.shape
    if len(shape) != 4 or min(shape[2:]) <= 2 * _FARTHEST:
        return
    for down in range(-_FARTHEST, _FARTHEST + 1):
        for right in range(-_FARTHEST, _FARTHEST + 1):
            if (down, right) != (0, 0):
                for edge in (False, True):
                    text = message(f"diagnosis.way_moved{'_edge' if edge else ''}", down=down, right=right)
                    yield text, _mover(down, right, edge=edge)


def _mover(down: int, right: int, *, edge: bool) -> Result:
    def made(each: ResultSample) -> Array:
        rows, columns = (np.arange(size) for size in each.right.shape[2:])
        from_rows, from_columns = rows - down, columns - right
        result = each.right[:, :, from_rows.clip(0, rows[-1])][..., from_columns.clip(0, columns[-1])]
        if edge:
            return result
        inside = (from_rows >= 0) & (from_rows <= rows[-1])
        across = (from_columns >= 0) & (from_columns <= columns[-1])
        return np.where(inside[:, None] & across, result, 0).astype(result.dtype)

    return made
