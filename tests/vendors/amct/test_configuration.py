"""Full and simplified configurations."""

import json
from pathlib import Path
from typing import Any

import pytest

import roundoff.vendors.amct.onnx as amct
from roundoff.errors import BadInput
from roundoff.graph.preparation.steps import prepare
from roundoff.vendors.amct.config import AmctConfig, dump, parse_config, read_config, with_enabled
from roundoff.vendors.amct.layers import AmctLayer, find_layers
from roundoff.vendors.amct.onnx import OnnxFlavour
from roundoff.vendors.amct.simplified_config import parse_simplified, read_simplified, simplified_document
from tests.models import loaded, save
from tests.vendors.amct.support import VECTORS, mixed_net, vectors

TYPES = OnnxFlavour.layer_types


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AmctLayer]:
    prepared = prepare(loaded(mixed_net(), tmp_path_factory.mktemp("net")))
    return find_layers(prepared.model, prepared.origins)


def simplified(text: str, layers: dict[str, AmctLayer]) -> AmctConfig:
    document = simplified_document(parse_simplified(text, name="x.cfg"), layers, name="x.cfg", types=TYPES)
    return parse_config(document, layers, name="x.cfg")


def test_layers_of_a_model(layers: dict[str, AmctLayer]) -> None:
    assert list(layers) == ["classifier", "conv1", "grouped", "pool", "product", "up"]
    assert layers["conv1"].originals == ("conv1", "bn1")
    assert layers["conv1"].bias is not None
    assert layers["product"].bias is not None
    assert layers["product"].bias.node == "plus"
    assert layers["pool"].channels is None
    assert [layers[name].channels for name in ("conv1", "up", "classifier")] == [6, 5, 3]


def test_the_default_is_written_as_amct_writes_it(tmp_path: Path) -> None:
    model = save(mixed_net(), tmp_path / "net.onnx")
    amct.create_quant_config(str(tmp_path / "c.json"), str(model), skip_layers=["up"], batch_num=2)
    text = (tmp_path / "c.json").read_text(encoding="utf-8")
    document = json.loads(text)
    assert list(document)[:6] == [
        "version", "batch_num", "activation_offset", "do_fusion", "skip_fusion_layers", "classifier"
    ]  # fmt: skip
    assert document["conv1"] == {
        "quant_enable": True,
        "activation_quant_params": {
            "max_percentile": 0.999999, "min_percentile": 0.999999, "search_range": [0.7, 1.3], "search_step": 0.01
        },
        "weight_quant_params": {"channel_wise": True},
    }  # fmt: skip
    assert document["classifier"]["weight_quant_params"] == {"channel_wise": False}
    assert not document["up"]["quant_enable"]
    assert text.startswith('{\n    "version":1,\n    "batch_num":2,')
    assert not text.endswith("\n")


@vectors
@pytest.mark.parametrize(
    "path",
    [
        *sorted(VECTORS.rglob("*config*.json")),
        *sorted(VECTORS.rglob("quantize_*.json")),
        *VECTORS.rglob("*dmq.json"),
    ],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_real_configurations_are_read_and_written_byte_for_byte(path: Path) -> None:
    config = read_config(path, None)
    assert len(config.layers) >= 3
    written = path.read_text(encoding="utf-8")
    compact = "".join(dump(config.document).split())
    assert compact == "".join(written.split())


@vectors
@pytest.mark.parametrize("run", ["need3_of_8", "all_fail_8_of_8"])
def test_a_rewritten_configuration_has_the_vendors_bytes(run: str) -> None:
    folder = VECTORS / "auto_calibration_runs" / run
    before = read_config(folder / "config_before.json", None)
    after = read_config(folder / "config_after.json", None)
    enabled = {name: each.enabled for name, each in after.layers.items()}
    assert dump(with_enabled(before.document, enabled)) == (folder / "config_after.json").read_text(
        encoding="utf-8"
    )
    assert all(each.enabled for each in before.layers.values())


@vectors
@pytest.mark.parametrize("path", sorted(VECTORS.rglob("*.cfg")), ids=lambda path: path.name)
def test_real_simplified_configurations(path: Path) -> None:
    refused = {"amc_ptq.cfg": "'}' too many", "auto_search_quant_bit.cfg": "no field 'compress_ratio'"}
    if path.name in refused:
        with pytest.raises(BadInput, match=refused[path.name]):
            read_simplified(path)
    else:
        assert read_simplified(path).entries


@vectors
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ascend_samples/caffe_resnet50_nuq_quant.cfg", "non-uniform quantization is not offered"),
        ("ascend_samples/onnx_resnet101_nuq_quant.cfg", "non-uniform quantization is not offered"),
        ("hicann_amct_tests/dmq_balancer_not_support.cfg", "no type of layers"),
        ("hicann_amct_tests/net_001.cfg", "override_layer_types names 'Linear'"),
    ],
)
def test_what_a_simplified_configuration_must_not_ask_for(
    name: str, message: str, layers: dict[str, AmctLayer]
) -> None:
    with pytest.raises(ValueError, match=message):
        simplified_document(read_simplified(VECTORS / name), layers, name=name, types=TYPES)


