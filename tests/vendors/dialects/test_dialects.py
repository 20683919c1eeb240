"""What every dialect says, and what it says it cannot say."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx.numpy_helper import from_array, to_array

from roundoff.core.quantizers import QuantParams, quantize
from roundoff.errors import BadInput
from roundoff.graph.weights import Weights
from roundoff.vendors.dialects import DIALECTS, find_dialect, find_dialects
from roundoff.vendors.dialects.settings import Decisions, Made, decisions_of, graph_digest
from tests.vendors.dialects.support import RULES, decided


@pytest.fixture(scope="module")
def mixed_bits(tmp_path_factory: pytest.TempPathFactory) -> Decisions:
    return decided(tmp_path_factory.mktemp("net"), *RULES)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Decisions:
    return decided(tmp_path_factory.mktemp("net"))


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_writes_and_names_its_files(name: str, mixed_bits: Decisions) -> None:
    found = find_dialect(name).write(mixed_bits)
    assert found.files
    assert all(file.startswith("net") and text.endswith("\n") for file, text in found.files.items())
    # A script reads what lies beside it.
    scripts = [file for file in found.files if file.endswith(".py")]
    given = scripts or [file for file in found.files if file.endswith((".cfg", ".toml", ".encodings"))]
    assert all(file in found.use for file in given)
    assert "2 nodes in float" in found.said or name == "amct"
    for file, text in found.files.items():
        if file.endswith(".py"):
            compile(text, file, "exec")
        if file.endswith((".json", ".encodings")):
            json.loads(text)


@pytest.mark.parametrize("name", DIALECTS)
def test_without_wishes_no_node_is_named(name: str, plain: Decisions) -> None:
    found = find_dialect(name).write(plain)
    if name not in ("amct", "onnxruntime", "aimet", "tpu-mlir", "rknn"):
        assert not any("conv2" in text for text in found.files.values())
    assert "all nodes at 8 bits" in found.said or name == "amct"


@pytest.mark.parametrize("name", DIALECTS)
def test_corrected_weights_are_said_to_be_lost(name: str, plain: Decisions) -> None:
    values = Weights(plain.quantized.float_model)
    quantizers = tuple(
        replace(each, codes=quantize(values[each.tensor], each.params, each.spec))
        if each.kind == "weight"
        else each
        for each in plain.quantized.quantizers
    )
    changed = replace(plain.quantized, quantizers=quantizers)
    found = find_dialect(name).write(decisions_of(changed, plain.made))
    assert any("weights whose rounding was corrected" in each for each in found.missing)


@pytest.mark.parametrize("name", ["roundoff", "pulsar2", "horizon", "amct", "nncf"])
def test_tools_that_calibrate_are_said_to(name: str, plain: Decisions) -> None:
    missing = find_dialect(name).write(plain).missing
    assert any(each.startswith("the scales and zero points of") for each in missing)


@pytest.mark.parametrize(("name", "instead"), [("rknn", "float16"), ("tpu-mlir", "F16"), ("nncf", "float")])
def test_sixteen_bits_become_float_where_there_are_none(name: str, instead: str, mixed_bits: Decisions) -> None:
    missing = find_dialect(name).write(mixed_bits).missing
    assert f"16-bit integers ({instead} instead): 'conv2'" in missing


def test_wide_nodes_and_float_nodes_are_told_apart(mixed_bits: Decisions) -> None:
    assert [node.name for node in mixed_bits.wide] == ["conv2"]
    assert [node.name for node in mixed_bits.floats] == ["softmax1", "classifier"]
    assert mixed_bits.common_dtype("activation") == "u8"
    assert mixed_bits.common_dtype("weight") == "s8"


def test_rknn_names_output_tensors(mixed_bits: Decisions) -> None:
    yaml = pytest.importorskip("yaml")
    text = find_dialect("rknn").write(mixed_bits).files["net.quantization.cfg"]
    assert yaml.safe_load(text) == {
        "custom_quantize_layers": {"c2": "float16", "q1": "float16", "logits": "float16"}
    }


def test_horizon_says_cpu_and_widths(mixed_bits: Decisions) -> None:
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load(find_dialect("horizon").write(mixed_bits).files["net_node_info.yaml"])
    info = found["model_parameters"]["node_info"]
    assert info["classifier"] == {"ON": "CPU"}
    assert info["conv2"]["InputType"] == "int16"
    assert found["calibration_parameters"] == {"calibration_type": "max"}


def test_a_table_for_tpu_mlir_goes_by_output_and_operation(mixed_bits: Decisions) -> None:
    files = find_dialect("tpu-mlir").write(mixed_bits).files
    assert files["net_qtable"].splitlines()[1:] == ["c2_Conv F16", "q1_Softmax F32", "logits_Gemm F32"]
    rows = [line.split(" ") for line in files["net_cali_table"].splitlines()[1:]]
    assert all(len(row) == 4 for row in rows)
    names = [row[0] for row in rows]
    assert {"image", "a1_Relu", "s1_Add"} <= set(names)
    for _, threshold, low, high in rows:
        assert float(threshold) == max(abs(float(low)), abs(float(high)))


def test_float_that_pulsar2_would_ignore_is_told(mixed_bits: Decisions) -> None:
    found = find_dialect("pulsar2").write(mixed_bits)
    layers = json.loads(found.files["net_pulsar2.json"])["quant"]["layer_configs"]
    assert {"data_type": "FP32", "layer_names": ["softmax1"]} in layers
    assert any("U16 instead): 'classifier'" in each for each in found.missing)


def test_one_scale_per_slice_of_an_activation_is_told(plain: Decisions) -> None:
    quantizers = []
    for each in plain.quantized.quantizers:
        if each.tensor == "s1":
            params = QuantParams(np.full(4, each.params.scale, np.float32), np.full(4, each.params.zero_point))
            quantizers.append(replace(each, spec=each.spec.along(1), params=params))
        else:
            quantizers.append(each)
    changed = decisions_of(replace(plain.quantized, quantizers=tuple(quantizers)), Made("net"))
    for name in ("onnxruntime", "tpu-mlir"):
        assert "one scale per slice of activations: 's1'" in find_dialect(name).write(changed).missing


def test_other_calibration_methods_are_told(plain: Decisions) -> None:
    changed = replace(plain, made=replace(plain.made, method="ifmr"))
    for name, instead in (("pulsar2", "MinMax"), ("nncf", "its own ranges")):
        assert f"calibration by ifmr: {instead} instead" in find_dialect(name).write(changed).missing


def test_names_with_blanks_have_no_place_in_a_table_of_tpu_mlir(plain: Decisions) -> None:
    model = plain.quantized.float_model
    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    for node in proto.graph.node:
        for side in (node.input, node.output):
            for place, name in enumerate(side):
                side[place] = "s 1" if name == "s1" else name
    quantizers = tuple(
        replace(each, tensor="s 1" if each.tensor == "s1" else each.tensor) for each in plain.quantized.quantizers
    )
    changed = replace(plain.quantized, float_model=replace(model, proto=proto), quantizers=quantizers)
    found = find_dialect("tpu-mlir").write(decisions_of(changed, Made("net")))
    assert "names with blanks: 's 1'" in found.missing
    assert not any(line.startswith("s 1") for line in found.files["net_cali_table"].splitlines())


def test_dialects_are_found_by_name() -> None:
    assert [each.name for each in find_dialects("rknn, amct,rknn")] == ["rknn", "amct"]
    assert len(find_dialects("all")) == len(DIALECTS)
    with pytest.raises(BadInput, match="There is no dialect 'rkn'"):
        find_dialects("rkn")
    with pytest.raises(BadInput, match="No dialect is named"):
        find_dialects(" ,")


def test_node_names_of_the_user_are_used(tmp_path: Path) -> None:
    decisions = decided(tmp_path, "conv2=u16")
    renamed = decisions_of(decisions.quantized, decisions.made, origins={"theirs": "conv2", "conv1": "conv1"})
    assert [node.name for node in renamed.wide] == ["theirs"]


def test_widths_of_weights_are_told_by_those_who_say_them(tmp_path: Path) -> None:
    decisions = decided(tmp_path, "conv1=weight=s16", "conv2=weight=s16")
    for name in ("onnxruntime", "aimet", "roundoff"):
        assert find_dialect(name).write(decisions).said.startswith("activations at 8 bits, 2 weights at 16 bits")
    for name in ("rknn", "pulsar2", "horizon", "nncf", "tpu-mlir"):
        found = find_dialect(name).write(decisions)
        assert found.said.startswith("all nodes at 8 bits")
        assert any(each.startswith("s16 weights: ") for each in found.missing)


def test_a_digest_knows_a_graph_by_what_it_computes(plain: Decisions) -> None:
    graph = type(plain.quantized.float_model.proto.graph)()
    graph.CopyFrom(plain.quantized.float_model.proto.graph)
    known = graph_digest(graph, to_array)
    for node in graph.node:
        node.name = ""
    graph.node.reverse()
    assert graph_digest(graph, to_array) == known
    first = graph.initializer[0]
    first.CopyFrom(from_array(to_array(first) * np.float32(1.001), first.name))
    assert graph_digest(graph, to_array) != known


def test_rules_of_the_user_are_put_in_names_of_a_changed_graph(tmp_path: Path) -> None:
    made = decided(tmp_path, "conv2=u16")
    rules = (replace(made.made.rules[0], selector=("theirs",)),)
    changed = replace(made, made=replace(made.made, graph="net_float_model.onnx", rules=rules))
    text = find_dialect("roundoff").write(changed).files["net_rules.toml"]
    assert "theirs" not in text
    assert "conv2" in text
