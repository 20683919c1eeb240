"""How the values of weights, activations and node outputs are distributed, and what quantization makes of them."""

from roundoff.analysis.distribution.describe import DistributionSettings, describe_distributions

__all__ = ["DistributionSettings", "describe_distributions"]
