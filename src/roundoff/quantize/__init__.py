"""Quantizing: planning against a target, calibration, quantized models."""
