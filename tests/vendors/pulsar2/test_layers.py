"""layer_configs: what entries name, which of them counts, and why a request is not followed."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from roundoff.errors import BadInput
from roundoff.graph.preparation.steps import prepare
from roundoff.quantize.targets.files import load_target
from roundoff.vendors.pulsar2.config.schema import BuildConfig, LayerConfig, QuantConfig
from roundoff.vendors.pulsar2.config.schema import DataType as D
from roundoff.vendors.pulsar2.frontend import Frontend, MadeName, with_vendor_names
from roundoff.vendors.pulsar2.layer_configs import (
    NodeOutcome,
    ResolvedEntry,
    ResolvedLayers,
    refuse_unknown,
    resolution_json,
    resolution_table,
    resolve_layers,
)
from tests.models import loaded
from tests.vendors.pulsar2.nets import attentive, mixed_model

WHOLE: dict[str, Any] = {"start_tensor_names": ("DEFAULT",), "end_tensor_names": ("DEFAULT",)}


@pytest.fixture(scope="module")
def frontend(tmp_path_factory: pytest.TempPathFactory) -> Frontend:
    model = mixed_model(tmp_path_factory.mktemp("net"))
    return Frontend(model, prepare(model), load_target("axera-ax650"))


def resolved(frontend: Frontend, *configs: LayerConfig) -> ResolvedLayers:
    return resolve_layers(configs, frontend)


def only(frontend: Frontend, config: LayerConfig) -> ResolvedEntry:
    [entry] = resolved(frontend, config).entries
    return entry


def outcome(entry: ResolvedEntry, node: str) -> NodeOutcome:
    return next(each for each in entry.nodes if each.node == node)


# Requests that are followed -------------------------------------------------------------------------------------


def test_a_named_layer(frontend: Frontend) -> None:
    entry = only(frontend, LayerConfig(layer_name="conv2", data_type=D.U16))
    [node] = entry.nodes
    assert (node.applied, node.effective.activation, node.effective.weight) == (True, "u16", "s8")


def test_several_layers_and_types(frontend: Frontend) -> None:
    entry = only(frontend, LayerConfig(layer_names=("conv1", "conv3"), data_type=D.S16))
    assert [node.effective.activation for node in entry.nodes] == ["s16", "s16"]
    entry = only(frontend, LayerConfig(op_types=("Conv", "Add"), data_type=D.U16))
    assert [node.node for node in entry.nodes] == ["conv1", "conv2", "add1", "conv3"]
    assert entry.applied == 4


def test_the_whole_model_in_16_bits(frontend: Frontend) -> None:
    result = resolved(frontend, LayerConfig(**WHOLE, data_type=D.U16))
    activations = [each for each in result.plan.quantizers if each.kind == "activation"]
    assert {each.spec.bits for each in activations} == {16}
    # Operands of a product of two activations are signed whatever is asked for.
    assert {each.spec.dtype for each in activations} == {"u16", "s16"}
    assert next(each for each in activations if each.tensor == "logits").spec.dtype == "u16"
    assert {each.spec.bits for each in result.plan.quantizers if each.kind == "weight"} == {8}


def test_a_part_of_the_graph(frontend: Frontend) -> None:
    entry = only(frontend, LayerConfig(start_tensor_names=("a1",), end_tensor_names=("s1",), data_type=D.U16))
    assert [node.node for node in entry.nodes] == ["conv2", "add1"]


def test_all_in_float_except_convolutions(frontend: Frontend) -> None:
    convolutions = LayerConfig(op_type="Conv", data_type=D.U8, output_data_type=D.FP32)
    result = resolved(frontend, convolutions, LayerConfig(**WHOLE, data_type=D.FP32))
    first, second = result.entries
    assert first.applied == 3
    assert {node.effective.output for node in first.nodes} == {"float"}
    assert outcome(second, "add1").applied
    assert "entry 1 (op_type) counts more" in outcome(second, "conv1").why


def test_float_weights_of_a_convolution(frontend: Frontend) -> None:
    entry = only(frontend, LayerConfig(layer_name="conv2", weight_data_type=D.FP32))
    assert (outcome(entry, "conv2").applied, outcome(entry, "conv2").effective.weight) == (True, "float")


def test_float_weights_stay_where_float_values_are_refused(frontend: Frontend) -> None:
    alone = resolved(frontend, LayerConfig(op_type="Conv", weight_data_type=D.FP32)).entries[0]
    both = resolved(
        frontend,
        LayerConfig(op_type="Conv", weight_data_type=D.FP32),
        LayerConfig(layer_names=tuple(node.node for node in alone.nodes), data_type=D.FP32),
    ).entries
    assert both[0].applied == alone.applied > 0
    assert both[1].applied == 0
    assert all("FP32 is not verified for Conv" in node.why for node in both[1].nodes)


def test_the_frontends_own_types(frontend: Frontend) -> None:
    entry = only(frontend, LayerConfig(op_type="FullyConnected", data_type=D.U16))
    assert [node.node for node in entry.nodes] == ["classifier"]


# The questions of the manual ------------------------------------------------------------------------------------


def test_an_operation_in_16_bits_whose_output_is_8(frontend: Frontend) -> None:
    node = outcome(only(frontend, LayerConfig(layer_name="conv2", data_type=D.U16)), "conv2")
    assert (node.applied, node.effective.output) == (True, "u8")
    assert node.why == "its output is U8, and the precision table shows that, because add1 reads it as U8"


def test_a_type_that_only_moves_data(frontend: Frontend) -> None:
    entry = only(frontend, LayerConfig(op_types=("Reshape", "Flatten"), data_type=D.U16))
    assert entry.applied == 0
    assert outcome(entry, "flatten").why == (
        "it only moves data, so the operation behind it decides: U8, as classifier reads it"
    )


def test_a_name_or_type_that_is_not_in_the_optimized_model(frontend: Frontend) -> None:
    folded = only(frontend, LayerConfig(op_type="BatchNormalization", data_type=D.U16))
    assert outcome(folded, "bn1").why == "it is not in the optimized model: it is folded into conv1 (Conv)"
    fused = only(frontend, LayerConfig(op_type="Relu", data_type=D.U16))
    assert outcome(fused, "relu1").why == "it is fused into conv1: ask for Conv, or for it by name"
    assert (folded.applied, fused.applied) == (0, 0)


# Other requests that are not followed ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["relu1", "bn1"])
def test_a_name_that_was_merged_means_the_whole(frontend: Frontend, name: str) -> None:
    result = resolved(frontend, LayerConfig(layer_name=name, data_type=D.U16))
    node = outcome(result.entries[0], name)
    assert (node.applied, node.effective.activation) == (True, "u16")
    assert node.why.startswith("it is computed as one with conv1, for which it is taken")
    assert next(each for each in result.plan.nodes if each.node == "conv1").effective.activation == "u16"


def test_an_unlisted_concat_takes_its_producers_along(frontend: Frontend) -> None:
    node = outcome(only(frontend, LayerConfig(op_type="Add", data_type=D.U16)), "add1")
    assert (node.applied, node.effective.output) == (True, "u8")
    assert node.why == "its output is U8: concat1 has one scale with all it joins; ask for it too"
    both = only(frontend, LayerConfig(op_types=("Add", "Concat"), data_type=D.U16))
    assert outcome(both, "add1").effective.output == "u16"


def test_float_is_for_verified_operations(frontend: Frontend) -> None:
    entry = only(frontend, LayerConfig(op_types=("MatMul", "Softmax", "Conv"), data_type=D.FP32))
    assert outcome(entry, "softmax1").applied
    assert outcome(entry, "scores").why == "FP32 is not verified for MatMul; settled as S8"
    assert outcome(entry, "conv1").why == "FP32 is not verified for Conv; settled as U8"


def test_float_weights_are_for_convolutions(frontend: Frontend) -> None:
    entry = only(frontend, LayerConfig(op_types=("Gemm", "Add"), weight_data_type=D.FP32))
    assert outcome(entry, "classifier").why == "weight FP32 refused: only Conv can have it; settled as S8"
    entry = only(frontend, LayerConfig(op_type="Conv", weight_data_type=D.S32))
    assert outcome(entry, "conv1").why == "weight S32 refused: weights are S8 or FP32; settled as S8"


def test_names_that_name_nothing_are_refused_together(frontend: Frontend) -> None:
    configs = [
        LayerConfig(layer_names=("conv22", "op_12:onnx.Gelu"), data_type=D.U16),
        LayerConfig(start_tensor_names=("conv1",), end_tensor_names=("DEFAULT",), data_type=D.U16),
        LayerConfig(start_tensor_names=("s1",), end_tensor_names=("a1",), data_type=D.U16),
        LayerConfig(op_type="Softmaxx", data_type=D.FP32),
    ]
    result = resolved(frontend, *configs)
    with pytest.raises(BadInput) as error:
        refuse_unknown(result)
    text = error.value.what
    assert "layer_configs[0]: 'conv22': did you mean 'conv2'?" in text
    assert (
        "'op_12:onnx.Gelu': the vendor's frontend made this name, and 1 of 0 Gelu operators are named so" in text
    )
    assert "layer_configs[1]: 'conv1': it is a node, and tensors are asked for: its output is 'n1'" in text
    assert "layer_configs[2]: 's1 .. a1': check the order" in text
    # A type that does not occur is told, as one list of types may serve many models.
    assert "Softmaxx" not in text
    assert result.entries[3].unknown["Softmaxx"] == "the model has no such operation; did you mean 'Softmax'?"


# Names that the vendor's frontend made up ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def attention(tmp_path_factory: pytest.TempPathFactory) -> Frontend:
    model = loaded(attentive(), tmp_path_factory.mktemp("net"))
    return Frontend(model, prepare(model), load_target("axera-ax650"))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("op_173:onnx.Softmax_0", (173, "Softmax", "", 0)),
        ("op_414:onnx.FullyConnected_q_11", (414, "FullyConnected", "q", 11)),
        ("op_821:onnx.AxFullyConnected_v_4", (821, "FullyConnected", "v", 4)),
        ("op_173:onnx.MatMul_qkv_3", (173, "MatMul", "qkv", 3)),
        ("op_1:onnx.Silu", (1, "Swish", "", None)),
        ("op_111:onnx.LayerNormalization", (111, "LayerNormalization", "", None)),
    ],
)
def test_the_parts_of_a_published_name(text: str, parts: tuple[int, str, str, int | None]) -> None:
    made = MadeName.parse(text)
    assert made is not None
    assert (made.number, made.kind, made.role, made.head) == parts


def test_other_names_are_no_such_names() -> None:
    assert not any(map(MadeName.parse, ["Softmax_0", "op_1", "op_x:onnx.Mul", "/op_1:onnx.Mul/Conv"]))


def test_parts_of_attentions_are_told_by_type_and_order(attention: Frontend) -> None:
    asked = {
        "op_30:onnx.Softmax_0": "softmax_0", "op_31:onnx.Softmax_3": "softmax_1",
        "op_30:onnx.MatMul_qkv_1": "context_0", "op_31:onnx.MatMul_qk_0": "scores_1",
        "op_31:onnx.Mul_2": "scale_1", "op_30:onnx.FullyConnected_q_0": "q_0",
        "op_31:onnx.FullyConnected_k_0": "k_1", "op_31:onnx.FullyConnected_v_1": "v_1",
    }  # fmt: skip
    configs = [LayerConfig(layer_name=name, data_type=D.U16) for name in asked]
    for entry, expected in zip(resolved(attention, *configs).entries, asked.values(), strict=True):
        [node] = entry.nodes
        assert (node.node, node.applied) == (expected, True)
        assert "told by type and order from the vendor's name" in node.why


def test_what_cannot_be_told_is_refused_and_says_how(attention: Frontend) -> None:
    """Some of several are named: it may be any of them."""
    entry = only(attention, LayerConfig(layer_names=("op_9:onnx.Softmax_0",), data_type=D.U16))
    assert not entry.nodes
    assert "1 of 2 attention operators are named so" in entry.unknown["op_9:onnx.Softmax_0"]
    assert "--frontend" in entry.unknown["op_9:onnx.Softmax_0"]
    gap = only(
        attention,
        LayerConfig(
            layer_names=tuple(f"op_{number}:onnx.FullyConnected" for number in (1, 2, 3)), data_type=D.U16
        ),
    )
    assert len(gap.unknown) == 3


def test_the_vendors_own_model_decides_where_it_is_given(
    attention: Frontend, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its numbers run backwards here: by order, each name would mean the other one."""
    vendor = attentive()
    names = {"softmax_0": "op_5:onnx.Softmax_0", "softmax_1": "op_4:onnx.Softmax_0"}
    for node in vendor.graph.node:
        node.name = names.get(node.name, node.name)
    path = loaded(vendor, tmp_path_factory.mktemp("vendor")).path
    asked = LayerConfig(layer_names=("op_4:onnx.Softmax_0",), data_type=D.U16)
    config = BuildConfig(quant=QuantConfig(layer_configs=(asked,)))
    [known] = with_vendor_names(config, path).quant.layer_configs
    [node] = only(attention, known).nodes
    assert (node.node, node.applied, "told by" in node.why) == ("softmax_1", True, False)
    assert with_vendor_names(config, None) == config


