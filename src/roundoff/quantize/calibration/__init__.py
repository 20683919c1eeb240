"""Calibration: what is observed of tensors, and the methods that turn it into ranges.

To add a method, write a function of a distribution in `methods.py` and register it there.
"""
