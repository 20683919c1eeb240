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


def input_suspects(bench: Bench) -> list[DeviceSuspect]:
    """Inputs that the device wrote and that are not the user's samples."""
    found = []
    for name in bench.inputs:
        error, pairs = LocalError(), []
        for sample in bench.indices:
            pair = _pair(bench, name, sample)
            error.add(pair.exact, pair.found, pair.expected)
            if len(pairs) < _HELD:
                pairs.append(pair)
        if error.is_suspect():
            nodes = tuple(node.name for node in bench.model.proto.graph.node if name in node.input)
            places = bench.indices[: len(pairs)]
            found.append(DeviceSuspect(name, nodes, error, "flows on", tuple(pairs), places))
    return found


def _pair(bench: Bench, name: str, sample: int) -> Pair:
    wanted: Array = np.asarray(bench.feed(sample)[name])
    had = bench.readout.read(name, sample)
    quantizer = bench.golden.coded.get(name)
    if quantizer is not None:
        scale = float(quantizer.params.scale.max())
        coded = fake_quantize(wanted.astype(np.float32), quantizer.params, quantizer.spec)
        return Pair(had, coded, Expected(np.asarray(1.02 * scale), scale**2 / 12))
    size = float(np.abs(wanted).max(initial=0.0))
    # A device that computes with integers has its inputs in 8 bits, whether their grid can be seen or not.
    step = max(grid_step(had) or 0.0, float(np.ptp(wanted)) / 255)
    tolerance = max(1.02 * step, _ROUNDED * size)
    return Pair(had, wanted.astype(np.float32), Expected(np.asarray(tolerance), max(tolerance**2 / 12, 1e-30)))
