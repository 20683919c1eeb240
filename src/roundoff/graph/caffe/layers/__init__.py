"""The layers of Caffe as ONNX, one family in a file; importing it declares them all."""

from roundoff.graph.caffe.layers import (
    arithmetic,
    convolution,
    detection,
    normalization,
    pooling,
    quantization,
    shaping,
)
from roundoff.graph.caffe.layers import (
    arithmetic as activations,
)
from roundoff.graph.caffe.layers import (
    convolution as product,
)
from roundoff.graph.caffe.layers import (
    detection as detection_output,
)
from roundoff.graph.caffe.layers import (
    pooling as resizing,
)
from roundoff.graph.caffe.layers import (
    shaping as merging,
)
from roundoff.graph.caffe.layers import (
    shaping as reduction,
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
