"""Preparing a small model and comparing it with what it was."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from roundoff.core.tensors import Array
from roundoff.graph.load import Model, name_nodes
from roundoff.graph.preparation.steps import Prepared, prepare
from tests.graph.quantized_nets import run_model
from tests.models import random_feed


def in_memory(proto: Any) -> Model:
    """A model as if it had been loaded."""
    name_nodes(proto.graph)
    return Model(proto, Path("net.onnx"), 0)


def constant(name: str, values: Any, dtype: Any = np.float32) -> Any:
    """An initializer."""
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def normalization(source: str, result: str, channels: int, **attributes: Any) -> tuple[Any, list[Any]]:
    """A BatchNormalization named after its result, with random statistics."""
    rng = np.random.default_rng(channels)
    statistics = {
        "scale": rng.uniform(0.5, 2, channels),
        "shift": rng.normal(size=channels),
        "mean": rng.normal(size=channels),
        "variance": rng.uniform(0.1, 3, channels),
    }
    names = [f"{result}_{key}" for key in statistics]
    dtype = attributes.pop("dtype", np.float32)
    node = helper.make_node("BatchNormalization", [source, *names], [result], name=result, **attributes)
    return node, [constant(name, array, dtype) for name, array in zip(names, statistics.values(), strict=True)]


def operations(model: Model) -> list[str]:
    """Op types in execution order."""
    return [node.op_type for node in model.proto.graph.node]


def prepared_alike(
    proto: Any,
    shapes: Mapping[str, tuple[int, ...]],
    *,
    rtol: float = 1e-5,
    feed: Mapping[str, Array] | None = None,
) -> Prepared:
    """Prepare a model, and see that it computes the same and was not touched itself."""
    model = in_memory(proto)
    before = model.proto.SerializeToString()
    prepared = prepare(model)
    assert model.proto.SerializeToString() == before
    assert set(prepared.origins) == {node.name for node in proto.graph.node}
    now: Sequence[str] = [node.name for node in prepared.model.proto.graph.node]
    assert set(filter(None, prepared.origins.values())) == set(now)
    assert [each.name for each in prepared.model.proto.graph.output] == [each.name for each in proto.graph.output]
    values = feed or random_feed(shapes)
    for got, expected in zip(run_model(prepared.model, values), run_model(model, values), strict=True):
        scale = np.abs(expected).max(initial=1e-30)
        np.testing.assert_allclose(got / scale, expected / scale, atol=rtol, rtol=0)
    return prepared
