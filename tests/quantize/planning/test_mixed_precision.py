"""What rules do: to the nodes they name, to neighbours, and what they say when they cannot."""

from pathlib import Path

import pytest
from onnx import helper

from roundoff.core.plan import Precision, Rule
from roundoff.core.quantizers import Consumer
from roundoff.errors import BadInput
from roundoff.quantize.planning.planner import plan_quantization
from roundoff.quantize.targets.files import load_target
from tests import models
from tests.models import loaded, value, weight, wrapped
from tests.quantize.planning.networks import NETWORKS
from tests.quantize.planning.support import SHARING, english, planned, target_like


def chain(length: int = 3) -> object:
    """Convolutions in a row: x -> t1 -> t2 -> ..."""
    names = ["x", *(f"t{place + 1}" for place in range(length))]
    nodes = [
        helper.make_node("Conv", [names[place], "w"], [names[place + 1]], name=f"c{place + 1}")
        for place in range(length)
    ]
    return wrapped(nodes, [value("x", (1, 3, 4, 4))], [value(names[-1])], [weight("w", 3, 3, 1, 1)])


def test_a_node_in_sixteen_bits(tmp_path: Path) -> None:
    plan = planned(chain(), tmp_path, "generic-int8", "c2=u16")
    assert plan.precision("c2") == ("u16", "s8", "u16")
    # Its only reader wants 16 bits, so that is what c1 writes.
    assert plan.quantizer("t1").spec.dtype == "u16"
    assert str(plan.node("c1").reason) == "its output is stored as u16: c2 reads it as u16"
    # c3 was not asked to change: it reads a copy in 8 bits.
    assert plan.quantizer("t2").consumers == ()
    copy = plan.quantizer("t2@c3")
    assert (copy.spec.dtype, copy.after, copy.consumers) == ("u8", "t2", (Consumer("c3", 0),))
    assert plan.plan.resolutions[0].applied == ("c2",)


def test_only_the_inputs_of_a_node(tmp_path: Path) -> None:
    plan = planned(chain(), tmp_path, "generic-int8", "c2=activation=u16")
    assert plan.precision("c2") == ("u16", "s8", "u8")
    assert plan.quantizer("t2").spec.dtype == "u8"
    assert "t2@c3" not in plan.names


def test_readers_that_differ_read_copies_of_the_widest(tmp_path: Path) -> None:
    plan = planned(models.residual(), tmp_path, "generic-int8", "body=activation=u16")
    # "a" is read by body in 16 bits and by add in 8.
    assert plan.quantizer("a").spec.dtype == "u16"
    assert plan.quantizer("a@add").after == "a"
    assert plan.precision("add") == ("u8", "", "u8")
    assert "body reads it as u16" in str(plan.node("stem").reason)


def test_a_fed_tensor_is_quantized_for_each_reader(tmp_path: Path) -> None:
    plan = planned(models.branches(), tmp_path, "generic-int8", "wide=activation=u16")
    found = {
        each.spec.dtype: (each.after, each.consumers) for each in plan.plan.quantizers if each.tensor == "image"
    }
    assert found == {"u16": ("", (Consumer("wide", 0),)), "u8": ("", (Consumer("narrow", 0),))}


def test_a_node_in_float(tmp_path: Path) -> None:
    plan = planned(chain(), tmp_path, "generic-int8", "c2=float")
    assert plan.precision("c2") == ("float", "float", "float")
    # Nobody else reads what c1 writes, so it is not rounded.
    assert "t1" not in plan.names
    assert plan.precision("c1") == ("u8", "s8", "float")
    # c3 quantizes what it reads.
    assert plan.quantizer("t2").after == ""
    assert plan.seen("c3", 0) == "u8"
    assert plan.plan.resolutions[0].applied == ("c2",)


def test_what_others_read_or_a_rule_names_is_stored_for_a_node_in_float(tmp_path: Path) -> None:
    asked = planned(chain(), tmp_path, "generic-int8", "c2=float", "c1=output=u16")
    assert asked.quantizer("t1").spec.dtype == "u16"
    named = planned(chain(), tmp_path, "generic-int8", "c2=float", "tensor:t1=u8")
    assert named.quantizer("t1").consumers == (Consumer("c2", 0),)


