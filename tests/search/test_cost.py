"""What plans cost, and how much of a network they leave quantized."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from roundoff.core.plan import Precision, Recipe, Rule
from roundoff.core.target import Costs
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.quantize.recipes import RecipeBuilder
from roundoff.quantize.targets.files import load_target
from roundoff.search.cost import CostModel, load_costs
from roundoff.search.problem import count_outliers
from tests.models import conv_net, loaded, value, weight, wrapped
from tests.search.test_judges import Images

PRODUCTS = {"Conv1": 64 * 4 * 27, "Conv2": 64 * 4 * 9, "Classifier": 40}


@pytest.fixture
def builder(tmp_path: Path) -> RecipeBuilder:
    return RecipeBuilder(loaded(conv_net(), tmp_path), Images(), load_target("generic-int8"))


def model_of(builder: RecipeBuilder, costs: Costs) -> CostModel:
    return CostModel(builder.prepared.model, {"image": np.zeros((1, 3, 8, 8), np.float32)}, costs)


def with_rule(precision: Precision) -> Recipe:
    return Recipe(rules=(Rule("node", ("Conv1",), precision),))


def test_products_are_weighed_by_precision(builder: RecipeBuilder) -> None:
    model = model_of(builder, Costs(byte=0.0))
    assert model.cost(builder.plan(Recipe())) == sum(PRODUCTS.values())
    rest = PRODUCTS["Conv2"] + PRODUCTS["Classifier"]
    for precision, factor in (
        (Precision("u16"), 2),
        (Precision("u16", "s16"), 4),
        (Precision("float", "float"), 16),
    ):
        assert model.cost(builder.plan(with_rule(precision))) == factor * PRODUCTS["Conv1"] + rest


def test_bytes_count_too(builder: RecipeBuilder) -> None:
    model = model_of(builder, Costs(0.0, 0.0, 0.0, 0.0, byte=1.0))
    plain, wide = (model.cost(builder.plan(recipe)) for recipe in (Recipe(), with_rule(Precision("u16"))))
    assert wide > plain > 0


def test_what_remains_quantized_is_counted(builder: RecipeBuilder) -> None:
    model = model_of(builder, Costs())
    whole = model.remaining(builder.plan(Recipe()))
    assert (whole.nodes, whole.products) == (whole.all_nodes, sum(PRODUCTS.values()))
    assert whole.weight_bytes < whole.float_bytes
    part = model.remaining(builder.plan(with_rule(Precision("float", "float"))))
    assert part.products == whole.products - PRODUCTS["Conv1"]
    assert part.nodes < part.all_nodes
    assert model.remaining(builder.plan(with_rule(Precision("u16")))).wide_nodes > 0


def test_tables_of_costs_are_read(tmp_path: Path) -> None:
    file = tmp_path / "costs.toml"
    file.write_text("[cost]\nproduct_float = 8.0\n")
    assert load_costs(file) == Costs(product_float=8.0)
    file.write_text("byte = 2.0\n")
    assert load_costs(file).byte == 2.0
    file.write_text("bytes = 2.0\n")
    with pytest.raises(BadInput, match="bytes"):
        load_costs(file)
    file.write_text("byte =")
    with pytest.raises(BadInput, match="not valid TOML"):
        load_costs(file)


@pytest.mark.parametrize(
    ("harm", "count"),
    [([30, 29, 28, 5, 4, 3, 2, 1], 3), ([30, 5, 4, 3, 2, 1], 1), ([5, 4, 3, 2, 1], 1), ([9], 1), ([], 1)],
)
def test_nodes_that_stand_out_are_in_front_of_the_largest_step(harm: list[float], count: int) -> None:
    assert count_outliers(harm) == count


def test_weights_of_branches_count_as_float(tmp_path: Path) -> None:
    branches = [
        helper.make_graph([helper.make_node(*node)], name, [], [value(name, ("N", 8))], own)
        for name, node, own in (
            ("then", ("MatMul", ["a", "outer"], ["then"], "inner"), []),
            ("else", ("MatMul", ["a", "own"], ["else"], "other"), [weight("own", 8, 8, seed=4)]),
        )
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("If", ["condition"], ["y"], name="if", then_branch=branches[0], else_branch=branches[1]),
    ]
    weights = [weight("w", 6, 8, seed=1), weight("outer", 8, 8, seed=2)]
    inputs = [value("x", ("N", 6)), helper.make_tensor_value_info("condition", TensorProto.BOOL, [])]
    model = loaded(wrapped(nodes, inputs, [value("y", ("N", 8))], weights), tmp_path)

    class Rows:
        label, names = "rows", ("a", "b")

        def feed(self, index: int) -> dict[str, Array]:
            return {"x": np.full((1, 6), index + 1, np.float32), "condition": np.array(index > 0)}

    builder = RecipeBuilder(model, Rows(), load_target("generic-int8"))
    kept = CostModel(builder.prepared.model, Rows().feed(0), Costs()).remaining(builder.plan(Recipe()))
    assert kept.float_bytes == 4 * (48 + 64 + 64)
    assert kept.weight_bytes == 48 + 4 * (64 + 64)
