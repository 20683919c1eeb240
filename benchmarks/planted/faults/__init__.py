"""Faults by name; every module here declares some."""

from benchmarks.planted.faults import accumulation, calibration, channels, constants, ranges
from benchmarks.planted.faults.registry import FAULTS, Fault, fault

__all__ = ["FAULTS", "Fault", "fault"]

_DECLARED_IN = (accumulation, calibration, channels, constants, ranges)
