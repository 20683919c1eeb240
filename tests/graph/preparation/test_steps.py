"""Preparing whole models."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from roundoff.errors import BadInput
from roundoff.graph.interface import inputs
from roundoff.graph.load import load_model, model_from_proto
from roundoff.graph.preparation.steps import prepare
from tests.graph.preparation.comparing import in_memory, normalization, operations, prepared_alike
from tests.graph.quantized_nets import mixed_net, run_model
from tests.models import random_feed, residual, two_inputs, value, weight, with_if, with_sequence, wrapped
from tests.real_models import real_models


def test_a_model_with_nothing_to_fold_stays_as_it_is() -> None:
    for proto in (mixed_net(), residual(), with_if(), with_sequence()):
        model = in_memory(proto)
        prepared = prepare(model)
        assert prepared.notes == ()
        assert [node.name for node in prepared.model.proto.graph.node] == [node.name for node in proto.graph.node]
        assert all(name == now for name, now in prepared.origins.items())


def test_weights_that_are_also_inputs() -> None:
    bn, statistics = normalization("c", "n", 6)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="conv"), bn]
    held = [weight("w", 6, 3, 3, 3), *statistics]
    listed = [value("x", (1, 3, 5, 5)), *(value(each.name, each.dims) for each in held)]
    prepared = prepared_alike(
        wrapped(nodes, listed, [value("n")], held, opset=9, ir_version=3), {"x": (1, 3, 5, 5)}
    )
    assert operations(prepared.model) == ["Conv"]
    assert [each.name for each in prepared.model.proto.graph.input] == ["x"]
    assert not any("inputs" in str(note) for note in prepared.notes), "in this version it meant nothing"
    prepared = prepared_alike(two_inputs(), {"left": (2, 5), "right": (2, 5)})
    assert tuple(map(str, prepared.notes)) == (
        "inputs with a default value are now constants, and cannot be fed: 'gain'",
    )


def test_weights_outside_the_file_stay_there_unless_changed(tmp_path: Path) -> None:
    bn, statistics = normalization("c", "n", 6)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        bn,
        helper.make_node("Conv", ["n", "v"], ["y"], name="second"),
    ]
    held = [weight("w", 6, 3, 3, 3), weight("v", 2, 6, 1, 1), *statistics]
    proto = wrapped(nodes, [value("x", (1, 3, 5, 5))], [value("y")], held)
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="data", size_threshold=0)
    model = load_model(path)
    prepared = prepare(model)
    outside = [t.name for t in prepared.model.proto.graph.initializer if t.data_location == TensorProto.EXTERNAL]
    assert outside == ["v"]
    feed = {"x": np.random.default_rng(0).normal(size=(1, 3, 5, 5)).astype(np.float32)}
    expected = run_model(model, feed)[0]
    np.testing.assert_allclose(run_model(prepared.model, feed)[0], expected, atol=1e-5 * np.abs(expected).max())


def test_preparing_again_changes_nothing() -> None:
    bn, statistics = normalization("c", "n", 6)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="conv"), bn]
    model = in_memory(
        wrapped(nodes, [value("x", (1, 3, 5, 5))], [value("n")], [weight("w", 6, 3, 3, 3), *statistics])
    )
    first, second = prepare(model), prepare(model)
    assert first.model.proto.SerializeToString() == second.model.proto.SerializeToString()
    again = prepare(first.model)
    assert again.notes == ()
    assert again.model.proto.SerializeToString() == first.model.proto.SerializeToString()


@pytest.mark.parametrize("path", real_models())
def test_real_models_compute_the_same(path: Path) -> None:
    model = load_model(path)
    try:
        prepared = prepare(model)
    except BadInput as error:
        assert "quantized already" in error.what  # noqa: PT017 - a fact about that model, not about the error
        return
    assert "BatchNormalization" not in operations(prepared.model) or "branches" in path.stem
    shapes = {
        spec.name: tuple(axis if isinstance(axis, int) else 1 for axis in spec.shape or ())
        for spec in inputs(model)
    }
    feed = random_feed(shapes)
    for got, expected in zip(run_model(prepared.model, feed), run_model(model, feed), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def test_nodes_that_share_a_name_are_told_apart() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="n"),
        helper.make_node("Exp", ["a"], ["b"], name="n"),
        helper.make_node("Neg", ["b"], ["c"]),
        helper.make_node("Abs", ["c"], ["y"], name="n"),
    ]
    prepared = prepare(
        model_from_proto(wrapped(nodes, [value("x", (2,))], [value("y", (2,))]), path=Path("net.onnx"))
    )
    assert tuple(map(str, prepared.notes)) == (
        "3 nodes have the name 'n': the first keeps it, the others are now 'Exp_1', 'Abs_3'",
    )
