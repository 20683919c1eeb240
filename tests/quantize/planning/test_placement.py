"""Where quantizers are put when nothing is asked for."""

from pathlib import Path

import pytest
from onnx import helper

from roundoff.core.quantizers import Consumer
from tests import models
from tests.models import value, weight, wrapped
from tests.quantize.planning.networks import NETWORKS, scalar
from tests.quantize.planning.support import SHARING, planned, target_like


def test_a_plain_network(tmp_path: Path) -> None:
    plan = planned(models.conv_net(), tmp_path, "generic-int8")
    assert plan.names == ["image", "w1", "relu1", "w2", "relu2", "pooled", "flat", "w3", "b3", "logits"]
    assert plan.units() == {"Conv1": ["Conv1", "Relu1"], "Conv2": ["Conv2", "Relu2"]}
    assert plan.quantizer("w1").spec.axis == 0
    assert plan.quantizer("w3").spec.axis == 1
    assert plan.quantizer("b3").scale_of == ("flat", "w3")
    assert plan.quantizer("b3").spec.axis == 0
    assert plan.quantizer("pooled").group == plan.quantizer("flat").group != ""
    assert plan.quantizer("logits").output
    assert plan.quantizer("logits").consumers == ()
    assert plan.quantizer("relu1").consumers == (Consumer("Conv2", 0),)


def test_a_tensor_that_others_read_stays_outside_of_units(tmp_path: Path) -> None:
    plan = planned(NETWORKS["swish_net"](), tmp_path, "generic-int8")
    # sigmoid1 is also read by the pool, so the first swish is not one.
    assert plan.units() == {"conv2": ["conv2", "sigmoid2", "mul2"]}
    assert {"a", "s", "b"} <= set(plan.names)
    assert {"c", "t"}.isdisjoint(plan.names)


def test_an_output_of_the_network_stays_outside_of_units(tmp_path: Path) -> None:
    network = models.conv_net()
    network.graph.output.append(value("conv1"))
    plan = planned(network, tmp_path, "generic-int8")
    assert "Conv1" not in plan.units()
    assert plan.quantizer("conv1").output


def test_what_a_subgraph_reads_stays_outside_of_units(tmp_path: Path) -> None:
    network = models.with_if()
    add = helper.make_node("Relu", ["scaled"], ["positive_part"], name="relu")
    network.graph.node.insert(1, add)
    network.graph.output.append(value("positive_part"))
    plan = planned(network, tmp_path, "generic-int8")
    assert plan.units() == {}
    # The branches of the If see the float values.
    assert plan.quantizer("scaled").consumers == (Consumer("relu", 0),)
    assert str(plan.node("choose").reason) == "control flow: it and the nodes inside (4) stay in float"
    assert plan.precision("choose") == ("", "", "float")


def test_gelu_and_its_layer_are_one(tmp_path: Path) -> None:
    plan = planned(NETWORKS["gelu_mlp"](), tmp_path, "generic-int8")
    assert plan.units() == {"fc1": ["fc1", "fc1_bias", "div", "erf", "plus_one", "mul", "halve"]}
    assert plan.names == ["x", "w1", "b1", "g", "w2", "y"]
    bias = plan.quantizer("b1")
    assert (bias.kind, bias.consumers, bias.scale_of) == ("bias", (Consumer("fc1_bias", 0),), ("x", "w1"))


@pytest.mark.parametrize(
    ("shape", "is_bias"), [((8,), True), ((1,), False), ((1, 8), False), ((), False), ((4, 8), False)]
)
def test_only_one_number_per_column_is_a_bias(shape: tuple[int, ...], is_bias: bool, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="fc"),
        helper.make_node("Add", ["h", "b"], ["y"], name="add"),
    ]
    network = wrapped(nodes, [value("x", (4, 4))], [value("y")], [weight("w", 4, 8), weight("b", *shape)])
    plan = planned(network, tmp_path, "generic-int8")
    assert plan.quantizer("b").kind == ("bias" if is_bias else "weight")
    assert ("h" in plan.names) != is_bias


def test_a_relu_merges_only_into_its_sole_producer(tmp_path: Path) -> None:
    # In `residual`, "a" is read twice; the Relu behind "b" is its only reader.
    plan = planned(models.residual(), tmp_path, "axera-ax650")
    assert plan.units() == {"body": ["body", "act"]}
    assert plan.quantizer("a").consumers == (Consumer("body", 0), Consumer("add", 0))


