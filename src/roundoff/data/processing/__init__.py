"""Input processing: from what a deployed model receives to what the float model was trained with."""

from roundoff.data.processing.csc import Csc
from roundoff.data.processing.doubts import doubts
from roundoff.data.processing.resizing import Resampling, resized
from roundoff.data.processing.steps import SOURCE_DTYPES, InputProcessing

__all__ = ["SOURCE_DTYPES", "Csc", "InputProcessing", "Resampling", "doubts", "resized"]
