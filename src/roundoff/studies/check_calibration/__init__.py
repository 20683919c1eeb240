"""Whether a calibration set is fit for finding ranges: what is wrong with it, and what to do."""

from roundoff.studies.check_calibration.ranges import CalibrationCheckSettings
from roundoff.studies.check_calibration.study import check_calibration

__all__ = ["CalibrationCheckSettings", "check_calibration"]
