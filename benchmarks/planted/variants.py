"""Other ways in which the same dump can come: fewer tensors, channels last, without the quantized model."""

from dataclasses import replace

import numpy as np

from benchmarks.planted.case import Dumps, PlantedCase
from roundoff.core.tensors import Array
from roundoff.graph.interface import outputs

__all__ = ["channels_last", "some_tensors", "varied", "without_quantized"]

# How many of the tensors that nobody needs are left out.
_LEFT_OUT = 0.4


def _dumps(case: PlantedCase) -> Dumps:
    assert case.dumps is not None
    return case.dumps


def some_tensors(case: PlantedCase, rng: np.random.Generator) -> PlantedCase:
    """Only some tensors were dumped; those of the culprits and the outputs are among them."""
    dumps = _dumps(case)
    needed = {name for each in case.truths for name in each.nodes} | set(outputs(case.model)) | set(case.samples)
    kept = {name for name in dumps.samples[0] if name in needed or rng.random() > _LEFT_OUT}
    some = tuple({name: array for name, array in each.items() if name in kept} for each in dumps.samples)
    return replace(case, dumps=replace(dumps, samples=some))


def channels_last(case: PlantedCase) -> PlantedCase:
    """All pictures lie channels last in the dump, as on most chips."""

    def moved(array: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if array.ndim == 4 else array

    dumps = _dumps(case)
    samples = tuple({name: moved(array) for name, array in each.items()} for each in dumps.samples)
    return replace(case, dumps=replace(dumps, samples=samples))


def without_quantized(case: PlantedCase) -> PlantedCase:
    """The user has no quantized model."""
    return replace(case, dumps=replace(_dumps(case), with_quantized=False))


# Faults so gross that they show whatever else is known of the device.
_GROSS = ("kernel-", "swapped-", "stale-", "layout-", "requantized-", "wrong-", "preprocessing-", "fused-")


def varied(case: PlantedCase, rng: np.random.Generator) -> PlantedCase:
    """The case as it is, or in another way; the next seed has another one."""
    if case.dumps is None or not case.fault.startswith(_GROSS):
        return case
    match case.seed % 4:
        case 1:
            return some_tensors(case, rng)
        case 2:
            return without_quantized(case)
        case 3:
            return channels_last(case)
    return case
