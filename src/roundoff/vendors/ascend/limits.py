"""The vendor's limits, from the profile that `roundoff compare --profile ascend` uses, too."""

import functools

from roundoff.metrics.thresholds import load_profile

__all__ = ["farthest", "least_cosine"]


def least_cosine() -> float:
    """The least cosine similarity of a tensor that counts as right."""
    return _limits()["cosine"]


def farthest() -> float:
    """The largest relative Euclidean distance of a tensor that counts as right."""
    return _limits()["relative_euclidean"]


@functools.cache
def _limits() -> dict[str, float]:
    return {threshold.metric: threshold.limit for threshold in load_profile("ascend").thresholds}
