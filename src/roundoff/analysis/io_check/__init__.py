"""Does the deployed side feed the model what training did, and if not, what did it do instead?"""

from roundoff.analysis.io_check.explaining import explain_difference

__all__ = ["explain_difference"]