# Precedence -----------------------------------------------------------------------------------------------------

ENTRIES = (
    LayerConfig(layer_name="conv2", data_type=D.U8),
    LayerConfig(op_type="Conv", data_type=D.U16),
    LayerConfig(**WHOLE, data_type=D.S16),
)


@given(st.permutations(ENTRIES))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=6)
def test_precedence_does_not_depend_on_the_order(frontend: Frontend, order: Sequence[LayerConfig]) -> None:
    plan = resolved(frontend, *order).plan
    found = {node.node: node.effective.activation for node in plan.nodes}
    assert (found["conv2"], found["conv1"], found["conv3"], found["add1"]) == ("u8", "u16", "u16", "s16")


def test_of_two_alike_the_later_counts(frontend: Frontend) -> None:
    first, second = (LayerConfig(layer_name="conv2", data_type=dtype) for dtype in (D.U16, D.S16))
    entries = resolved(frontend, first, second).entries
    assert [entry.applied for entry in entries] == [0, 1]
    assert entries[0].nodes[0].why == "entry 2 (layer) counts more"


SELECTORS = st.sampled_from(
    [{"op_type": name} for name in ("Conv", "Add", "MatMul", "Softmax", "Gemm", "Concat", "Reshape", "Relu")]
    + [{"layer_name": name} for name in ("conv1", "relu1", "scores", "flatten", "classifier")]
    + [WHOLE]
)
DTYPES = st.sampled_from([D.U8, D.S8, D.U16, D.S16, D.FP32])