def test_scores_are_float_for_a_softmax_in_float(tmp_path: Path) -> None:
    plan = planned(NETWORKS["attention"](), tmp_path, "generic-int8", "softmax=float")
    assert plan.precision("softmax") == ("float", "", "float")
    assert plan.seen("softmax", 0) == "float"
    assert plan.precision("scale")[2] == "float"
    assert plan.seen("mix", 0) == "u8"


def test_operations_in_any_case_of_letters(tmp_path: Path) -> None:
    for rule in ("op:conv=u16", "CONV=u16"):
        plan = planned(models.conv_net(), tmp_path, "generic-int8", rule)
        assert plan.plan.resolutions[0].matched == ("Conv1", "Conv2")


def test_a_float_output_of_an_integer_node(tmp_path: Path) -> None:
    plan = planned(chain(), tmp_path, "generic-int8", "c1=output=float", "c2=float")
    assert plan.precision("c1") == ("u8", "s8", "float")
    assert "t1" not in plan.names
    assert str(plan.node("c2").reason) == ""


def test_weights_alone(tmp_path: Path) -> None:
    plan = planned(chain(), tmp_path, "generic-int8", "c2=weight=s4", "c3=weight=float", "c1=activation=float")
    assert plan.precision("c1") == ("float", "s8", "float")
    assert plan.precision("c2") == ("u8", "s4", "u8")
    assert plan.precision("c3") == ("u8", "float", "u8")
    # One initializer, quantized in two ways and once not at all.
    found = {each.spec.dtype: each.consumers for each in plan.plan.quantizers if each.tensor == "w"}
    assert found == {"s8": (Consumer("c1", 1),), "s4": (Consumer("c2", 1),)}


def test_a_fused_node_has_only_the_parts_that_exist(tmp_path: Path) -> None:
    plan = planned(models.conv_net(), tmp_path, "generic-int8", "op:Relu=u16")
    # What Conv1 hands to Relu1 does not exist; what Relu1 writes does.
    assert plan.precision("Relu1") == ("", "", "u16")
    assert plan.precision("Conv1") == ("u8", "s8", "")
    assert plan.plan.resolutions[0].applied == ("Relu1", "Relu2")


def test_what_is_asked_for_the_first_node_is_for_the_whole_unit(tmp_path: Path) -> None:
    plan = planned(models.conv_net(), tmp_path, "generic-int8", "Conv1=u16")
    assert plan.precision("Conv1") == ("u16", "s8", "")
    assert plan.precision("Relu1") == ("", "", "u16")
    assert plan.node("Relu1").requested.output == "u8"
    assert str(plan.node("Relu1").reason) == "it is computed as one with Conv1, for which 'Conv1=u16' asks for u16"
    assert plan.plan.resolutions[0].applied == ("Conv1",)


def test_what_is_asked_for_the_last_node_counts_for_the_output(tmp_path: Path) -> None:
    plan = planned(models.conv_net(), tmp_path, "generic-int8", "Relu1=s16", "Conv1=u16")
    assert plan.precision("Conv1")[0] == "u16"
    assert plan.precision("Relu1") == ("", "", "s16")
    last, first = plan.plan.resolutions
    assert last.applied == ("Relu1",)
    assert english(first.reasons) == {
        "Conv1": "it is computed as one with Relu1, for which 'Relu1=s16' asks for s16"
    }


def test_what_is_asked_for_a_tensor_between_fused_nodes_cannot_be(tmp_path: Path) -> None:
    rules = ["Relu1=activation=s16", "op:Erf=u16", "Conv1=output=s4"]
    expected = "it is computed as one with Conv1, and what is between them does not exist"
    plan = planned(models.conv_net(), tmp_path, "generic-int8", rules[0], rules[2])
    assert english(plan.plan.resolutions[0].reasons) == {"Relu1": expected}
    assert str(plan.node("Relu1").reason) == expected
    assert english(plan.plan.resolutions[1].reasons) == {
        "Conv1": "generic-int8 offers activations in u8, s8, u16, s16, not in s4"
    }
    inside = planned(NETWORKS["gelu_mlp"](), tmp_path, "generic-int8", rules[1])
    assert english(inside.plan.resolutions[0].reasons) == {"erf": expected.replace("Conv1", "fc1")}


