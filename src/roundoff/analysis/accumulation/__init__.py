"""How error grows along a network: curves of the networks between float and fully quantized."""

from roundoff.analysis.accumulation.accumulate import AccumulationSettings, accumulate

__all__ = ["AccumulationSettings", "accumulate"]
