"""Calibration: what is observed of tensors, and the methods that turn it into ranges.

To add a method, write a function of a distribution in a file of its own, register it and import it below.
"""

# Importing a method registers it; the order here is the order of the tables.
from roundoff.quantize.calibration import minmax, percentile, mse, entropy, ifmr, hfmg  # noqa: I001
from roundoff.quantize.calibration.calibration import Calibration
from roundoff.quantize.calibration.comparison import compare_methods, MethodResult
from roundoff.quantize.calibration.files import load_calibration, save_calibration
from roundoff.quantize.calibration.observer import Observation, Observer
from roundoff.quantize.calibration.ranges import observed_range, range_error, RangeError, weight_range
from roundoff.quantize.calibration.registry import (
    all_methods,
    Detail,
    get_method,
    Method,
    Option,
    Options,
    options_of,
)
from roundoff.quantize.calibration.run import calibrate

__all__ = [
    "Calibration",
    "Detail",
    "Method",
    "MethodResult",
    "Observation",
    "Observer",
    "Option",
    "Options",
    "RangeError",
    "all_methods",
    "calibrate",
    "compare_methods",
    "entropy",
    "get_method",
    "hfmg",
    "ifmr",
    "load_calibration",
    "minmax",
    "mse",
    "observed_range",
    "options_of",
    "percentile",
    "range_error",
    "save_calibration",
    "weight_range",
]
