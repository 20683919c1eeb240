"""Blocks cover what is needed once, in order, and hand on exactly what later ones read."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from roundoff.graph.blocks import MOST_BLOCKS, BlockPartition, Demand, cut_model, node_seconds
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.nodes import reads
from roundoff.graph.shapes import values
from roundoff.graph.units import derived_constants
from tests.graph.random_nets import WIDTH, random_nets
from tests.models import conv_net, loaded, residual, value, weight, with_if, with_sequence, wrapped

IMAGE = {"image": (1, 3, 8, 8)}


def in_memory(proto: Any) -> Model:
    return Model(proto, Path("test.onnx"), proto.ByteSize())


def cut(model: Model, shapes: Mapping[str, tuple[int, ...]], **options: Any) -> BlockPartition:
    options.setdefault("wanted", outputs(model))
    demand = Demand(
        **{name: options.pop(name) for name in ("changes", "samples", "tail_bytes") if name in options}
    )
    return cut_model(model, values(model, shapes), demand=demand, **options)


@settings(max_examples=60, deadline=None)
@given(random_nets(), st.integers(1, 6))
def test_blocks_hand_on_exactly_what_is_read(proto: Any, blocks: int) -> None:
    model = in_memory(proto)
    constant = derived_constants(proto.graph)
    nodes = {node.name: node for node in proto.graph.node}
    found = cut(model, {value.name: (1, WIDTH) for value in proto.graph.input}, blocks=blocks)
    order = [name for block in found.blocks for name in block.nodes]
    assert order == [name for name in nodes if name in set(order)]
    assert len(found.blocks) <= blocks
    known = {value.name for value in proto.graph.input}
    for number, block in enumerate(found.blocks):
        later = [name for other in found.blocks[number:] for name in other.nodes]
        read = {name for node in later for name in reads(nodes[node])} - constant
        made = {name for node in later for name in nodes[node].output}
        assert set(found.live[number]) == read - made
        assert set(block.reads) <= set(found.live[number]) <= known
        known |= set(block.writes)
    assert set(outputs(model)) <= known


def test_what_no_output_needs_is_in_no_block(tmp_path: Path) -> None:
    found = cut(loaded(conv_net(), tmp_path), IMAGE, wanted=("relu1",), blocks=9)
    assert [name for block in found.blocks for name in block.nodes] == ["Conv1", "Relu1"]


def test_nothing_that_is_no_array_is_handed_on(tmp_path: Path) -> None:
    found = cut(loaded(with_sequence(), tmp_path), {"x": (2, 3)}, blocks=9)
    # Between splitting and joining a sequence is live, and behind them text.
    assert [block.nodes for block in found.blocks] == [("split", "join"), ("print", "parse")]


def test_what_a_subgraph_reads_is_handed_to_its_node(tmp_path: Path) -> None:
    found = cut(loaded(with_if(), tmp_path), {"x": (2, 3)}, blocks=9)
    choose = next(block for block in found.blocks if "choose" in block.nodes)
    assert set(choose.reads) == {"positive", "scaled"}
    assert [len(block.nodes) for block in found.blocks] == [1] * 5


def test_nodes_that_are_computed_in_one_go_stay_together(tmp_path: Path) -> None:
    found = cut(loaded(residual(), tmp_path), IMAGE, blocks=9)
    assert [block.nodes for block in found.blocks] == [("stem",), ("body", "act"), ("add",)]


def hourglass() -> Any:
    """Wide tensors everywhere but at two places."""
    nodes = []
    for stage in range(3):
        tensors = [f"wide{stage}_{step}" for step in range(4)]
        nodes.append(helper.make_node("MatMul", [f"narrow{stage}", "widen"], tensors[:1], name=f"widen{stage}"))
        for step, (source, target) in enumerate(pairwise(tensors)):
            nodes.append(helper.make_node("Neg", [source], [target], name=f"neg{stage}_{step}"))
        last = [tensors[-1], "shrink"]
        nodes.append(helper.make_node("MatMul", last, [f"narrow{stage + 1}"], name=f"shrink{stage}"))
    weights = [weight("widen", 2, 300), weight("shrink", 300, 2)]
    return wrapped(nodes, [value("narrow0", (50, 2))], [value("narrow3")], weights)


def test_cuts_are_where_little_is_live(tmp_path: Path) -> None:
    found = cut(loaded(hourglass(), tmp_path), {"narrow0": (50, 2)}, samples=1000, blocks=3)
    assert [block.reads for block in found.blocks] == [("narrow0",), ("narrow1",), ("narrow2",)]


def test_many_changes_are_worth_more_cuts_than_few(tmp_path: Path) -> None:
    model = loaded(hourglass(), tmp_path)
    few = cut(model, {"narrow0": (50, 2)}, changes={"shrink2": 1.0}, samples=1)
    many = cut(model, {"narrow0": (50, 2)}, samples=10_000)
    assert len(few.blocks) < len(many.blocks) <= MOST_BLOCKS
    # A single change at the very end: all before it is one block.
    assert len(few.blocks) == 2
    assert few.seconds_from(0) == pytest.approx(many.seconds_from(0))


def test_thousands_of_nodes_are_cut_at_once(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", [f"t{at}"], [f"t{at + 1}"], name=f"n{at}") for at in range(3000)]
    model = loaded(wrapped(nodes, [value("t0", (1, 50_000))], [value("t3000")]), tmp_path)
    found = cut(model, {"t0": (1, 50_000)}, samples=100)
    sizes = [len(block.nodes) for block in found.blocks]
    assert sum(sizes) == 3000
    assert len(sizes) > 8
    assert max(sizes) < 2 * 3000 / len(sizes)


def test_costs_follow_the_work() -> None:
    conv = helper.make_node("Conv", ["x", "w"], ["y"])
    shapes: dict[str, tuple[int, ...]] = {"x": (1, 64, 32, 32), "w": (64, 64, 3, 3), "y": (1, 64, 32, 32)}
    relu = helper.make_node("Relu", ["x"], ["y"])
    assert node_seconds(conv, shapes, {"w"}) > 5 * node_seconds(relu, shapes)
    turned = helper.make_node("Gemm", ["a", "b"], ["c"], transA=1)
    plain = helper.make_node("Gemm", ["at", "b"], ["c"])
    sizes = {"a": (500, 2), "at": (2, 500), "b": (500, 700), "c": (2, 700)}
    assert node_seconds(turned, sizes) == pytest.approx(node_seconds(plain, sizes))
    back = helper.make_node("ConvTranspose", ["x", "w"], ["z"])
    assert node_seconds(back, {**shapes, "z": (1, 64, 34, 34)}) > 5 * node_seconds(relu, shapes)


def test_unknown_shapes_cost_nothing_but_a_start() -> None:
    node = helper.make_node("MatMul", ["a", "b"], ["c"])
    assert 0 < node_seconds(node, {}) < 1e-5
    assert np.isfinite(node_seconds(node, {"c": ()}))