def test_an_addition_in_float_leaves_the_product_it_is_the_bias_of_alone(tmp_path: Path) -> None:
    plan = planned(NETWORKS["attention"](), tmp_path, "generic-int8", "op:Add=float")
    assert plan.precision("residual") == ("float", "", "float")
    assert plan.precision("query") == ("u8", "s8", "")
    assert plan.precision("query_bias") == ("", "", "float")


def test_names_outrank_operations_and_operations_the_sub_graph(tmp_path: Path) -> None:
    rules = ["c2=s16", "op:Conv=u16", "between:DEFAULT..DEFAULT=s8"]
    plan = planned(chain(), tmp_path, "generic-int8", *rules)
    assert [plan.precision(name)[0] for name in ("c1", "c2", "c3")] == ["u16", "s16", "u16"]
    named, operation, everything = plan.plan.resolutions
    assert named.applied == ("c2",)
    assert english(operation.reasons) == {"c2": "'c2=s16' is more specific and counts more"}
    assert set(everything.reasons) == {"c1", "c2", "c3"}
    assert str(everything.reasons["c1"]) == "'op:Conv=u16' is more specific and counts more"


def test_a_star_is_the_whole_graph(tmp_path: Path) -> None:
    plan = planned(chain(), tmp_path, "generic-int8", "*=u16", "op:Conv=u8", "c*=s16")
    assert [plan.precision(name)[0] for name in ("c1", "c2")] == ["s16", "s16"]
    assert str(plan.plan.resolutions[1].reasons["c1"]) == "'c*=s16' is more specific and counts more"


def test_the_later_of_equal_rules_wins_and_says_so(tmp_path: Path) -> None:
    plan = planned(chain(), tmp_path, "generic-int8", "node:c2=u16", "c2=s16")
    assert plan.precision("c2")[0] == "s16"
    assert english(plan.plan.resolutions[0].reasons) == {"c2": "'c2=s16' comes later and counts more"}


def test_an_exact_name_outranks_a_pattern(tmp_path: Path) -> None:
    plan = planned(chain(), tmp_path, "generic-int8", "c2=s16", "c?=u16")
    assert plan.precision("c2")[0] == "s16"


def test_special_characters_in_names_are_taken_as_they_are(tmp_path: Path) -> None:
    network = wrapped(
        [
            helper.make_node("Sigmoid", ["x"], ["a"], name="layer[0]"),
            helper.make_node("Sigmoid", ["a"], ["y"], name="layer0"),
        ],
        [value("x", (2, 2))],
        [value("y")],
    )
    plan = planned(network, tmp_path, "generic-int8", "layer[0]=u16")
    assert plan.plan.resolutions[0].matched == ("layer[0]",)
    plan = planned(network, tmp_path, "generic-int8", "layer*=u16")
    assert plan.plan.resolutions[0].matched == ("layer[0]", "layer0")


def test_what_the_target_does_not_offer_is_refused_with_what_it_does(tmp_path: Path) -> None:
    plan = planned(chain(), tmp_path, "litert", "c1=u16", "c2=weight=s4")
    assert plan.precision("c1") == ("s8", "s8", "s8")
    assert english(plan.plan.resolutions[0].reasons) == {"c1": "litert offers activations in s8, not in u16"}
    assert english(plan.plan.resolutions[1].reasons) == {"c2": "litert offers weights in s8, not in s4"}
    assert plan.node("c1").requested == Precision("u16", "s8", "u16")


def test_a_refused_wish_leaves_room_for_the_next(tmp_path: Path) -> None:
    plan = planned(chain(), tmp_path, "axera-ax650", "op:Conv=float", "between:DEFAULT..DEFAULT=u16")
    assert plan.precision("c2") == ("u16", "s8", "u16")
    reason = str(plan.plan.resolutions[0].reasons["c2"])
    assert reason.startswith("axera-ax650 keeps Add, Concat, Div, LeakyRelu")
    assert reason.endswith("in float, not Conv")


