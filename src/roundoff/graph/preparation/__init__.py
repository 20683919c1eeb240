"""Bringing a float model into the form that is quantized, without changing what it computes."""

from roundoff.graph.preparation.steps import Prepared, check_float, prepare

__all__ = ["Prepared", "check_float", "prepare"]
