"""What quantization costs each layer of a network: locally, accumulated, and who introduces it."""

from roundoff.analysis.layers.analyze import LayerSettings, analyze_layers

__all__ = ["LayerSettings", "analyze_layers"]
