"""What a repair is said to cost, against counting the files that are written."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from benchmarks.planted.subject import subject
from onnx import TensorProto, numpy_helper

from roundoff.core.plan import Precision, Recipe, Rule, Step
from roundoff.graph.insertion import fake_quant_model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.save import save_model
from roundoff.graph.transformers import find_parts
from roundoff.quantize.recipes import RecipeBuilder, added_cost
from roundoff.quantize.targets.files import load_target
from roundoff.samples.sample_set import ArraySamples
from tests.graph.transformer_nets import Form, feeds, transformer
from tests.quantize.transforms.test_clamp_mask import Given

FREE = {"QuantizeLinear", "DequantizeLinear", "Constant", "Identity"}
CODES = {TensorProto.INT16, TensorProto.UINT16}


def counted(quantized: QuantizedModel, path: Path) -> tuple[Counter[str], int, set[str]]:
    """Nodes by op type, quantizers of activations, and tensors with 16 bits, in the file that is written."""
    save_model(fake_quant_model(quantized.float_model, quantized.quantizers), path, replace=True)
    graph = onnx.load(path).graph
    constants: dict[str, Any] = {each.name: each for each in graph.initializer}
    nodes = Counter(node.op_type for node in graph.node if node.op_type not in FREE)
    activations = [n for n in graph.node if n.op_type == "QuantizeLinear" and n.input[0] not in constants]
    wide = {n.input[0] for n in activations if constants[n.input[2]].data_type in CODES}
    wide |= {
        node.input[0]
        for node in graph.node
        if node.op_type == "DequantizeLinear"
        and node.input[0] in constants
        and numpy_helper.to_array(constants[node.input[0]]).dtype.itemsize == 2
    }
    return nodes, len(activations), wide


@pytest.mark.parametrize("family", ["plain", "depthwise", "residual", "squeeze", "transformer"])
def test_what_is_said_to_be_added_is_in_the_file(family: str, tmp_path: Path) -> None:
    network = subject(family, 21)
    chip = load_target("axera-ax650")
    builder = RecipeBuilder(network.model, ArraySamples(network.built.samples), chip)
    plain = builder.build(Recipe()).quantized
    inside = [each.tensor for each in plain.quantizers if each.kind == "activation"][1:4]
    wide = next(dtype for dtype, spec in chip.activations.items() if spec.bits == 16)
    rules = tuple(Rule("tensor", (name,), Precision(wide, "", wide)) for name in inside)
    feed = {name: values[:1] for name, values in network.built.samples.items()}
    before = counted(plain, tmp_path / "plain.onnx")
    for recipe in (Recipe(transforms=(Step("equalize"),)), Recipe(rules=rules)):
        made = builder.build(recipe).quantized
        found, after = added_cost(plain, made, feed), counted(made, tmp_path / "made.onnx")
        assert found.nodes == max(0, after[0].total() - before[0].total())
        assert set(found.node_types) == set(after[0] - before[0])
        assert found.quantizers == max(0, after[1] - before[1])
        assert found.wide == len(after[2] - before[2])
        assert found.bits == (16 if found.wide else 0)
        kind = "16 bit" if found.wide else "nodes" if found.nodes or found.quantizers else "free"
        assert found.kind == kind
        assert np.isfinite(found.products)


def test_layers_that_read_8_bits_of_what_is_stored_in_16_are_no_wide_products() -> None:
    model = transformer(Form("where"))
    builder = RecipeBuilder(model, Given(feeds(model, 4)), load_target("generic-int8"))
    parts = find_parts(builder.prepared.model)
    rules = tuple(Rule("node", (name,), Precision("u16")) for name in parts.stream)
    plain, wide = (builder.build(recipe).quantized for recipe in (Recipe(), Recipe(rules=rules)))
    found = added_cost(plain, wide, feeds(model, 1)[0])
    # Norms hand on 16 bits, which products read with 8.
    stored = {each.tensor for each in wide.quantizers if each.spec.bits == 16 and each.kind == "activation"}
    products = [node for node in wide.float_model.proto.graph.node if node.op_type == "MatMul"]
    assert any(stored & set(node.input) for node in products)
    assert (found.wide > 0, found.products) == (True, 0.0)
    every = Rule("op", ("MatMul",), Precision("u16"))
    found = added_cost(plain, builder.build(Recipe(rules=(*rules, every))).quantized, feeds(model, 1)[0])
    assert found.products == 1.0
