"""What a search measures candidates by: labels, agreement with float, or a function of the user's."""

from roundoff.search.judges.judge import Judge
from roundoff.search.judges.loading import JudgeOptions, calibration_in, make_judge, with_evaluator

__all__ = ["Judge", "JudgeOptions", "calibration_in", "make_judge", "with_evaluator"]
