"""The exact-integer simulator: what a quantized network computes on integer hardware."""

from roundoff.runtime.integer.report import FloatNode, IntegerReport, Overflow
from roundoff.runtime.integer.runner import IntegerRun, IntegerRunner
from roundoff.runtime.integer.source import IntegerSource

__all__ = ["FloatNode", "IntegerReport", "IntegerRun", "IntegerRunner", "IntegerSource", "Overflow"]
