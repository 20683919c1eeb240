"""What a search measures candidates by: labels, agreement with float, or a function of the user's."""

from roundoff.search.judges.judge import Judge
from roundoff.search.judges.loading import JudgeOptions, make_judge

__all__ = ["Judge", "JudgeOptions", "make_judge"]
