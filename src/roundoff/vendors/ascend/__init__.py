"""Ascend's accuracy comparison: its flags, files, values and messages, on any machine."""