def test_passive_operations_share_the_scale_of_their_input(tmp_path: Path) -> None:
    plan = planned(NETWORKS["detector_head"](), tmp_path, "generic-int8")
    assert plan.quantizer("boxes").group == plan.quantizer("boxes_flat").group == "boxes"
    assert plan.quantizer("joined").group == plan.quantizer("y").group == "joined"


def test_a_shared_scale_ties_everything_that_is_joined(tmp_path: Path) -> None:
    plan = planned(NETWORKS["detector_head"](), tmp_path, target_like(tmp_path, SHARING))
    tied = {each.tensor for each in plan.plan.quantizers if each.group == "boxes"}
    assert tied == {"boxes", "boxes_flat", "scores", "scores_flat", "joined", "y"}


def test_what_has_a_fixed_range_joins_as_a_copy(tmp_path: Path) -> None:
    plan = planned(NETWORKS["detector_head"](), tmp_path, "litert")
    scores = plan.quantizer("scores_flat")
    assert scores.fixed_range == plan.quantizer("scores").fixed_range == (0.0, 0.99609375)
    assert scores.consumers == ()
    copy = plan.quantizer("scores_flat@join")
    assert (copy.after, copy.group, copy.consumers) == ("scores_flat", "boxes", (Consumer("join", 1),))
    assert copy.fixed_range is None
    assert plan.quantizer("joined").group == "boxes"


def test_equal_fixed_ranges_are_joined_as_they_are(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["a"], name="one"),
        helper.make_node("Softmax", ["x"], ["b"], name="two"),
        helper.make_node("Concat", ["a", "b"], ["y"], name="join", axis=0),
    ]
    plan = planned(wrapped(nodes, [value("x", (2, 3))], [value("y")]), tmp_path, "litert")
    assert {each.tensor: each.fixed_range for each in plan.plan.quantizers} == {
        "x": None,
        "a": (0.0, 0.99609375),
        "b": (0.0, 0.99609375),
        "y": (0.0, 0.99609375),
    }


def test_one_constant_joined_to_two_things_has_two_scales(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Concat", ["x", "token"], ["a"], name="left", axis=0),
        helper.make_node("Sigmoid", ["x"], ["s"], name="gate"),
        helper.make_node("Concat", ["s", "token"], ["b"], name="right", axis=0),
        helper.make_node("Add", ["x", "token"], ["c"], name="add"),
    ]
    network = wrapped(nodes, [value("x", (2, 3))], [value(name) for name in "abc"], [weight("token", 2, 3)])
    plan = planned(network, tmp_path, target_like(tmp_path, SHARING))
    found = {each.consumers[0].node: each.group for each in plan.plan.quantizers if each.tensor == "token"}
    assert found == {"left": "x", "right": "s", "add": ""}


def test_a_range_can_be_fixed_for_one_dtype(tmp_path: Path) -> None:
    text = """
        extends = "litert"
        [activations.s16]
        symmetric = true
        [fixed_ranges]
        "Softmax:s16" = [0.0, 0.999969482421875]
    """
    target = target_like(tmp_path, text)
    network = models.single_node(helper.make_node("Softmax", ["x"], ["y"], name="softmax"), [value("x", (2, 3))])
    assert planned(network, tmp_path, target).quantizer("y").fixed_range == (0.0, 0.99609375)
    wide = planned(network, tmp_path, target, "softmax=s16").quantizer("y")
    assert (wide.spec.dtype, wide.fixed_range) == ("s16", (0.0, 0.999969482421875))


def test_constant_operands_are_quantized_like_activations(tmp_path: Path) -> None:
    plan = planned(NETWORKS["attention"](), tmp_path, "generic-int8")
    root = plan.quantizer("root")
    assert (root.kind, root.spec.dtype, root.spec.axis) == ("weight", "u8", None)


def test_products_of_two_activations_have_signed_operands(tmp_path: Path) -> None:
    plan = planned(NETWORKS["attention"](), tmp_path, "axera-ax650")
    # Read by nobody else: signed where it is computed.
    assert plan.quantizer("q_b").spec.dtype == "s8"
    assert plan.quantizer("q_b").after == ""
    assert str(plan.node("query_bias").reason) == "its output is stored as s8: scores reads it as s8"
    # The transposed key feeds nothing but the product, so it does not share the scale of its input.
    assert (plan.quantizer("k").spec.dtype, plan.quantizer("k_t").spec.dtype) == ("u8", "s8")
    assert plan.quantizer("k").group == plan.quantizer("k_t").group == ""
    # x is fed, and read by others as it is: a quantization of its own.
    assert plan.seen("mix", 1) == "s8"
    assert plan.seen("residual", 1) == plan.seen("query", 0) == "u8"
    assert plan.quantizer("x@mix").after == ""
    half = plan.quantizer("q_b").spec
    assert (half.symmetric, half.symmetric_scale, half.code_min) == (True, "half_span", -128)