@vectors
@pytest.mark.parametrize(
    ("name", "activation", "weight"),
    [("ptq_a16w8.cfg", 16, 8), ("ptq_a8w4.cfg", 8, 4), ("dmq_balancer.cfg", 8, 8)],
)
def test_widths_of_real_simplified_configurations(
    name: str, activation: int, weight: int, layers: dict[str, AmctLayer]
) -> None:
    document = simplified_document(
        read_simplified(VECTORS / "hicann_amct_tests" / name), layers, name=name, types=TYPES
    )
    config = parse_config(document, layers, name=name)
    assert config.layers["conv1"].activation.bits == activation
    assert config.layers["conv1"].weight.bits == weight
    assert config.layers["pool"].activation.bits == 8
    assert (config.layers["conv1"].balance is not None) == (name == "dmq_balancer.cfg")
    assert config.layers["pool"].balance is None


def test_the_most_specific_wish_counts(layers: dict[str, AmctLayer]) -> None:
    config = simplified(
        """
        batch_num: 3  activation_offset: false
        skip_layers: "up"  skip_layer_types: "AveragePool"
        common_config { arq_quantize { channel_wise: true } hfmg_quantize { num_of_bins: 1024 } }
        override_layer_types { layer_type: "Conv" calibration_config { ifmr_quantize { asymmetric: true } } }
        override_layer_configs {
            layer_name: "grouped" calibration_config { arq_quantize { channel_wise: false } }
        }
        """,
        layers,
    )
    found = config.layers
    assert config.batch_num == 3
    assert not found["up"].enabled
    assert not found["pool"].enabled
    assert (found["conv1"].activation.algorithm, found["conv1"].activation.asymmetric) == ("ifmr", True)
    assert found["conv1"].weight.channel_wise
    assert not found["grouped"].weight.channel_wise
    assert (found["product"].activation.algorithm, found["product"].activation.asymmetric) == ("hfmg", False)
    assert not found["product"].weight.channel_wise


def test_types_by_the_names_of_another_framework(layers: dict[str, AmctLayer]) -> None:
    message = parse_simplified('skip_layer_types: "InnerProduct"', name="x.cfg")
    types = {"InnerProduct": ("Gemm", "MatMul"), "Convolution": ("Conv",)}
    document = simplified_document(message, layers, name="x.cfg", types=types)
    disabled = [name for name in layers if not document[name]["quant_enable"]]
    assert disabled == ["classifier", "product"]


def test_fields_of_older_files(layers: dict[str, AmctLayer]) -> None:
    config = simplified(
        "conv_calibration_config { hfmg_quantize { } }"
        " fc_calibration_config { ifmr_quantize { asymmetric: false } }"
        ' override_layer_types { layer_type: "ConvTranspose" calibration_config { ifmr_quantize { } } }',
        layers,
    )
    inputs = {name: each.activation for name, each in config.layers.items()}
    found = {name: (each.algorithm, each.asymmetric) for name, each in inputs.items()}
    assert found["conv1"] == ("hfmg", True)
    assert found["up"] == ("ifmr", True)
    assert found["product"] == found["classifier"] == ("ifmr", False)


def test_widths_that_a_layer_cannot_have_are_lowered_and_said(layers: dict[str, AmctLayer]) -> None:
    config = simplified(
        "common_config { arq_quantize { quant_bits: 4 } ifmr_quantize { dst_type: INT16 } }", layers
    )
    bits = {name: (each.activation.bits, each.weight.bits) for name, each in config.layers.items()}
    assert bits["conv1"] == (16, 4)
    assert bits["grouped"] == (16, 8)
    assert bits["classifier"] == (16, 8)
    assert bits["pool"][0] == 8
    assert any("grouped: weights get 8 bits, not 4" in note for note in config.notes)
    assert any("pool: inputs get 8 bits, not 16" in note for note in config.notes)
    seven = simplified("common_config { arq_quantize { quant_bits: 7 } }", layers)
    assert seven.layers["conv1"].weight.bits == 7
    assert seven.layers["product"].weight.bits == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('override_layer_types { layer_type: "Gemm" calibration_config { arq_quantize { channel_wise: true } } }',
         "cannot have a scale for each channel"),
        ('override_layer_configs { layer_name: "pool" calibration_config { dmq_balancer { } } }', "has no weight"),
        ("common_config { dmq_balancer { migration_strength: 0.1 } }", "'dmq_balancer_param' is 0.1"),
        ('skip_layers: "nothing"', "line 1: skip_layers names 'nothing'"),
        ('skip_layer_types: "Softmax"', "no type of layers"),
        ('override_layer_configs { layer_name: "up" }', "needs 'calibration_config'"),
        ("common_config { ifmr_quantize { } hfmg_quantize { } }", "exclude each other"),
        ("common_config { hfmg_quantize { num_of_bins: 1000 } }", "'num_of_bins' is 1000"),
        ("common_config { ifmr_quantize { max_percentile: 0.4 } }", "'max_percentile' is 0.4"),
        ("common_config { ifmr_quantize { search_range_start: 1.4 } }", "'search_range' is"),
        ("common_config { ifmr_quantize { search_step: 2 } }", "search_step of 2 does not fit"),
        ("common_config { ifmr_quantize { search_step: 1e-9 } }", "The option search_step is 1e-09"),
        ("batch_num: 0", "'batch_num' is 0"),
    ],
)  # fmt: skip
def test_simplified_configurations_that_are_refused(text: str, message: str, layers: dict[str, AmctLayer]) -> None:
    with pytest.raises(BadInput) as caught:
        simplified(text, layers)
    assert message in caught.value.what


