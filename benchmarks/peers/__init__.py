"""Beside other tools: the same models and data, in one run."""
