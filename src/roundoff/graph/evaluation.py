"""Computing a few nodes on their own, as onnxruntime would inside of the model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.load import Model

__all__ = ["CannotEvaluate", "evaluate"]

_ONLY_FATAL = 4


class CannotEvaluate(Exception):
    """Some nodes cannot be computed on their own; the message says why."""


def evaluate(
    nodes: Sequence[Any], feeds: Mapping[str, Array], wanted: Sequence[str], *, model: Model
) -> list[Array]:
    """Values of tensors that nodes compute.

    Args:
        nodes: The nodes, in execution order.
        feeds: Values of all they read from elsewhere.
        wanted: The tensors asked for.
        model: Whose versions of operators count.

    Raises:
        CannotEvaluate: onnxruntime cannot compute them, or they are not tensors that numpy can hold.
    """
    from onnx import ModelProto
    from onnx.helper import make_tensor_value_info, np_dtype_to_tensor_dtype

    if not wanted:
        return []
    proto = ModelProto(ir_version=model.proto.ir_version, opset_import=model.proto.opset_import)
    proto.functions.extend(model.proto.functions)
    proto.graph.name = "constants"
    proto.graph.node.extend(nodes)
    for name, array in feeds.items():
        if array.dtype.kind not in "biufcOUS":
            raise CannotEvaluate(f"values of the type {array.dtype} cannot be fed")
        number = np_dtype_to_tensor_dtype(array.dtype)
        proto.graph.input.append(make_tensor_value_info(name, number, array.shape))
    for name in wanted:
        proto.graph.output.add(name=name)
    results = _run(proto, feeds, wanted)
    if not all(isinstance(result, np.ndarray) for result in results):
        raise CannotEvaluate("their results are not tensors")
    return results


def _run(proto: Any, feeds: Mapping[str, Array], wanted: Sequence[str]) -> list[Any]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = _ONLY_FATAL
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return list(session.run(list(wanted), dict(feeds)))
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise CannotEvaluate(f"onnxruntime cannot compute them ({reason})") from error
