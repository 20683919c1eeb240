"""The layers of Caffe as ONNX, one family in a file; importing it declares them all."""

from roundoff.graph.caffe.layers import (
    activations,
    arithmetic,
    convolution,
    detection,
    detection_output,
    merging,
    normalization,
    pooling,
    product,
    quantization,
    reduction,
    resizing,
    shaping,
)

__all__ = [
    "activations",
    "arithmetic",
    "convolution",
    "detection",
    "detection_output",
    "merging",
    "normalization",
    "pooling",
    "product",
    "quantization",
    "reduction",
    "resizing",
    "shaping",
]
