"""Batch normalization behind a matrix product."""

import pytest
from onnx import helper

from tests.graph.preparation.comparing import constant, normalization, operations, prepared_alike
from tests.models import value, weight, wrapped


def test_behind_a_product_it_becomes_an_addition() -> None:
    bn, statistics = normalization("m", "n", 3)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], name="product"), bn]
    proto = wrapped(nodes, [value("x", ("N", 4))], [value("n")], [weight("w", 4, 3), *statistics])
    prepared = prepared_alike(proto, {"x": (2, 4)})
    assert [(node.name, node.op_type) for node in prepared.model.proto.graph.node] == [
        ("product", "MatMul"),
        ("n", "Add"),
    ]
    assert prepared.origins == {"product": "product", "n": "n"}


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("shape", [(), (3,), (1, 3)])
def test_behind_a_product_and_a_bias_it_goes_into_both(side: int, shape: tuple[int, ...]) -> None:
    bn, statistics = normalization("a", "n", 3)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("Add", ["m", "b"] if side else ["b", "m"], ["a"], name="bias"),
        bn,
        helper.make_node("Relu", ["n"], ["y"], name="relu"),
    ]
    held = [weight("w", 4, 3), weight("b", *shape), *statistics]
    prepared = prepared_alike(wrapped(nodes, [value("x", ("N", 4))], [value("y")], held), {"x": (2, 4)})
    assert operations(prepared.model) == ["MatMul", "Add", "Relu"]
    assert prepared.origins["n"] == "bias"
    assert prepared.model.proto.graph.node[1].output[0] == "n"


def test_a_product_of_higher_rank_has_its_channels_elsewhere() -> None:
    bn, statistics = normalization("m", "n", 5)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], name="product"), bn]
    proto = wrapped(nodes, [value("x", (2, 5, 4))], [value("n")], [weight("w", 4, 3), *statistics])
    prepared = prepared_alike(proto, {"x": (2, 5, 4)})
    assert operations(prepared.model) == ["MatMul", "BatchNormalization"]
    assert "channels of the product in front are on another axis" in str(prepared.notes[0])


def test_a_bias_for_each_row_or_a_second_reader_stays() -> None:
    bn, statistics = normalization("a", "n", 2)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("Add", ["m", "b"], ["a"], name="bias"),
        bn,
    ]
    held = [weight("w", 4, 2), constant("b", [[1], [2]]), *statistics]
    prepared = prepared_alike(wrapped(nodes, [value("x", (2, 4))], [value("n")], held), {"x": (2, 4)})
    assert "differs between samples" in str(prepared.notes[0])
    held[1] = constant("b", [1, 2])
    proto = wrapped(nodes, [value("x", (2, 4))], [value("n"), value("m")], held)
    assert "other nodes read the result" in str(prepared_alike(proto, {"x": (2, 4)}).notes[0])
