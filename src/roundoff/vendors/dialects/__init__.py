"""What a quantization decided, in the words of other tools: the settings file each of them reads."""

from roundoff.vendors.dialects.decisions import Decisions, Made, NodeDecision, decisions_of
from roundoff.vendors.dialects.registry import DIALECTS, find_dialect, find_dialects
from roundoff.vendors.dialects.written import Dialect, Written

__all__ = [
    "DIALECTS",
    "Decisions",
    "Dialect",
    "Made",
    "NodeDecision",
    "Written",
    "decisions_of",
    "find_dialect",
    "find_dialects",
]
