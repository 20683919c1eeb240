"""Whether a calibration set is fit for finding ranges: what is wrong with it, and what to do."""

from roundoff.analysis.calibration_check.check import check_calibration
from roundoff.analysis.calibration_check.settings import CheckSettings

__all__ = ["CheckSettings", "check_calibration"]
