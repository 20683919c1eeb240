"""What single operations do to the channels of what they read."""

from roundoff.quantize.transforms.rules import elementwise, joining, layers, moving, normalizing, pooling

__all__ = ["elementwise", "joining", "layers", "moving", "normalizing", "pooling"]
