"""The exact-integer simulator: what a quantized network computes on integer hardware."""

from roundoff.run.integer.report import FloatNode, IntegerReport, Overflow
from roundoff.run.integer.runner import IntegerRun, IntegerRunner, IntegerSource

__all__ = ["FloatNode", "IntegerReport", "IntegerRun", "IntegerRunner", "IntegerSource", "Overflow"]
