"""Gain and offset of an input that nobody dumped, from what was computed of it."""

from collections.abc import Callable

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["fitted_input"]

_STARTS = (1.0, 0.3, 3.0)
_ROUNDS = 6
# By so much gain and offset are changed to see what comes of it: more than a step of 8 bits.
_NUDGE = 0.05
# A round that takes away less than this part of what is left is the last one.
_WORTH = 0.01


def fitted_input(compute: Callable[[Array], Array], given: Array, found: Array) -> tuple[float, float] | None:
    """The gain and offset with which an input gives what was found, by least squares.

    Args:
        compute: What is computed of an input.
        given: The input as it should be.
        found: What was computed of the one that was there.

    Returns:
        None where the input has one value only, or something is not finite.
    """
    spread = float(given.std())
    if spread == 0 or not np.isfinite(found).all():
        return None

    def made(at: Array) -> Array:
        return compute((given * at[0] + at[1] * spread).astype(given.dtype)).astype(np.float64).ravel()

    wanted = found.astype(np.float64).ravel()
    best, place = np.inf, np.array([1.0, 0.0])
    for start in _STARTS:
        error, at = _descended(made, wanted, np.array([start, 0.0]))
        if error < best:
            best, place = error, at
    return (float(place[0]), float(place[1] * spread)) if np.isfinite(best) else None


def _descended(made: Callable[[Array], Array], wanted: Array, at: Array) -> tuple[float, Array]:
    """The nearest place at which the error is smallest, by Gauss's and Newton's way."""
    now = made(at)
    error = float(np.square(wanted - now).sum())
    for _ in range(_ROUNDS):
        slopes = np.stack([(made(at + step) - now) / _NUDGE for step in np.eye(2) * _NUDGE], axis=1)
        if not np.isfinite(slopes).all() or not np.isfinite(error):
            return np.inf, at
        there = at + np.linalg.lstsq(slopes, wanted - now, rcond=None)[0]
        then = made(there)
        rest = float(np.square(wanted - then).sum())
        if not rest < error * (1 - _WORTH):
            break
        at, now, error = there, then, rest
    return error, at