def entry(**changes: Any) -> dict[str, Any]:
    return {"version": 1, "batch_num": 1, "conv1": {"quant_enable": True, **changes}}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"version": 1, "batch_num": 1, "speed": 3}, "there is no key 'speed'"),
        ({"version": 2, "batch_num": 1}, "'version' is 2"),
        ({"version": 1}, "has no 'batch_num'"),
        ({"version": 1, "batch_num": 1, "conv9": {}}, "'conv9' is neither a known key nor a layer"),
        (entry(quant_enable=1), "'quant_enable' is 1"),
        (entry(speed=1), "there is no key 'speed'"),
        (entry(activation_quant_params={"num_of_bins": 4096, "act_algo": "ifmr"}), "does not belong to ifmr"),
        (entry(activation_quant_params={"search_step": 0.01, "act_algo": "hfmg"}), "does not belong to hfmg"),
        (entry(weight_quant_params={"num_iteration": 10}), "does not belong to arq_quantize"),
        (entry(weight_quant_params={"num_bits": 5}), "'num_bits' is 5"),
        (entry(dmq_balancer_param=0.9), "'dmq_balancer_param' is 0.9"),
        ({"version": 1, "batch_num": 1, "weight_offset": True}, "weights have no offset"),
        ({"version": 1, "batch_num": 1, "nuq_config": {}}, "is not offered here"),
        ([], "is not an object"),
    ],
)
def test_configurations_that_are_refused(document: Any, message: str, layers: dict[str, AmctLayer]) -> None:
    with pytest.raises(BadInput) as caught:
        parse_config(document, layers, name="c.json")
    assert message in caught.value.what
    assert isinstance(caught.value, ValueError | TypeError)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"version":1,"version":1}', "the key 'version' stands twice"),
        ("{,}", "is not JSON"),
        ("[" * 99999, "deep"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "c.json").write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=message):
        read_config(tmp_path / "c.json", None)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"batch_num": "2"}, TypeError),
        ({"batch_num": 0}, ValueError),
        ({"activation_offset": 1}, TypeError),
        ({"skip_layers": "conv1"}, TypeError),
        ({"skip_layers": ["conv9"]}, ValueError),
        ({"config_defination": 5}, TypeError),
    ],
)
def test_arguments_of_create_quant_config(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception]
) -> None:
    model = save(mixed_net(), tmp_path / "net.onnx")
    with pytest.raises(error):
        amct.create_quant_config(str(tmp_path / "c.json"), str(model), **arguments)


def test_batch_normalization_can_be_kept_apart(tmp_path: Path) -> None:
    model = save(mixed_net(), tmp_path / "net.onnx")
    (tmp_path / "x.cfg").write_text('skip_fusion_layers: "conv1"', encoding="utf-8")
    path = tmp_path / "c.json"
    amct.create_quant_config(str(path), str(model), config_defination=str(tmp_path / "x.cfg"))
    amct.quantize_model(str(path), str(model), str(tmp_path / "mod.onnx"), str(tmp_path / "rec.txt"))
    ops = [node.op_type for node in loaded_ops(tmp_path / "mod.onnx")]
    assert "BatchNormalization" in ops


def loaded_ops(path: Path) -> Any:
    import onnx

    return onnx.load(path).graph.node


def test_names_for_nodes_without(tmp_path: Path) -> None:
    net = mixed_net()
    net.graph.node[0].name = ""
    model = save(net, tmp_path / "net.onnx")
    path = tmp_path / "c.json"
    amct.create_quant_config(str(path), str(model), updated_model=str(tmp_path / "named.onnx"))
    assert "Conv_0" in json.loads(path.read_text(encoding="utf-8"))
    assert next(iter(loaded_ops(tmp_path / "named.onnx"))).name == "Conv_0"
