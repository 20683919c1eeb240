"""Metrics: one family per file; each metric is a small function of the moments of a pair."""

# Importing a family registers its metrics; the order here is the order of the tables.
from roundoff.metrics import similarity, error, relative, shape  # noqa: I001
from roundoff.metrics.registry import Direction, Metric, all_metrics, get_metric, metric
from roundoff.metrics.scoring import score

__all__ = [
    "Direction",
    "Metric",
    "all_metrics",
    "error",
    "get_metric",
    "metric",
    "relative",
    "score",
    "shape",
    "similarity",
]