@given(st.lists(st.tuples(SELECTORS, DTYPES), min_size=1, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
def test_what_is_said_to_be_in_effect_is(frontend: Frontend, asked: list[tuple[dict[str, Any], D]]) -> None:
    result = resolved(frontend, *(LayerConfig(**selector, data_type=dtype) for selector, dtype in asked))
    plans = {node.node: node for node in result.plan.nodes}
    for entry, (_, dtype) in zip(result.entries, asked, strict=True):
        for node in entry.nodes:
            # Every request that is not followed has a reason.
            assert node.applied or node.why
            found = plans[plans[node.node].unit].effective.activation
            if node.applied and dtype is D.FP32:
                assert found == "float"
            elif node.applied:
                assert {each[1:] for each in found.split("/")} == {dtype.name[1:]}


# Told -----------------------------------------------------------------------------------------------------------


def test_the_table_fits_the_terminal_and_cuts_nothing(frontend: Frontend) -> None:
    entries = resolved(frontend, *ENTRIES, LayerConfig(op_type="Reshape", data_type=D.U16)).entries
    for width in (80, 160):
        lines = resolution_table(entries, width=width).split("\n")
        assert max(map(cell_len, lines)) <= width
        assert not any("…" in line for line in lines)
    assert "1 of 1" in resolution_table(entries)
    assert "reshape1 NOT applied: it only moves data" in resolution_table(entries)


def test_the_same_as_data(frontend: Frontend) -> None:
    [found] = resolution_json(resolved(frontend, LayerConfig(op_type="Conv", data_type=D.U16)).entries)
    assert (found["entry"], found["kind"], found["requested"]) == (0, "op_type", "U16")
    assert (found["matched"], found["applied"]) == (3, 3)
    assert found["nodes"][0] | {"why": ""} == {
        "node": "conv1", "op_type": "Conv", "applied": True, "data_type": "U16", "weight_data_type": "S8",
        "output_data_type": "U8", "why": "",
    }  # fmt: skip


def test_stronger_kinds_first() -> None:
    from roundoff.vendors.pulsar2.layer_configs import LayerEntry

    strengths = [LayerEntry(9 - place, config, {}).strength for place, config in enumerate(ENTRIES)]
    assert all(left > right for left, right in pairwise(strengths))
