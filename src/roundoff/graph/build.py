"""Making ONNX models: the one place that decides which versions they declare."""

from collections.abc import Mapping
from typing import Any

__all__ = ["make_model"]

# Every onnxruntime roundoff supports runs these; what the newest onnx writes by default, it may refuse.
DEFAULT_OPSET = 17
DEFAULT_IR_VERSION = 8


def make_model(
    graph: Any,
    *,
    opset: int = DEFAULT_OPSET,
    ir_version: int = DEFAULT_IR_VERSION,
    domains: Mapping[str, int] | None = None,
) -> Any:
    """Wrap an `onnx.GraphProto` into an `onnx.ModelProto` with explicit versions.

    Args:
        graph: The graph.
        opset: Version of the standard operators.
        ir_version: Version of the file format.
        domains: Versions of further operator domains the graph uses, e.g. ``{"com.microsoft": 1}``.
    """
    from onnx import ModelProto
    from onnx.helper import make_opsetid

    model = ModelProto()
    model.ir_version = ir_version
    model.producer_name = "roundoff"
    model.graph.CopyFrom(graph)
    versions = {"": opset, **(domains or {})}
    model.opset_import.extend(make_opsetid(domain, version) for domain, version in versions.items())
    return model
