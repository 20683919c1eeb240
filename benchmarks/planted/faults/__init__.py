"""Faults by name; every module here declares some."""

from benchmarks.planted.faults import (
    accumulation,
    arithmetics,
    calibration,
    channels,
    constants,
    dumping,
    kernels,
    operations,
    pairs,
    ranges,
)
from benchmarks.planted.faults.registry import FAULTS, Fault, fault

__all__ = ["FAULTS", "Fault", "fault"]

_DECLARED_IN = (
    ranges,
    channels,
    constants,
    calibration,
    accumulation,
    kernels,
    operations,
    arithmetics,
    dumping,
    pairs,
)
