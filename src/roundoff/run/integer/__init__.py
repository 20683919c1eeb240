"""The exact-integer simulator: what a quantized network computes on integer hardware."""

from roundoff.run.integer.results import AccumulatorOverflow, FloatNode, IntegerReport
from roundoff.run.integer.runner import IntegerRun, IntegerRunner, IntegerSource

__all__ = ["AccumulatorOverflow", "FloatNode", "IntegerReport", "IntegerRun", "IntegerRunner", "IntegerSource"]
