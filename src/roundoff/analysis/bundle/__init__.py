"""A case to hand on: the fewest samples that show a fault, and the same fault without any secret."""

from roundoff.analysis.bundle.case import Case, CaseSamples, choose_samples, measure, same_fault
from roundoff.analysis.bundle.confidential import Disguise, Disguised, disguised

__all__ = [
    "Case",
    "CaseSamples",
    "Disguise",
    "Disguised",
    "choose_samples",
    "disguised",
    "measure",
    "same_fault",
]