def test_a_signed_operand_that_others_read_is_a_copy(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["a"], name="gate"),
        helper.make_node("MatMul", ["a", "a"], ["b"], name="square"),
        helper.make_node("Add", ["a", "b"], ["y"], name="add"),
    ]
    plan = planned(wrapped(nodes, [value("x", (3, 3))], [value("y")]), tmp_path, "axera-ax650")
    assert plan.quantizer("a").spec.dtype == "u8"
    copy = plan.quantizer("a@square")
    assert (copy.spec.dtype, copy.after) == ("s8", "a")
    assert copy.consumers == (Consumer("square", 0), Consumer("square", 1))


def test_only_inputs_are_quantized_where_results_are_float(tmp_path: Path) -> None:
    plan = planned(models.conv_net(), tmp_path, "ascend")
    assert plan.names == ["image", "w1", "relu1", "w2", "flat", "w3", "b3"]
    assert plan.precision("Conv1") == ("s8", "s8", "float")
    assert str(plan.node("Relu1").reason) == "ascend has no integer Relu"
    # One scale for a full connection.
    assert plan.quantizer("w3").spec.axis is None
    assert plan.quantizer("b3").spec.axis is None


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"transA": 1}, "its input is transposed (transA)"),
        ({"alpha": 0.5}, "its alpha is not 1"),
        ({"beta": 0.5}, "its beta is not 1"),
    ],
)
def test_nodes_that_do_not_fulfil_a_need_stay_in_float(
    attributes: dict[str, float], reason: str, tmp_path: Path
) -> None:
    gemm = helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="gemm", **attributes)
    network = models.single_node(gemm, [value("x", (4, 4))], [weight("w", 4, 4), weight("b", 4)])
    plan = planned(network, tmp_path, "ascend")
    assert plan.names == []
    assert str(plan.node("gemm").reason) == f"ascend has no integer version of it: {reason}"


def test_a_live_weight_needs_no_constant_everywhere(tmp_path: Path) -> None:
    conv = helper.make_node("Conv", ["x", "w"], ["y"], name="conv")
    network = models.single_node(conv, [value("x", (1, 3, 4, 4)), value("w", (2, 3, 1, 1))])
    assert "its weight is not constant" in str(planned(network, tmp_path, "ascend").node("conv").reason)
    plan = planned(network, tmp_path, "axera-ax650")
    assert [plan.seen("conv", place) for place in (0, 1)] == ["s8", "s8"]


def test_biases_of_transposed_convolutions_fit_their_scales(tmp_path: Path) -> None:
    plan = planned(NETWORKS["transposed"](), tmp_path, "generic-int8")
    assert plan.quantizer("w1").spec.axis == 1
    assert plan.quantizer("w2").spec.axis is None
    assert "with 2 groups no axis holds its output channels" in str(plan.node("grouped").reason)
    assert plan.quantizer("b2").spec.axis is None
    assert plan.quantizer("w3").spec.axis == 0
    assert plan.quantizer("b3").spec.axis == 0
    assert plan.quantizer("w4").spec.axis == 0
    assert str(plan.node("scaled").reason) == "its bias stays in float: alpha or beta is not 1"
    assert str(plan.node("one_bias").reason) == "its bias stays in float: it has not one element per scale"
    assert {"b5", "b6"}.isdisjoint(plan.names)


@pytest.mark.parametrize(
    ("inputs", "shape", "axis"),
    [(["x", "w"], (4, 5), 1), (["x", "w"], (2, 4, 5), 2), (["w", "x"], (5, 4), 0), (["x", "w"], (4,), None)],
)
def test_the_axis_of_a_matmul_is_that_of_its_result(
    inputs: list[str], shape: tuple[int, ...], axis: int | None, tmp_path: Path
) -> None:
    network = models.single_node(
        helper.make_node("MatMul", inputs, ["y"], name="fc"), [value("x", (2, 4, 4))], [weight("w", *shape)]
    )
    assert planned(network, tmp_path, "generic-int8").quantizer("w").spec.axis == axis


