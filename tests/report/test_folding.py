"""Networks in few boxes: units, idioms and repeated blocks are found by structure, whatever nodes are called."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import helper

from roundoff.core.tensors import NodeInfo, Topology
from roundoff.graph.load import model_from_proto
from roundoff.graph.transformers import drawn_topology
from roundoff.report.folding import fold, network_boxes
from tests.diagnosis.planting import numpy_tensor
from tests.diagnosis.test_cards import FOUND, document
from tests.models import value, wrapped


def chain(operations: list[str], *, skip: int = 0) -> Topology:
    """Operations one after the other; every so manieth also reads what came so many before it."""
    nodes = []
    for at, operation in enumerate(operations):
        more = (f"t{at - skip}",) if skip and at and at % skip == 0 else ()
        nodes.append(NodeInfo(f"n{at}", operation, (f"t{at}", *more), (f"t{at + 1}",)))
    return Topology(tuple(nodes), ("t0",), (f"t{len(operations)}",))


def members(network: Topology, **options: object) -> list[tuple[str, ...]]:
    return [box.nodes for box in fold(network, **options).boxes]  # type: ignore[arg-type]


def test_what_follows_a_layer_is_drawn_with_it() -> None:
    network = chain(["Conv", "BatchNormalization", "Relu", "Conv", "MaxPool", "Reshape", "Transpose", "Gemm"])
    assert members(network) == [("n0", "n1", "n2"), ("n3",), ("n4",), ("n5", "n6"), ("n7",)]
    # Where it is known what is computed together, that counts.
    assert members(network, units={"n0": "n0", "n1": "n1"})[:3] == [("n0",), ("n1",), ("n2",)]


def test_a_tensor_that_others_read_ends_a_unit() -> None:
    nodes = (
        NodeInfo("c", "Conv", ("x",), ("a",)),
        NodeInfo("r", "Relu", ("a",), ("b",)),
        NodeInfo("s", "Add", ("a", "b"), ("y",)),
    )
    assert members(Topology(nodes, ("x",), ("y",))) == [("c",), ("r",), ("s",)]


def test_repeated_blocks_are_folded_and_the_worst_one_is_open() -> None:
    block = ["MatMul", "Softmax", "Mul", "Sqrt", "MatMul"]
    network = chain(["Conv", "Pool", *block * 20, "Gemm"])
    folded = fold(network, badness={"n43": 1.0})
    assert folded.blocks == 20
    # 19 closed, one open with its five, three others.
    assert len(folded.boxes) == 19 + 5 + 3
    opened = [box.nodes for box in folded.boxes if box.inside]
    assert opened == [(f"n{at}",) for at in range(42, 47)]
    closed = [box for box in folded.boxes if box.block]
    assert [len(box.nodes) for box in closed] == [5] * 19
    names = [name for box in folded.boxes for name in box.nodes]
    assert sorted(names) == sorted(node.name for node in network.nodes)


def test_of_several_accused_the_worst_one_is_open() -> None:
    network = chain(["Conv", "Pool", *["MatMul", "Softmax", "Mul", "Sqrt", "MatMul"] * 20, "Gemm"])
    finding = replace(FOUND.findings[0], nodes=("n3", "n43"), tensors=(), places=2, profiles=())
    run = replace(document(replace(FOUND, findings=(finding,), layers=None)), network=network)
    boxes = network_boxes(run, {"n3": 37.0, "n20": 2.0, "n43": 11.0}, higher_is_better=True)
    assert [box.nodes[0] for box in boxes if box.inside] == [f"n{at}" for at in range(42, 47)]


def test_blocks_are_cut_where_fewest_tensors_enter() -> None:
    # A residual stream: within a block two tensors are alive, between blocks one.
    nodes, at = [], "x"
    for index in range(30):
        nodes.append(NodeInfo(f"a{index}", "MatMul", (at,), (f"a{index}",)))
        nodes.append(NodeInfo(f"b{index}", "Softmax", (f"a{index}",), (f"b{index}",)))
        nodes.append(NodeInfo(f"c{index}", "Add", (f"b{index}", at), (f"c{index}",)))
        at = f"c{index}"
    folded = fold(Topology(tuple(nodes), ("x",), (at,)))
    assert folded.blocks == 30
    assert all(box.nodes[0].startswith("a") for box in folded.boxes if box.block)


def test_thousands_of_equal_layers_are_an_overview() -> None:
    assert len(fold(chain(["Conv"] * 2000)).boxes) < 120
    assert len(fold(chain(["Conv"] * 60)).boxes) == 60


def test_what_computes_constants_is_not_drawn() -> None:
    network = chain(["Conv", "Relu"])
    extra = NodeInfo("w", "ConstantOfShape", (), ("weight",))
    assert members(replace(network, nodes=(extra, *network.nodes))) == [("n0", "n1")]


def test_idioms_come_from_the_recogniser_of_transformers() -> None:
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], name="mean", axes=[-1]),
        helper.make_node("Sub", ["x", "mean"], ["d"], name="sub"),
        helper.make_node("Pow", ["d", "two"], ["sq"], name="pow"),
        helper.make_node("ReduceMean", ["sq"], ["var"], name="var", axes=[-1]),
        helper.make_node("Add", ["var", "eps"], ["ve"], name="add"),
        helper.make_node("Sqrt", ["ve"], ["std"], name="sqrt"),
        helper.make_node("Div", ["d", "std"], ["y"], name="div"),
    ]
    weights = [numpy_tensor("two", np.float32(2)), numpy_tensor("eps", np.float32(1e-5))]
    model = model_from_proto(
        wrapped(nodes, [value("x", (1, 4, 8))], [value("y", (1, 4, 8))], weights, opset=13), path=Path("n.onnx")
    )
    network = drawn_topology(model)
    assert [name for name, _ in network.idioms] == ["LayerNorm"]
    folded = fold(network)
    assert [(box.idiom, len(box.nodes)) for box in folded.boxes] == [("LayerNorm", 7)]


def test_boxes_say_operation_shape_codes_and_the_worst_decibels() -> None:
    run = document(FOUND)
    boxes = network_boxes(run, {"conv": 8.5, "dense": 35.0}, higher_is_better=True)
    told = [(box.label.en, box.detail, box.dtype, box.value, box.mark) for box in boxes]
    # The Conv to blame is named and coloured, not the Relu behind it; what follows has its error from there.
    assert told == [
        ("conv", "Conv·Relu 8", "u8", 8.5, "culprit"),
        ("dense", "Gemm·Identity 4", "u8", 35.0, "inherited"),
    ]
    assert boxes[0].nodes == ("conv", "relu")
