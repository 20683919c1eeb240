"""Quantizing: planning against a target, calibration, quantized models."""

from roundoff.core import make_callable

__all__ = ()

make_callable(__name__)