def test_axera_keeps_the_output_and_the_weight_of_a_convolution_in_float(tmp_path: Path) -> None:
    plan = planned(chain(), tmp_path, "axera-ax650", "c1=output=float", "c2=weight=float")
    assert plan.precision("c1") == ("u8", "s8", "float")
    assert plan.precision("c2") == ("u8", "float", "u8")
    gemm = models.single_node(
        helper.make_node("Gemm", ["x", "w"], ["y"], name="fc"), [value("x", (2, 3))], [weight("w", 3, 3)]
    )
    refused = planned(gemm, tmp_path, "axera-ax650", "fc=weight=float").plan.resolutions[0]
    assert english(refused.reasons) == {
        "fc": "axera-ax650 keeps the weight of Conv in float, not the weight of Gemm"
    }


def test_a_dtype_can_be_limited_to_operations(tmp_path: Path) -> None:
    pool = helper.make_node("AveragePool", ["t1"], ["y"], name="pool", kernel_shape=[2, 2])
    conv = helper.make_node("Conv", ["x", "w"], ["t1"], name="conv")
    network = wrapped([conv, pool], [value("x", (1, 3, 4, 4))], [value("y")], [weight("w", 3, 3, 1, 1)])
    plan = planned(network, tmp_path, "ascend", "*=activation=s16")
    assert plan.precision("conv")[0] == "s16"
    assert english(plan.plan.resolutions[0].reasons) == {
        "pool": "ascend offers activations in s16 for Conv, ConvTranspose, Gemm, MatMul, not for AveragePool"
    }


def test_a_chip_without_float(tmp_path: Path) -> None:
    target = target_like(tmp_path, 'extends = "generic-int8"\n[float]\nallowed = false')
    plan = planned(chain(), tmp_path, target, "c2=float", "tensor:t1=float")
    assert plan.precision("c2") == ("u8", "s8", "u8")
    assert english(plan.plan.resolutions[0].reasons) == {"c2": "target cannot compute in float"}
    assert english(plan.plan.resolutions[1].reasons) == {"c1": "target cannot compute in float"}


def test_data_movement_follows_its_neighbours(tmp_path: Path) -> None:
    plan = planned(models.conv_net(), tmp_path, "generic-int8", "Flatten=u16")
    assert plan.precision("Flatten") == ("u8", "", "u8")
    assert english(plan.plan.resolutions[0].reasons) == {
        "Flatten": "it only passes values on, so its neighbours decide"
    }
    plan = planned(models.conv_net(), tmp_path, "generic-int8", "Classifier=u16")
    assert plan.precision("Flatten") == ("u16", "", "u16")
    assert plan.precision("Pool") == ("u8", "", "u16")


def test_live_operands_stay_signed(tmp_path: Path) -> None:
    plan = planned(NETWORKS["attention"](), tmp_path, "axera-ax650", "scores=u16")
    assert plan.precision("scores") == ("s16", "", "u16")
    assert english(plan.plan.resolutions[0].reasons) == {
        "scores": "axera-ax650 takes operands of products without a constant as s16"
    }


def test_a_shared_scale_takes_the_strongest_wish(tmp_path: Path) -> None:
    plan = planned(NETWORKS["detector_head"](), tmp_path, target_like(tmp_path, SHARING), "boxes=s16")
    tied = {each.spec.dtype for each in plan.plan.quantizers if each.group == "boxes"}
    assert tied == {"s16"}
    assert plan.precision("join") == ("s16", "", "s16")
    assert str(plan.node("join").reason).startswith(
        "it shares one scale with all it reads and writes: 'boxes=s16' asks for the output of boxes"
    )
    assert plan.plan.resolutions[0].applied == ("boxes",)


def test_or_the_operation_decides_and_drags_its_producers_back(tmp_path: Path) -> None:
    plan = planned(NETWORKS["detector_head"](), tmp_path, "axera-ax650", "op:Conv=u16")
    assert plan.precision("boxes") == ("u16", "s8", "u8")
    reasons = english(plan.plan.resolutions[0].reasons)
    assert reasons["boxes"] == "its output is stored as u8: join decides for all it shares a scale with"
    # The convolution that the Concat does not touch is in 16 bits.
    assert (plan.precision("stem"), plan.precision("act")) == (("u16", "s8", ""), ("", "", "u16"))


