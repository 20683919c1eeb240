"""Which parts of a network hurt: each is quantized alone, or alone left in float, and the outputs are compared."""

from roundoff.analysis.sensitivity.analyze import analyze_sensitivity, whole_sensitivity
from roundoff.analysis.sensitivity.settings import SensitivitySettings
from roundoff.analysis.sensitivity.subjects import find_subjects

__all__ = ["SensitivitySettings", "analyze_sensitivity", "find_subjects", "whole_sensitivity"]
