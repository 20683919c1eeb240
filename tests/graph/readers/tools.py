"""Quantized models for tests: made by onnxruntime, or node by node."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, quantize_static

from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.graph.insertion import bake_quantizers, insert_quantizers
from roundoff.graph.load import Model, load_model
from roundoff.graph.quantized_model import QuantizedModel
from tests.graph.quantized_nets import run_model
from tests.models import loaded, random_feed, value, weight, wrapped


class _Feeds(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, feeds: Sequence[dict[str, Array]]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> dict[str, Array] | None:
        return next(self._feeds, None)


Net = tuple[Any, dict[str, tuple[int, ...]]]


def quantized_by_onnxruntime(net: Net, folder: Path, *, opset: int | None = None, **options: Any) -> Model:
    """What ``quantize_static`` makes of a model, calibrated on a few random samples."""
    proto, shapes = net
    if opset is not None:
        proto.opset_import[0].version = opset
    onnx.save(proto, folder / "float.onnx")
    # It warns of nodes without preprocessing; on the root logger, which pytest would show.
    logging.disable(logging.WARNING)
    try:
        feeds = _Feeds([random_feed(shapes, seed) for seed in range(3)])
        quantize_static(folder / "float.onnx", folder / "quantized.onnx", feeds, **options)
    except RuntimeError as error:
        if "before packing as 4-bit" not in str(error):
            raise
        pytest.skip(
            f"quantize_static of onnxruntime {onnxruntime.__version__} with onnx {onnx.__version__}: {error}"
        )
    finally:
        logging.disable(logging.NOTSET)
    return load_model(folder / "quantized.onnx")


def attention() -> Net:
    """Self-attention: products with constant weights and of two activations, Softmax, bias, residual."""
    nodes = [
        *(node("MatMul", ["x", f"w{part}"], part) for part in "qkv"),
        node("Transpose", ["k"], "turned", perm=[0, 2, 1]),
        node("MatMul", ["q", "turned"], "scores"),
        node("Mul", ["scores", "factor"], "scaled"),
        node("Softmax", ["scaled"], "share", axis=-1),
        node("MatMul", ["share", "v"], "context"),
        node("MatMul", ["context", "wo"], "projected"),
        node("Add", ["projected", "bo"], "shifted"),
        node("Add", ["x", "shifted"], "residual"),
        node("Sigmoid", ["residual"], "y"),
    ]
    weights = [weight(f"w{part}", 8, 8, seed=seed) for seed, part in enumerate("qkvo")]
    weights += [weight("bo", 8, seed=9), constant("factor", np.float32(0.35))]
    return wrapped(nodes, [value("x", (1, 5, 8))], [value("y", (1, 5, 8))], weights), {"x": (1, 5, 8)}


def node(op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> Any:
    """A node named after what it computes, unless a name is given."""
    attributes.setdefault("name", f"{output}_{op_type}")
    return helper.make_node(op_type, list(inputs), [output], **attributes)


def constant(name: str, values: Any, elem_type: int | None = None) -> Any:
    """An initializer; of a type that numpy lacks when its number is given."""
    array = np.asarray(values)
    if elem_type is None:
        return numpy_helper.from_array(array, name)
    return helper.make_tensor(name, elem_type, array.shape, array.ravel().tolist())


def small(
    folder: Path,
    nodes: Sequence[Any],
    constants: Mapping[str, Any] | Sequence[Any],
    *,
    shape: Sequence[int] = (2, 3),
    **versions: Any,
) -> Model:
    """A model from x to y."""
    held = list(constants) if not isinstance(constants, Mapping) else []
    if isinstance(constants, Mapping):
        held = [constant(name, array) for name, array in constants.items()]
    types = {tensor.name for tensor in held}
    inputs = [value(name, shape) for name in ("x",) if name not in types]
    return loaded(wrapped(nodes, inputs, [value("y")], held, **versions), folder)


def reference(model: Model, feed: Mapping[str, Array]) -> Array:
    """First output of a quantized model, as onnxruntime computes it node by node."""
    return np.asarray(run_model(model, feed)[0])


def read_back(read: QuantizedModel, feed: Mapping[str, Array], *, bake: bool = False) -> Array:
    """First output of what was read, with all quantizers on."""
    put = bake_quantizers if bake else insert_quantizers
    return np.asarray(run_model(put(read.float_model, read.quantizers), feed)[0])


def by_name(read: QuantizedModel) -> dict[str, Quantizer]:
    return {quantizer.name: quantizer for quantizer in read.quantizers}


def edges(quantizer: Quantizer) -> list[tuple[str, int]]:
    return [(consumer.node, consumer.input) for consumer in quantizer.consumers]


def ops(read: QuantizedModel) -> list[str]:
    """Operations of the float model."""
    return [each.op_type for each in read.float_model.proto.graph.node]


FLOAT8 = TensorProto.FLOAT8E4M3FN
