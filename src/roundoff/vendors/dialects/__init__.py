"""What a quantization decided, in the words of other tools: the settings file each of them reads."""

from roundoff.vendors.dialects.decisions import Decisions, Made, NodeDecision, decisions_of
from roundoff.vendors.dialects.dialect import Dialect, Written
from roundoff.vendors.dialects.registry import DIALECTS, find_dialect, find_dialects

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
