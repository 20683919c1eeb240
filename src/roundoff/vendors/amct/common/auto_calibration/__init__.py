"""Accuracy-based auto-calibration: the classes that users derive from, and the driver."""

from roundoff.vendors.amct.common.auto_calibration.driver import AccuracyBasedAutoCalibrationBase, SearchOptions
from roundoff.vendors.amct.common.auto_calibration.evaluator import AutoCalibrationEvaluatorBase
from roundoff.vendors.amct.common.auto_calibration.outcome import AutoCalibrationResult, Trial
from roundoff.vendors.amct.common.auto_calibration.sensitivity import (
    CosineSimilaritySensitivity,
    MseSensitivity,
    SensitivityBase,
    SqnrSensitivity,
)
from roundoff.vendors.amct.common.auto_calibration.strategy import (
    AutoCalibrationStrategyBase,
    BinarySearchStrategy,
)

__all__ = [
    "AccuracyBasedAutoCalibrationBase",
    "AutoCalibrationEvaluatorBase",
    "AutoCalibrationResult",
    "AutoCalibrationStrategyBase",
    "BinarySearchStrategy",
    "CosineSimilaritySensitivity",
    "MseSensitivity",
    "SearchOptions",
    "SensitivityBase",
    "SqnrSensitivity",
    "Trial",
]
