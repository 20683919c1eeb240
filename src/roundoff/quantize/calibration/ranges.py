"""From what is known of elements to the range that codes should cover."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from roundoff.core.quantizers import QuantSpec
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.measure.metrics import ratio_db
from roundoff.quantize.calibration.density import levels_of
from roundoff.quantize.calibration.distribution import Distribution, Levels, Points, split_pieces, split_points
from roundoff.quantize.calibration.observer import MOST_ELEMENTS, Observation, Observer
from roundoff.quantize.calibration.registry import Method, Options, get_method, options_of

__all__ = ["RangeError", "distributions", "observed_range", "range_error", "weight_range"]


def observed_range(
    observation: Observation, spec: QuantSpec, method: str, options: Options | None = None
) -> tuple[Array, Array]:
    """Smallest and largest value that codes should cover.

    Args:
        observation: What was observed.
        spec: How values become codes; with an axis each channel has a range of its own.
        method: Name of the calibration method.
        options: Its options by name; those of other methods are allowed.

    Returns:
        Two float64 arrays, of shape [] or [C], for `roundoff.core.quantizers.parameters_from_range`.

    Raises:
        BadInput: There is no such method or option, or not enough was observed for it.
    """
    chosen = get_method(method)
    known = options_of(chosen, options)
    parts = [chosen.compute(part, spec, known) for part in _parts(_rows_for(observation, spec), chosen)]
    shape = () if spec.axis is None else (-1,)
    low, high = (np.concatenate([np.empty(0), *(part[end] for part in parts)]).reshape(shape) for end in (0, 1))
    return low, high


def weight_range(
    values: Array, spec: QuantSpec, method: str, options: Options | None = None
) -> tuple[Array, Array]:
    """Smallest and largest value that codes of a constant should cover.

    Args:
        values: The constant; of any shape, with ``spec.axis`` where each slice has a range of its own.
        spec: How values become codes.
        method: Name of the calibration method.
        options: Its options by name; those of other methods are allowed.

    Returns:
        As `observed_range`.
    """
    if spec.axis is None:
        return observed_range(_watched(values, None), spec, method, options)
    slices = np.moveaxis(values, spec.axis, 0)
    rows = slices.reshape(len(slices), math.prod(slices.shape[1:]))
    # Slices few enough that all their elements are kept; a slice too large for that has a fine histogram alone.
    at_once = MOST_ELEMENTS // max(1, rows.shape[1])
    if at_once == 0:
        whole = spec.along(None)
        parts = [observed_range(_watched(row, None), whole, method, options) for row in rows]
        return np.stack([part[0] for part in parts]), np.stack([part[1] for part in parts])
    groups = [rows[start : start + at_once] for start in range(0, max(1, len(rows)), at_once)]
    parts = [observed_range(_watched(group, 0), spec.along(0), method, options) for group in groups]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


@dataclass(frozen=True, slots=True)
class RangeError:
    """What a range costs, estimated from what was observed.

    Attributes:
        mse: Mean squared error of quantizing and back.
        sqnr_db: Mean square of the elements over it, in decibels; infinite when there is no error.
        clipped: Share of elements beyond the outermost codes.
    """

    mse: float
    sqnr_db: float
    clipped: float


def range_error(observation: Observation, spec: QuantSpec, low: Array, high: Array) -> RangeError:
    """Judge a range by the elements that were observed.

    Raises:
        BadInput: Only the range of the elements is known.
    """
    lows, highs = np.reshape(low, (-1, 1)), np.reshape(high, (-1, 1))
    sums = np.zeros(4)
    start = 0
    for part in _parts(_rows_for(observation, spec), get_method("mse")):
        rows = slice(start, start + part.low.size)
        sums += _sums(part, levels_of(lows[rows], highs[rows], spec))
        start = rows.stop
    error, power, clipped, total = sums.tolist()
    return RangeError(
        mse=error / max(1.0, total),
        sqnr_db=ratio_db(power, max(0.0, error)),
        clipped=clipped / max(1.0, total),
    )


def _sums(part: Distribution, levels: Levels) -> Array:
    """Squared errors, squares, clipped elements and all elements, over all rows."""
    zero = np.zeros_like(levels.step)
    squares = part.squared_error(Levels(zero + 1, zero, zero))
    errors = part.squared_error(levels)
    # Beyond half a step from the outermost levels.
    half = 0.0 if levels.floor else 0.5
    below, above = (levels.first - half) * levels.step, (levels.last + 1 - half) * levels.step
    clipped = part.beyond(below[:, 0], above[:, 0])
    return np.array(
        [np.sum(part.total * errors[:, 0]), np.sum(part.total * squares[:, 0]), clipped.sum(), part.total.sum()]
    )


def _rows_for(observation: Observation, spec: QuantSpec) -> Observation:
    """What was observed, with channels told apart exactly when the quantizer does."""
    if spec.axis is None:
        return observation.without_channels()
    if observation.axis is None or spec.axis not in (observation.axis, observation.axis - observation.rank):
        seen = "as a whole" if observation.axis is None else f"by channels of axis {observation.axis}"
        raise BadInput(
            f"A scale for each channel of axis {spec.axis} was asked for a tensor that was observed {seen}.",
            fix="calibrate again for this plan",
        )
    return observation


def _watched(values: Array, axis: int | None) -> Observation:
    observer = Observer(axis)
    observer.add(values)
    return observer.observation()


def _parts(observation: Observation, chosen: Method) -> Iterator[Distribution]:
    if chosen.needs == "range":
        ends = np.stack([observation.low, observation.high], axis=1)
        yield Points(np.where(np.isfinite(ends), ends, np.nan))
        return
    if not observation.has_distribution:
        raise BadInput(
            f"The method {chosen.name!r} needs the distribution of values, but only their range was observed.",
            fix="calibrate again with this method, or take the method 'minmax'",
        )
    yield from distributions(observation)


def distributions(observation: Observation) -> Iterator[Distribution]:
    """The distribution of what was observed, some rows at a time, in order."""
    if observation.elements is not None:
        yield from split_points(observation.elements)
    elif observation.histogram is not None:
        yield from split_pieces(observation.histogram, observation.low, observation.high)