def test_a_concat_in_float_frees_what_it_joins(tmp_path: Path) -> None:
    plan = planned(NETWORKS["detector_head"](), tmp_path, "axera-ax650", "join=float")
    assert not {"boxes", "scores"} & set(plan.names)
    assert plan.precision("join") == ("float", "", "float")


def test_a_tensor_by_its_name(tmp_path: Path) -> None:
    plan = planned(chain(), tmp_path, "generic-int8", "tensor:t1=u16")
    assert plan.quantizer("t1").spec.dtype == "u16"
    assert plan.seen("c2", 0) == "u16"
    assert plan.node("c1").requested.output == "u16"
    assert str(plan.node("c2").reason) == "'tensor:t1=u16' names 't1'"
    assert plan.plan.resolutions[0].matched == plan.plan.resolutions[0].applied == ("c1",)


def test_a_tensor_in_float(tmp_path: Path) -> None:
    plan = planned(chain(), tmp_path, "generic-int8", "t1=float")
    assert "t1" not in plan.names
    assert plan.precision("c1") == ("u8", "s8", "float")
    assert plan.precision("c2") == ("float", "s8", "u8")
    assert plan.plan.resolutions[0].applied == ("c1",)


def test_an_input_of_the_network_and_a_weight_by_their_names(tmp_path: Path) -> None:
    plan = planned(models.conv_net(), tmp_path, "generic-int8", "image=u16", "w3=s4", "tensor:b3=float")
    assert plan.quantizer("image").spec.dtype == "u16"
    assert plan.quantizer("w3").spec.dtype == "s4"
    assert "b3" not in plan.names
    assert [each.matched for each in plan.plan.resolutions] == [("Conv1",), ("Classifier",), ("Classifier",)]
    assert [each.reasons for each in plan.plan.resolutions][:2] == [{}, {}]


def test_a_tensor_inside_a_unit_does_not_exist(tmp_path: Path) -> None:
    plan = planned(models.conv_net(), tmp_path, "generic-int8", "tensor:conv1=u16")
    assert english(plan.plan.resolutions[0].reasons) == {
        "Conv1": "'conv1' does not exist: what computes it is computed as one with Relu1"
    }


def test_the_later_of_two_rules_for_a_tensor_and_its_reader_counts(tmp_path: Path) -> None:
    plan = planned(chain(), tmp_path, "generic-int8", "tensor:t1=u16", "node:c2=activation=s16")
    assert plan.quantizer("t1").spec.dtype == "u16"
    assert plan.seen("c2", 0) == "s16"
    plan = planned(chain(), tmp_path, "generic-int8", "node:c2=activation=s16", "tensor:t1=u16")
    assert plan.seen("c2", 0) == "u16"
    assert english(plan.plan.resolutions[0].reasons) == {"c2": "'tensor:t1=u16' names 't1'"}


def test_a_part_that_another_rule_decides(tmp_path: Path) -> None:
    plan = planned(chain(), tmp_path, "generic-int8", "c2=float", "c2=weight=s4")
    assert plan.precision("c2") == ("float", "s4", "float")
    whole, part = plan.plan.resolutions
    assert (whole.applied, whole.reasons) == (("c2",), {})
    assert english(whole.remarks) == {"c2": "its weight is s4: 'c2=weight=s4' comes later and counts more"}
    assert (part.applied, part.reasons, part.remarks) == (("c2",), {}, {})


def test_an_output_that_nobody_reads_as_wide_as_asked(tmp_path: Path) -> None:
    nobody = "'t1' is stored as u16, but its reader c2 reads a copy in u8, so that nothing is gained: "
    for rule in ("c1=output=u16", "c1=u16"):
        (resolution,) = planned(chain(), tmp_path, "generic-int8", rule).plan.resolutions
        assert resolution.applied == ("c1",)
        assert english(resolution.remarks) == {"c1": f"{nobody}give it u16 too"}
    # Somebody reads it so, or it is a result of the network.
    for rules in (("c1=output=u16", "c2=activation=u16"), ("c3=output=u16",), ("tensor:t1=u16",)):
        assert english(planned(chain(), tmp_path, "generic-int8", *rules).plan.resolutions[0].remarks) == {}


