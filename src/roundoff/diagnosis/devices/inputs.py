"""Whether the device was fed what the float model is fed."""

from collections.abc import Callable

import numpy as np

from roundoff.core.quantizers import fake_quantize
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.expectation import Expected
from roundoff.diagnosis.devices.local_errors import LocalError
from roundoff.diagnosis.devices.numbers import grid_step
from roundoff.diagnosis.devices.replay import DeviceReplay, Pair
from roundoff.diagnosis.devices.suspects import DeviceSuspect

__all__ = [
    "fitted_input",
    "input_suspects",
]


_HELD = 6
# Inputs that are not coded may differ by the rounding of half precision.
_ROUNDED = 2.0**-10
_ONE_STEP = 1.02


def input_suspects(replay: DeviceReplay) -> list[DeviceSuspect]:
    """Inputs that the device wrote and that are not the user's samples."""
    found = []
    for name in replay.inputs:
        expected = _expected(replay, name)
        error, pairs = LocalError(), []
        for sample in replay.indices:
            pair = Pair(replay.readout.read(name, sample), _coded(replay, name, sample), expected)
            error.add(pair.exact, pair.found, expected)
            pairs.append(pair)
        if error.is_suspect():
            nodes = tuple(node.name for node in replay.model.proto.graph.node if name in node.input)
            places = replay.indices[:_HELD]
            found.append(DeviceSuspect(name, nodes, error, "flows on", tuple(pairs[:_HELD]), places))
    return found


def _coded(replay: DeviceReplay, name: str, sample: int) -> Array:
    """The user's input as the device should hold it."""
    wanted = np.asarray(replay.feed(sample)[name]).astype(np.float32)
    quantizer = replay.golden.coded.get(name)
    return wanted if quantizer is None else fake_quantize(wanted, quantizer.params, quantizer.spec)


def _expected(replay: DeviceReplay, name: str) -> Expected:
    quantizer = replay.golden.coded.get(name)
    if quantizer is not None:
        scale = float(quantizer.params.scale.max())
        return Expected(np.asarray(_ONE_STEP * scale), scale**2 / 12)
    wanted = np.concatenate([np.ravel(replay.feed(sample)[name]) for sample in replay.indices])
    had = np.concatenate([replay.readout.read(name, sample).ravel() for sample in replay.indices])
    # A device that computes with integers has its inputs in 8 bits, whether their grid can be seen or not.
    step = max(grid_step(had) or 0.0, 2 * float(np.ptp(wanted)) / 255)
    tolerance = max(_ONE_STEP * step, _ROUNDED * float(np.abs(wanted).max(initial=0.0)))
    return Expected(np.asarray(tolerance), max(tolerance**2 / 12, float(np.finfo(np.float32).tiny)))


# Gain and offset of an input that nobody dumped, from what was computed of it.

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
