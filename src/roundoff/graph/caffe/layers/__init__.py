"""The layers of Caffe as ONNX, one family in a file; importing it declares them all."""

from roundoff.graph.caffe.layers import (
    arithmetic,
    convolution,
    detection,
    flow,
    pooling,
    regions,
    shape,
)

__all__ = ["arithmetic", "convolution", "detection", "flow", "pooling", "regions", "shape"]
