from pathlib import Path

import numpy as np
import pytest
from onnx import GraphProto, helper, numpy_helper

from roundoff.core.tensors import Array
from roundoff.graph.blocks import BlockModels, ModelBlock
from roundoff.graph.save import add_declared
from roundoff.graph.shapes import values
from roundoff.graph.subgraph import detached, tap
from roundoff.run.session import open_session
from tests.models import loaded, value, wrapped

LARGE = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)


def test_only_large_floats_stay_beside() -> None:
    kept: dict[str, Array] = {
        "small": LARGE[:2],
        "whole": np.arange(2000),
        "half": np.ones(4000, np.float16),
    }
    given = {"large": LARGE, "double": LARGE.astype(np.float64)}
    graph = GraphProto()
    tensors = [numpy_helper.from_array(array, name) for name, array in (kept | given).items()]
    found = add_declared(graph, tensors)
    assert found.keys() == given.keys()
    for name, array in given.items():
        np.testing.assert_array_equal(found[name], array)
    assert [tensor.name for tensor in graph.initializer] == [*kept, *given]
    assert {tensor.name for tensor in graph.initializer if not tensor.raw_data} == given.keys()


def test_numbers_in_another_field_stay() -> None:
    listed = helper.make_tensor("listed", 1, (40, 40), LARGE.ravel().tolist())
    graph = GraphProto()
    assert add_declared(graph, [listed]) == {}
    np.testing.assert_array_equal(numpy_helper.to_array(graph.initializer[0]), LARGE)


@pytest.mark.parametrize("how", ["tapped", "detached"])
def test_a_block_runs_with_what_is_beside_it(tmp_path: Path, how: str) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], name="product"),
        helper.make_node("Relu", ["product"], ["y"], name="relu"),
    ]
    weights = [numpy_helper.from_array(LARGE, "w")]
    model = loaded(wrapped(nodes, [value("x", (2, 40))], [value("y", (2, 40))], weights), tmp_path)
    block = ModelBlock(("product",), ("x",), ("product",), seconds=1.0)
    made = BlockModels(model, values(model)).make(block)
    assert made.beside.keys() == {"w"}
    x = np.ones((2, 40), np.float32)
    session = open_session(made, outputs=tap(made, ["product"]) if how == "tapped" else detached(made))
    np.testing.assert_allclose(session.run({"x": x})[0], x @ LARGE, rtol=1e-5)