def test_an_output_that_several_read_behind_what_passes_it_on(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="first"),
        helper.make_node("Transpose", ["a"], ["t"], name="turn", perm=[0, 1, 3, 2]),
        helper.make_node("Conv", ["t", "w"], ["b"], name="left"),
        helper.make_node("Conv", ["a", "w"], ["c"], name="right"),
        helper.make_node("Add", ["b", "c"], ["y"], name="sum"),
    ]
    net = wrapped(nodes, [value("x", (1, 3, 4, 4))], [value("y")], [weight("w", 3, 3, 1, 1)])
    (resolution,) = planned(net, tmp_path, "generic-int8", "first=output=u16").plan.resolutions
    assert "its readers left, right read a copy in u8, so that nothing is gained" in str(
        resolution.remarks["first"]
    )
    for reader in ("left", "right"):
        rules = ("first=output=u16", f"{reader}=activation=u16")
        assert english(planned(net, tmp_path, "generic-int8", *rules).plan.resolutions[0].remarks) == {}


def test_what_computes_no_values_says_so(tmp_path: Path) -> None:
    plan = planned(NETWORKS["shape_games"](), tmp_path, "generic-int8", "shape=u16", "tensor:size=u8")
    expected = "it computes shapes, indices or other whole numbers: there is nothing to quantize"
    assert english(plan.plan.resolutions[0].reasons) == {"shape": expected}
    assert english(plan.plan.resolutions[1].reasons) == {"shape": "the tensor 'size' holds no floats"}


