"""Metrics: one family per file; each metric is a small function of the moments of a pair."""

# Importing a family registers its metrics; the order here is the order of the tables.
from roundoff.measure import metrics as error, metrics as relative, metrics as shape, metrics as similarity  # noqa: I001
from roundoff.measure.metrics import all_metrics, Direction, get_metric, Metric, metric
from roundoff.measure.metrics import score

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
