"""What it brings to leave the worst of a network in float, or to raise it to 16 bits."""

from roundoff.analysis.partial.settings import PartialSettings
from roundoff.analysis.partial.subjects import named_subjects, ranked_subjects
from roundoff.analysis.partial.sweep import sweep

__all__ = ["PartialSettings", "named_subjects", "ranked_subjects", "sweep"]
