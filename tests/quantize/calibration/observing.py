"""Observations of arrays, for tests."""

from dataclasses import replace

from roundoff.core.tensors import Array
from roundoff.quantize.calibration.histogram import TENSOR_GRID, Grid, histogram_of
from roundoff.quantize.calibration.observer import Observation, Observer


def observed(*arrays: Array, axis: int | None = None) -> Observation:
    """What is known after seeing some arrays."""
    observer = Observer(axis)
    for array in arrays:
        observer.add(array)
    return observer.observation()


def counted(observation: Observation, grid: Grid = TENSOR_GRID) -> Observation:
    """The same as if there had been too many elements to keep."""
    if observation.elements is None:
        return observation
    return replace(observation, elements=None, histogram=histogram_of(observation.elements, grid))
