"""Does the deployed side feed the model what training did, and if not, what did it do instead?"""

from roundoff.preprocessing.conventions import MeanStd
from roundoff.studies.check_io.explanation import explain_difference
from roundoff.studies.check_io.sides import StageValues
from roundoff.studies.check_io.study import IoCheckSettings, check_io

__all__ = ["IoCheckSettings", "MeanStd", "StageValues", "check_io", "explain_difference"]
