"""Quantizing: planning against a target, calibration, quantized models."""

from roundoff.core.callable_module import make_callable

__all__ = ()

make_callable(__name__)
