"""Minimal reproducers: the smallest part of a network that shows a fault by itself, and proof that it does."""

from roundoff.diagnosis.reproducer.case import Reproducer, Spot
from roundoff.diagnosis.reproducer.device import reproduce_device
from roundoff.diagnosis.reproducer.quantized import NotLocal, reproduce_quantized

__all__ = ["NotLocal", "Reproducer", "Spot", "reproduce_device", "reproduce_quantized"]
