"""Metrics, words, causes, nodes and findings in one plain paragraph each."""

from roundoff.report.explaining.explain import explain

__all__ = ["explain"]
