"""The vendor's limits, from the profile that `roundoff compare --profile ascend` uses, too."""

import functools

from roundoff.metrics.thresholds import load_profile

__all__ = ["farthest", "least_cosine", "other_limits"]

_OTHERS = {
    "KullbackLeiblerDivergence": "kl_divergence",
    "RootMeanSquareError": "rmse",
    "MeanRelativeError": "mean_relative_error",
}


def least_cosine() -> float:
    """The least cosine similarity of a tensor that counts as right."""
    return _limits()["cosine"]


def farthest() -> float:
    """The largest relative Euclidean distance of a tensor that counts as right."""
    return _limits()["relative_euclidean"]


def other_limits() -> dict[str, float]:
    """The largest values of further algorithms; they depend on scale, or on few small values, and so only hint."""
    return {algorithm: _limits()[metric] for algorithm, metric in _OTHERS.items()}


@functools.cache
def _limits() -> dict[str, float]:
    return {threshold.metric: threshold.limit for threshold in load_profile("ascend").thresholds}
