"""What targets say that were measured on vendors' simulators: sums, second operands, limits, one-sided ranges."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from roundoff.core.quantizers import QuantSpec, parameters_from_range, quantize
from roundoff.errors import BadInput
from roundoff.quantize.targets import load_target
from tests import models
from tests.models import value, weight, wrapped
from tests.quantize.planning.support import planned, target_like

SHAPE = (1, 3, 8, 8)


def _branches(first: str, second: str) -> object:
    """image -> two convolutions of one shape in this order, their sum, and a Relu."""
    nodes = {
        "left": helper.make_node("Conv", ["image", "wl"], ["left"], name="left", pads=[1] * 4),
        "right": helper.make_node("Conv", ["image", "wr"], ["right"], name="right", pads=[1] * 4),
    }
    order = [nodes[first], nodes[second], helper.make_node("Add", ["left", "right"], ["sum"], name="add")]
    order.append(helper.make_node("Relu", ["sum"], ["y"], name="relu"))
    weights = [weight("wl", 3, 3, 3, 3), weight("wr", 3, 3, 3, 3, seed=1)]
    return wrapped(order, [value("image", SHAPE)], [value("y", SHAPE)], weights)


@pytest.mark.parametrize(("first", "second"), [("left", "right"), ("right", "left")])
def test_the_first_of_two_branches_is_not_rounded_before_their_sum(
    first: str, second: str, tmp_path: Path
) -> None:
    plan = planned(_branches(first, second), tmp_path, "rknn")
    assert plan.units() == {first: [first, "add", "relu"]}
    assert second in plan.names
    assert {first, "sum"}.isdisjoint(plan.names)


def test_a_skip_is_read_by_the_fused_sum_on_its_own_grid(tmp_path: Path) -> None:
    network = models.residual()
    del network.graph.node[2]
    network.graph.node[2].input[1] = "b"
    plan = planned(network, tmp_path, "rknn")
    assert plan.units() == {"body": ["body", "add"]}
    assert {(each.node, each.input) for each in plan.quantizer("a").consumers} == {("body", 0), ("add", 0)}


def test_the_second_operand_of_a_product_is_rounded_again(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["left"], ["l"], name="l"),
        helper.make_node("Abs", ["right"], ["r"], name="r"),
        helper.make_node("MatMul", ["l", "r"], ["y"], name="product"),
    ]
    network = wrapped(nodes, [value("left", (4, 5)), value("right", (5, 4))], [value("y", (4, 4))])
    plan = planned(network, tmp_path, "rknn")
    first, again = (each for each in plan.plan.quantizers if each.tensor == "r")
    assert (first.spec.symmetric, again.spec.symmetric, again.after) == (False, True, first.name)
    assert [each.input for each in again.consumers] == [1]
    assert not plan.quantizer("l").spec.symmetric


def test_what_a_sigmoid_reads_is_cut_off(tmp_path: Path) -> None:
    node = helper.make_node("Sigmoid", ["x"], ["y"], name="gate")
    plan = planned(wrapped([node], [value("x", (2, 3))], [value("y", (2, 3))]), tmp_path, "rknn")
    assert plan.quantizer("x").range_limit == (-7.0, 7.0)
    assert plan.quantizer("y").fixed_range == (0.0, 1.0)


@pytest.mark.parametrize(("low", "zero", "scale"), [(0.0, -128, 2.0 / 255), (-0.5, 0, 2.0 / 127)])
def test_all_codes_are_for_what_is_not_negative(low: float, zero: int, scale: float) -> None:
    spec = QuantSpec(bits=8, signed=True, symmetric=True, symmetric_scale="one_sided")
    params = parameters_from_range(low, 2.0, spec)
    assert int(params.zero_point) == zero
    assert float(params.scale) == pytest.approx(scale)
    assert quantize(np.array([0.0, 2.0], np.float32), params, spec).tolist() == [zero, 127]


def test_chips_are_called_by_their_names() -> None:
    assert load_target("BM1684X").name == "sophgo-bm1684x"
    assert load_target("htp").activation == "u8"
    assert load_target("rknn").rewrites == ("fold_skip", "split_global_pool")


def test_a_rewrite_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no transform 'fold_skips'; did you mean 'fold_skip'"):
        target_like(tmp_path, 'extends = "rknn"\ndescription = "x."\nrewrites = ["fold_skips"]\n')
