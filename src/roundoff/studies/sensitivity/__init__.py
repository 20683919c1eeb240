"""Which parts of a network hurt: each is quantized alone, or alone left in float, and the outputs are compared."""

from roundoff.studies.sensitivity.study import analyze_sensitivity, whole_sensitivity
from roundoff.studies.sensitivity.subjects import SensitivitySettings, find_subjects

__all__ = ["SensitivitySettings", "analyze_sensitivity", "find_subjects", "whole_sensitivity"]
