"""Does the deployed side feed the model what training did, and if not, what did it do instead?"""

from roundoff.analysis.io_check.checking import CheckSettings, StageValues, check_io
from roundoff.analysis.io_check.explaining import explain_difference
from roundoff.preprocessing.conventions import MeanStd

__all__ = ["CheckSettings", "MeanStd", "StageValues", "check_io", "explain_difference"]
