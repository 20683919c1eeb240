"""What every rule of the backward graph promises: the gradient that onnxruntime's own differences give."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import helper, numpy_helper
from onnx.helper import np_dtype_to_tensor_dtype

from roundoff.core.tensors import Array, DType
from roundoff.graph.backward.builder import BackwardGraph, backward_graph
from roundoff.graph.build import make_model
from roundoff.graph.load import Model

__all__ = ["check_rule", "distinct", "in_memory", "node_model", "open_raw"]

# The distance at which differences are taken, and what may come of bends in between and of rounding.
_STEPS = {"float64": (1e-5, 1e-6), "float32": (1e-2, 2e-3)}
_MOST_ELEMENTS = 24


def in_memory(proto: Any) -> Model:
    """A model that is in no file."""
    return Model(proto, Path("test.onnx"), 0)


def open_raw(proto: Any) -> Any:
    """A session on one thread, without a word on stderr."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def distinct(shape: Sequence[int], *, seed: int = 0, low: float = -2, high: float = 2) -> Array:
    """Values that all differ, in random order, evenly spaced between two bounds; none of them is zero."""
    count = int(np.prod(shape, dtype=np.int64))
    values = low + (high - low) * (np.arange(count) + 0.37) / max(count, 1)
    return np.random.default_rng(seed).permutation(values).reshape(tuple(shape))


def node_model(
    op_type: str, inputs: Sequence[Array | None], *, dtype: DType, opset: int, outputs: int, attributes: Any
) -> Any:
    """A model of one node: float64 arrays are inputs x0, x1 ..., others constants; outputs are y0, y1 ..."""
    names = [f"x{index}" if array is not None else "" for index, array in enumerate(inputs)]
    results = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(op_type, names, results, name="node", **attributes)
    given, held = [], []
    for name, array in zip(names, inputs, strict=True):
        if array is None:
            continue
        if array.dtype == np.float64:
            given.append(helper.make_tensor_value_info(name, np_dtype_to_tensor_dtype(dtype), array.shape))
        else:
            held.append(numpy_helper.from_array(array, name))
    described = [helper.make_tensor_value_info(name, np_dtype_to_tensor_dtype(dtype), None) for name in results]
    return make_model(helper.make_graph([node], "test", given, described, held), opset=opset)


def check_rule(op_type: str, *inputs: Array | None, **attributes: Any) -> BackwardGraph:
    """Compare the gradients of all float inputs with differences of onnxruntime's results.

    Args:
        op_type: The operation.
        inputs: float64 arrays are inputs, whose gradients are compared; others are constants.
        attributes: Those of the node, and any of the following. ``opset``: version of the standard operators.
            ``outputs``: how many outputs the node has. ``only``: positions of the inputs to look at.
            ``precise``: compute in float64 where the runtime can, so that differences say more.
    """
    opset, outputs = attributes.pop("opset", 17), attributes.pop("outputs", 1)
    only, precise = attributes.pop("only", ()), attributes.pop("precise", True)
    for dtype in (np.dtype(np.float64), np.dtype(np.float32))[0 if precise else 1 :]:
        proto = node_model(op_type, inputs, dtype=dtype, opset=opset, outputs=outputs, attributes=attributes)
        feed = {
            f"x{index}": array.astype(dtype)
            for index, array in enumerate(inputs)
            if array is not None and array.dtype == np.float64
        }
        asked = [name for name in feed if not only or int(name[1:]) in only]
        backward = backward_graph(in_memory(proto), asked)
        assert not backward.without_rule
        try:
            sessions = open_raw(proto), open_raw(backward.model.proto)
        except (
            ort.capi.onnxruntime_pybind11_state.NotImplemented,
            ort.capi.onnxruntime_pybind11_state.InvalidGraph,
        ):
            if dtype == np.float32:
                raise
            continue
        _compare(backward, *sessions, feed)
        return backward
    raise AssertionError


def _compare(backward: BackwardGraph, forward: Any, both: Any, feed: dict[str, Array]) -> None:
    rng = np.random.default_rng(1)
    names = [output.name for output in forward.get_outputs()]
    values = forward.run(names, feed)
    vectors = [rng.uniform(0.5, 1.5, value.shape) * rng.choice([-1, 1], value.shape) for value in values]
    dtype = next(iter(feed.values())).dtype
    seeds = {backward.seeds[name]: np.asarray(vector, dtype) for name, vector in zip(names, vectors, strict=True)}
    step, tolerance = _STEPS[dtype.name]

    def score(changed: dict[str, Array]) -> float:
        results = forward.run(names, changed)
        return float(
            sum((result.astype(np.float64) * v).sum() for result, v in zip(results, vectors, strict=True))
        )

    for place, output in backward.gradients.items():
        assert isinstance(place, str)
        gradient = both.run([output], {**feed, **seeds})[0]
        base = feed[place]
        assert gradient.shape == base.shape
        assert gradient.dtype == dtype
        limit = tolerance * max(1.0, float(np.abs(gradient).max(initial=0)))
        picked = rng.permutation(base.size)[:_MOST_ELEMENTS]
        for element in picked:
            moved = [base.copy(), base.copy()]
            for array, sign in zip(moved, (1, -1), strict=True):
                array.reshape(-1)[element] += sign * step
            high, low = (array.reshape(-1)[element].astype(np.float64) for array in moved)
            slope = (score({**feed, place: moved[0]}) - score({**feed, place: moved[1]})) / (high - low)
            assert abs(slope - gradient.reshape(-1)[element]) <= limit, (place, element)
