"""Comparing two runs."""
