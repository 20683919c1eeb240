"""Whether the device was fed what the float model is fed."""

import numpy as np

from roundoff.core.quantization import fake_quantize
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.bench import Bench, Pair
from roundoff.diagnosis.devices.expecting import Expected
from roundoff.diagnosis.devices.local_errors import LocalError
from roundoff.diagnosis.devices.numbers import grid_step
from roundoff.diagnosis.devices.suspects import DeviceSuspect

__all__ = ["input_suspects"]

_HELD = 6
# Inputs that are not coded may differ by the rounding of half precision.
_ROUNDED = 2.0**-10
_ONE_STEP = 1.02


def input_suspects(bench: Bench) -> list[DeviceSuspect]:
    """Inputs that the device wrote and that are not the user's samples."""
    found = []
    for name in bench.inputs:
        expected = _expected(bench, name)
        error, pairs = LocalError(), []
        for sample in bench.indices:
            pair = Pair(bench.readout.read(name, sample), _coded(bench, name, sample), expected)
            error.add(pair.exact, pair.found, expected)
            pairs.append(pair)
        if error.is_suspect():
            nodes = tuple(node.name for node in bench.model.proto.graph.node if name in node.input)
            places = bench.indices[:_HELD]
            found.append(DeviceSuspect(name, nodes, error, "flows on", tuple(pairs[:_HELD]), places))
    return found


def _coded(bench: Bench, name: str, sample: int) -> Array:
    """The user's input as the device should hold it."""
    wanted = np.asarray(bench.feed(sample)[name]).astype(np.float32)
    quantizer = bench.golden.coded.get(name)
    return wanted if quantizer is None else fake_quantize(wanted, quantizer.params, quantizer.spec)


def _expected(bench: Bench, name: str) -> Expected:
    quantizer = bench.golden.coded.get(name)
    if quantizer is not None:
        scale = float(quantizer.params.scale.max())
        return Expected(np.asarray(_ONE_STEP * scale), scale**2 / 12)
    wanted = np.concatenate([np.ravel(bench.feed(sample)[name]) for sample in bench.indices])
    had = np.concatenate([bench.readout.read(name, sample).ravel() for sample in bench.indices])
    # A device that computes with integers has its inputs in 8 bits, whether their grid can be seen or not.
    step = max(grid_step(had) or 0.0, 2 * float(np.ptp(wanted)) / 255)
    tolerance = max(_ONE_STEP * step, _ROUNDED * float(np.abs(wanted).max(initial=0.0)))
    return Expected(np.asarray(tolerance), max(tolerance**2 / 12, float(np.finfo(np.float32).tiny)))
