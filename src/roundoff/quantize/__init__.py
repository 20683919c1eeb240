"""Quantizing: planning against a target, calibration, quantized models."""

from roundoff.core.callable_module import make_callable

make_callable(__name__)
