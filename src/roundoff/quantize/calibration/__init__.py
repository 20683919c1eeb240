"""Calibration: what is observed of tensors, and the methods that turn it into ranges.

To add a method, write a function of a distribution in `methods.py` and register it there.
"""

from roundoff.quantize.calibration.calibration import (
    Calibration,
    MethodResult,
    RangeError,
    calibrate,
    compare_methods,
    observed_range,
    range_error,
    weight_range,
)
from roundoff.quantize.calibration.files import load_calibration, save_calibration
from roundoff.quantize.calibration.methods import (
    Detail,
    Method,
    MethodOption,
    Options,
    all_methods,
    get_method,
    options_of,
)
from roundoff.quantize.calibration.observer import Observation, Observer

__all__ = [
    "Calibration",
    "Detail",
    "Method",
    "MethodOption",
    "MethodResult",
    "Observation",
    "Observer",
    "Options",
    "RangeError",
    "all_methods",
    "calibrate",
    "compare_methods",
    "get_method",
    "load_calibration",
    "observed_range",
    "options_of",
    "range_error",
    "save_calibration",
    "weight_range",
]
