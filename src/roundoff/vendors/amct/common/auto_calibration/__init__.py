"""Accuracy-based auto-calibration: the classes that users derive from, and the driver."""

from roundoff.search.strategies.roll_back import RollBackTrial as Trial
from roundoff.vendors.amct.common.auto_calibration.base_classes import (
    AutoCalibrationEvaluatorBase,
    AutoCalibrationStrategyBase,
    BinarySearchStrategy,
    CosineSimilaritySensitivity,
    MseSensitivity,
    SensitivityBase,
    SqnrSensitivity,
)
from roundoff.vendors.amct.common.auto_calibration.driver import (
    AccuracyBasedAutoCalibrationBase,
    AutoCalibrationResult,
    SearchOptions,
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
