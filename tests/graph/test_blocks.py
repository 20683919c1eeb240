"""Blocks as models: run one after the other, with or without quantizers, they are the whole model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.quantizers import Consumer
from roundoff.core.tensors import Array
from roundoff.graph.blocks import BlockModels, BlockPartition, BlockVariants, Substitute, cut_model
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import after_quantizers
from roundoff.graph.shapes import values
from tests.graph.quantized_nets import S8, make_quantizer, mixed_net, mixed_quantizers, run_model
from tests.graph.random_nets import WIDTH, random_nets
from tests.models import loaded, value, with_if, wrapped
from tests.quantized import quantized_simply

IMAGE = np.random.default_rng(0).standard_normal((1, 3, 4, 4)).astype(np.float32)


def run_blocks(models: list[Model], cutting: BlockPartition, feed: Mapping[str, Array]) -> dict[str, Array]:
    known = dict(feed)
    for model, block in zip(models, cutting.blocks, strict=True):
        known |= zip(block.writes, run_model(model, {name: known[name] for name in block.reads}), strict=True)
    return known


def cut(model: Model, feed: Mapping[str, Array], blocks: int) -> tuple[BlockPartition, Any]:
    everything = values(model, {name: array.shape for name, array in feed.items()})
    return cut_model(model, everything, wanted=outputs(model), blocks=blocks), everything


@settings(max_examples=25, deadline=None)
@given(random_nets(), st.integers(1, 5))
def test_blocks_compute_what_the_model_does(proto: Any, blocks: int) -> None:
    model = Model(proto, Path("test.onnx"), proto.ByteSize())
    rng = np.random.default_rng(1)
    feed = {fed.name: rng.standard_normal((2, WIDTH)).astype(np.float32) for fed in proto.graph.input}
    cutting, everything = cut(model, feed, blocks)
    made = BlockModels(model, everything)
    found = run_blocks([made.make(block) for block in cutting.blocks], cutting, feed)
    for name, array in zip(outputs(model), run_model(model, feed), strict=True):
        np.testing.assert_array_equal(found[name], array)


@settings(max_examples=25, deadline=None)
@given(random_nets(), st.integers(1, 5), st.randoms(use_true_random=False))
def test_any_quantizers_can_be_switched_on(proto: Any, blocks: int, random: Any) -> None:
    model = Model(proto, Path("test.onnx"), proto.ByteSize())
    rng = np.random.default_rng(1)
    feed = {fed.name: rng.standard_normal((2, WIDTH)).astype(np.float32) for fed in proto.graph.input}
    quantizers = quantized_simply(model, [feed]).quantizers
    on = random.sample(quantizers, random.randint(0, len(quantizers)))
    cutting, everything = cut(model, feed, blocks)
    variants = BlockVariants(model, cutting, everything)
    switched = variants.switch(on)
    found = run_blocks([variants.model(index, switched) for index in range(len(cutting.blocks))], cutting, feed)
    expected = run_model(insert_quantizers(model, on), feed)
    for name, array in zip(outputs(model), expected, strict=True):
        # One rounding in a product of floats may tip one value over to the next code.
        left = after_quantizers(found[name], switched.leaving.get(name, ()))
        assert np.mean(~np.isclose(left, array, rtol=1e-4, atol=1e-5)) <= 0.25


def test_each_block_holds_only_its_own_constants(tmp_path: Path) -> None:
    model = loaded(mixed_net(), tmp_path)
    cutting, everything = cut(model, {"image": IMAGE}, 4)
    made = BlockModels(model, everything)
    held = [{tensor.name for tensor in made.make(block).proto.graph.initializer} for block in cutting.blocks]
    assert [sorted(names) for names in held] == [["b1", "w1"], ["b2", "w2"], [], ["b3", "w3"]]
    assert made.nodes_in(cutting.blocks[0]) == {"first", "relu"}


def test_constants_in_blocks_are_already_quantized(tmp_path: Path) -> None:
    model = loaded(mixed_net(), tmp_path)
    cutting, everything = cut(model, {"image": IMAGE}, 3)
    variants = BlockVariants(model, cutting, everything)
    switched = variants.switch(mixed_quantizers())
    graphs = [variants.model(index, switched).proto.graph for index in range(len(cutting.blocks))]
    names = {tensor.name for graph in graphs for tensor in graph.initializer}
    assert {f"quantized/{name}_q_values" for name in ("w1", "w2", "w3", "b1")} <= names
    assert names.isdisjoint({"w1", "w2", "w3"})
    quantized = [node.input[0] for graph in graphs for node in graph.node if node.op_type == "QuantizeLinear"]
    assert sorted(set(quantized)) == ["act", "both", "deep", "flat", "image", "sum"]
    assert [each.name for each in switched.leaving["logits"]] == ["logits_q"]
    found = run_blocks([variants.model(at, switched) for at in range(len(graphs))], cutting, {"image": IMAGE})
    left = after_quantizers(found["logits"], switched.leaving["logits"])
    # All scales are powers of two, so that nothing is rounded.
    np.testing.assert_array_equal(
        left, run_model(insert_quantizers(model, mixed_quantizers()), {"image": IMAGE})[0]
    )


def test_a_quantizer_acts_in_every_block_that_reads_it(tmp_path: Path) -> None:
    model = loaded(mixed_net(), tmp_path)
    cutting, everything = cut(model, {"image": IMAGE}, 5)
    variants = BlockVariants(model, cutting, everything)
    act = next(each for each in mixed_quantizers() if each.tensor == "act")
    blocks = {
        index for index, block in enumerate(cutting.blocks) if {"depthwise", "add", "concat"} & set(block.nodes)
    }
    assert set(variants.switch([act]).inside) == blocks
    assert len(blocks) > 1
    assert variants.switch([]).inside == {}


def test_what_nothing_wanted_depends_on_acts_nowhere(tmp_path: Path) -> None:
    model = loaded(mixed_net(), tmp_path)
    everything = values(model, {"image": IMAGE.shape})
    cutting = cut_model(model, everything, wanted=("act",))
    switched = BlockVariants(model, cutting, everything).switch(mixed_quantizers())
    assert {consumer.node for readers in switched.inside.values() for consumer in readers} == {"first"}
    assert switched.leaving == {}


def test_substitutes_get_a_free_name_and_may_be_shared(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Add", ["x", "c"], ["a"], name="one"),
        helper.make_node("Add", ["a", "c"], ["b"], name="two"),
        helper.make_node("Add", ["b", "c"], ["c_"], name="three"),
    ]
    constant = numpy_helper.from_array(np.float32(1), "c")
    model = loaded(wrapped(nodes, [value("x", (2,))], [value("c_")], [constant]), tmp_path)
    cutting, everything = cut(model, {"x": np.zeros(2, np.float32)}, 1)
    other = Substitute("c", np.asarray(np.float32(10)))
    block = BlockModels(model, everything).make(
        cutting.blocks[0], {Consumer("one", 1): other, Consumer("two", 1): other}
    )
    assert [tensor.name for tensor in block.proto.graph.initializer] == ["quantized/c", "c"]
    np.testing.assert_array_equal(run_model(block, {"x": np.zeros(2, np.float32)})[0], [21, 21])


def test_subgraphs_keep_the_constants_they_read(tmp_path: Path) -> None:
    proto = with_if()
    choose = next(node for node in proto.graph.node if node.op_type == "If")
    for attribute in choose.attribute:
        # The branch takes a constant from outside.
        attribute.g.node[1].op_type = "Mul"
        attribute.g.node[1].input.append("two")
    model = loaded(proto, tmp_path)
    feed = {"x": np.array([[1, -2, 3], [0, 1, 2]], np.float32)}
    cutting, everything = cut(model, feed, 5)
    made = BlockModels(model, everything)
    found = run_blocks([made.make(block) for block in cutting.blocks], cutting, feed)
    np.testing.assert_array_equal(found["y"], run_model(model, feed)[0])


def test_integers_and_scalars_are_handed_on(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ArgMax", ["x"], ["best"], name="best", axis=1),
        helper.make_node("Size", ["x"], ["size"], name="size"),
        helper.make_node("Cast", ["best"], ["as_float"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Cast", ["size"], ["total"], name="total", to=TensorProto.FLOAT),
        helper.make_node("Div", ["as_float", "total"], ["y"], name="share"),
    ]
    model = loaded(wrapped(nodes, [value("x", (2, 5))], [value("y"), value("best", elem_type=7)]), tmp_path)
    feed = {"x": np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)}
    cutting, everything = cut(model, feed, 5)
    assert len(cutting.blocks) == 5
    made = BlockModels(model, everything)
    found = run_blocks([made.make(block) for block in cutting.blocks], cutting, feed)
    for name, array in zip(("y", "best"), run_model(model, feed), strict=True):
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("axis", [None, 1])
def test_rounding_that_needs_a_rank_finds_it_in_a_block(axis: int | None, tmp_path: Path) -> None:
    model = loaded(mixed_net(), tmp_path)
    cutting, everything = cut(model, {"image": IMAGE}, 5)
    spec = type(S8)(8, signed=True, symmetric=True, axis=axis, rounding="half_away")
    scale = 0.25 if axis is None else [0.25, 0.5, 1, 2]
    quantizer = make_quantizer("act", spec, scale, ("add", 0))
    variants = BlockVariants(model, cutting, everything)
    switched = variants.switch([quantizer])
    found = run_blocks(
        [variants.model(index, switched) for index in range(len(cutting.blocks))], cutting, {"image": IMAGE}
    )
    expected = run_model(insert_quantizers(model, [quantizer]), {"image": IMAGE})[0]
    np.testing.assert_array_equal(found["logits"], expected)