def test_shared_initializers_have_a_quantizer_for_each_way_they_are_read(tmp_path: Path) -> None:
    plan = planned(NETWORKS["shared_weights"](), tmp_path, "generic-int8")
    assert plan.quantizer("w").consumers == (Consumer("left", 1), Consumer("right", 1))
    operand = plan.quantizer("w@odd")
    assert (operand.spec.dtype, operand.consumers) == ("u8", (Consumer("odd", 1),))
    assert plan.quantizer("b").scale_of == ("x", "w")
    assert plan.quantizer("b@right").scale_of == ("z", "w")


def test_shapes_indices_and_limits_are_not_quantized(tmp_path: Path) -> None:
    plan = planned(NETWORKS["shape_games"](), tmp_path, "generic-int8")
    assert {"growth", "size_f", "grown", "low", "high"}.isdisjoint({each.tensor for each in plan.plan.quantizers})
    assert plan.precision("grow") == plan.precision("shape") == ("", "", "")
    assert plan.precision("argmax") == ("float", "", "")
    assert str(plan.node("topk").reason) == "generic-int8 has no integer TopK"
    # A table that is looked up in is passed on with its own scale.
    table = plan.quantizer("table")
    assert (table.kind, table.group) == ("weight", plan.quantizer("looked_up").group)
    # How the Resize is sized does not depend on values, but the Resize passes them on.
    assert plan.quantizer("big").group == plan.quantizer("a").group


def test_odd_tensors_are_left_alone(tmp_path: Path) -> None:
    plan = planned(NETWORKS["odd_sizes"](), tmp_path, "generic-int8")
    assert {"nothing", "still_nothing", "mask", "fixed"}.isdisjoint(plan.names)
    assert str(plan.node("mask").reason) == "its constant 'mask' holds values that are not finite"
    assert {"total", "two", "twice"} <= set(plan.names)


def test_unknown_operations_stay_in_float_and_those_behind_do_not(tmp_path: Path) -> None:
    plan = planned(NETWORKS["custom_operation"](), tmp_path, "generic-int8")
    assert plan.node("mystery").op_type == "example.com.Mystery"
    assert str(plan.node("mystery").reason) == "generic-int8 has no integer example.com.Mystery"
    assert plan.seen("mystery", 0) == "u8"
    assert plan.seen("after", 0) == "u8"


def test_half_precision_is_quantized_too(tmp_path: Path) -> None:
    plan = planned(NETWORKS["half_precision"](), tmp_path, "generic-int8")
    assert plan.names == ["x", "w", "b", "y"]


def test_outputs_stay_in_float_where_the_target_says_so(tmp_path: Path) -> None:
    plan = planned(models.conv_net(), tmp_path, "tensorrt-like")
    assert "logits" not in plan.names
    assert plan.precision("Classifier") == ("s8", "s8", "float")
    assert str(plan.node("Classifier").reason) == ""
    # Its biases are float.
    assert all(each.kind != "bias" for each in plan.plan.quantizers)


def test_methods_are_those_asked_for_or_the_targets_own(tmp_path: Path) -> None:
    own = planned(models.conv_net(), tmp_path, "ascend")
    assert {(each.kind, each.method) for each in own.plan.quantizers} == {
        ("activation", "ifmr"),
        ("weight", "minmax"),
        ("bias", ""),
    }
    other = planned(models.conv_net(), tmp_path, "ascend", method="mse", weight_method="percentile")
    assert (other.quantizer("image").method, other.quantizer("w1").method) == ("mse", "percentile")


def test_scalar_constants_behind_constant_nodes_count_as_constants(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["two"], name="two", value_float=2.0),
        helper.make_node("Mul", ["x", "two"], ["y"], name="double"),
    ]
    plan = planned(wrapped(nodes, [value("x", (2, 3))], [value("y")]), tmp_path, "generic-int8")
    assert plan.quantizer("two").kind == "weight"
    assert [each.node for each in plan.plan.nodes] == ["double"]


def test_fused_sequences_prefer_the_longest(tmp_path: Path) -> None:
    text = 'extends = "generic-int8"\nfusions = [["Conv", "Relu"], ["Conv", "Relu", "Mul"], ["Conv", "relu6"]]'
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Mul", ["b", "two"], ["y"], name="mul"),
    ]
    network = wrapped(
        nodes, [value("x", (1, 3, 4, 4))], [value("y")], [weight("w", 2, 3, 1, 1), scalar("two", 2.0)]
    )
    plan = planned(network, tmp_path, target_like(tmp_path, text))
    assert plan.units() == {"conv": ["conv", "relu", "mul"]}
    # A constant inside a unit belongs to the function it computes.
    assert plan.names == ["x", "w", "y"]