def test_between_is_everything_on_the_way(tmp_path: Path) -> None:
    plan = planned(models.conv_net(), tmp_path, "generic-int8", "between:relu1..flat=u16")
    assert plan.plan.resolutions[0].matched == ("Conv2", "Relu2", "Pool", "Flatten")
    plan = planned(models.branches(), tmp_path, "generic-int8", "between:image..wide=u16")
    assert plan.plan.resolutions[0].matched == ("wide",)
    plan = planned(models.branches(), tmp_path, "generic-int8", "between:DEFAULT..wide,both=u16")
    assert plan.plan.resolutions[0].matched == ("wide", "narrow", "concat")


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("Conv9=u16", "'Conv9' matches nothing.\nfix: did you mean 'Conv"),
        ("node:relu1=u16", "names no node of .*\nfix: did you mean 'Relu1'"),
        ("tensor:Conv_1=u16", "names no tensor of"),
        ("op:cnv=u16", "names no operation of .*\nfix: did you mean 'Conv'"),
        ("zzz*=u16", "'zzz\\*' matches nothing"),
        ("between:image..relu9=u16", "'relu9', which is no tensor of .*\nfix: did you mean 'relu"),
        ("between:Conv1..flat=u16", "'Conv1' is a node; its output is 'conv1'"),
        ("between:flat..relu1=u16", "no node lies between these tensors"),
    ],
)
def test_a_selector_that_names_nothing_is_an_error(rule: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        planned(models.conv_net(), tmp_path, "generic-int8", rule)


def test_a_rule_that_asks_for_nothing_is_an_error(tmp_path: Path) -> None:
    model = loaded(models.conv_net(), tmp_path)
    with pytest.raises(BadInput, match="asks for nothing"):
        plan_quantization(model, load_target("generic-int8"), rules=[Rule("node", ("Conv1",), Precision())])


ORIGINS = {"conv_a": "Conv1", "bn_a": "Conv1", "Relu1": "Relu1", "shape_math": ""}


def test_nodes_go_by_their_names_in_the_users_model(tmp_path: Path) -> None:
    plan = planned(models.conv_net(), tmp_path, "generic-int8", "bn_a=u16", "op:Conv=u16", origins=ORIGINS)
    assert [each.node for each in plan.plan.nodes][:3] == ["conv_a", "Relu1", "Conv2"]
    assert plan.node("Relu1").unit == "conv_a"
    assert plan.plan.resolutions[0].matched == plan.plan.resolutions[0].applied == ("bn_a",)
    assert plan.plan.resolutions[1].matched == ("conv_a", "Conv2")
    # Quantizers belong to the graph they are put into.
    assert plan.quantizer("image").consumers == (Consumer("Conv1", 0),)
    assert str(plan.node("Relu1").reason) == "it is computed as one with conv_a, for which 'bn_a=u16' asks for u16"


def test_nodes_that_are_gone_can_still_be_named(tmp_path: Path) -> None:
    plan = planned(models.conv_net(), tmp_path, "generic-int8", "shape_math=u16", "Conv1=u16", origins=ORIGINS)
    assert english(plan.plan.resolutions[0].reasons) == {
        "shape_math": "it is no node of its own any more: what it computes was computed ahead of time"
    }
    assert plan.plan.resolutions[1].matched == ("Conv1",)


def test_all_in_float_but_some_operations(tmp_path: Path) -> None:
    plan = planned(models.conv_net(), tmp_path, "generic-int8", "*=float", "op:Conv=u8")
    assert (plan.precision("Conv2"), plan.precision("Relu2")) == (("u8", "s8", ""), ("", "", "u8"))
    assert plan.precision("Classifier") == ("float", "float", "float")
    assert str(plan.node("Conv2").reason) == ""
    everything, convolutions = plan.plan.resolutions
    assert str(everything.reasons["Conv2"]) == "'op:Conv=u8' is more specific and counts more"
    assert convolutions.applied == ("Conv1", "Conv2")


def biased() -> object:
    """A convolution and a product, each with a bias: x -> t -> y."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["t"], name="conv"),
        helper.make_node("MatMul", ["t", "v"], ["p"], name="product"),
        helper.make_node("Add", ["p", "c"], ["y"], name="plus"),
    ]
    constants = [weight("w", 3, 3, 1, 1), weight("b", 3), weight("v", 4, 4), weight("c", 4)]
    return wrapped(nodes, [value("x", (1, 3, 4, 4))], [value("y")], constants)


@pytest.mark.parametrize(("rule", "gone"), [("y=float", "y"), ("b=float", "b"), ("tensor:c=float", "c")])
def test_outputs_and_biases_can_be_left_in_float(rule: str, gone: str, tmp_path: Path) -> None:
    before = planned(biased(), tmp_path, "generic-int8")
    plan = planned(biased(), tmp_path, "generic-int8", rule)
    assert set(before.names) - set(plan.names) == {gone}
    (resolution,) = plan.plan.resolutions
    assert resolution.applied == resolution.matched
    assert len(resolution.matched) == 1


@pytest.mark.parametrize(("rule", "node"), [("b=s16", "conv"), ("c=s16", "plus"), ("b=weight=s8", "conv")])
def test_a_bias_has_no_other_width(rule: str, node: str, tmp_path: Path) -> None:
    plan = planned(biased(), tmp_path, "generic-int8", rule)
    (resolution,) = plan.plan.resolutions
    assert resolution.applied == ()
    asked = rule.rpartition("=")[2]
    assert english(resolution.reasons) == {node: f"{rule[0]!r} is s32: biases are s32 or float, not {asked}"}


@pytest.mark.parametrize("rule", ["b=s32", "c=s32"])
def test_a_bias_may_be_asked_for_what_it_is(rule: str, tmp_path: Path) -> None:
    (resolution,) = planned(biased(), tmp_path, "generic-int8", rule).plan.resolutions
    assert english(resolution.reasons) == {}


@pytest.mark.parametrize(
    ("target", "rule", "reason"),
    [
        ("tensorrt-like", "b=s32", "'b' is float: tensorrt-like keeps biases in float"),
        ("tensorrt-like", "y=s8", "'y' is float: tensorrt-like leaves outputs of the network in float"),
        ("ascend", "y=s8", "'y' is float: integer operations of ascend hand on float values"),
    ],
)
def test_targets_that_leave_biases_and_outputs_in_float(
    target: str, rule: str, reason: str, tmp_path: Path
) -> None:
    (resolution,) = planned(biased(), tmp_path, target, rule).plan.resolutions
    assert list(english(resolution.reasons).values()) == [reason]
