"""The rules that come with roundoff, one family of operations per module; importing them registers them."""

from roundoff.graph.backward.rules import (
    activations,
    arithmetic,
    convolution,
    indexing,
    normalization,
    pooling,
    products,
    reduction,
    resizing,
    shaping,
)

__all__ = [
    "activations",
    "arithmetic",
    "convolution",
    "indexing",
    "normalization",
    "pooling",
    "products",
    "reduction",
    "resizing",
    "shaping",
]
