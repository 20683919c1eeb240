"""How the channels of weights and activations differ, and whether one scale can serve them all."""

from roundoff.analysis.channels.describe import ChannelSettings, describe_channels

__all__ = ["ChannelSettings", "describe_channels"]
