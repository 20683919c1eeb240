"""The Caffe flavour: nets in, nets out, without Caffe."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import roundoff.vendors.amct.caffe as amct
from roundoff.errors import BadInput
from roundoff.graph.caffe.net import read_net
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.load import load_model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.readers.reader import read_quantized
from roundoff.vendors.amct.quantizers import quantizers_of
from roundoff.vendors.amct.records import read_records, write_records
from tests.graph.caffe.nets import NetText, relative_error, run_all, values
from tests.graph.caffe.test_random_nets import nets
from tests.vendors.amct.caffe_nets import LAYERS, SHAPE, CaffeWork, batches

OWN_TYPES = {"Quant", "DeQuant"}


def outputs(files: tuple[str, str], feeds: list[dict[str, Any]]) -> Any:
    return np.concatenate([each["prob"] for each in amct.run_model(*files, feeds)])


def test_the_layers_that_amct_quantizes(tmp_path: Path) -> None:
    config = json.loads(Path(CaffeWork(tmp_path).config).read_text(encoding="utf-8"))
    assert [name for name, entry in config.items() if isinstance(entry, dict)] == LAYERS
    wise = [name for name in LAYERS if config[name]["weight_quant_params"]["channel_wise"]]
    assert wise == ["conv1", "depth", "left", "right", "up"]


def test_types_are_called_as_in_caffe(tmp_path: Path) -> None:
    work = CaffeWork(tmp_path, definition='batch_num: 2 skip_layer_types: "Convolution" skip_layers: "up"')
    config = json.loads(Path(work.config).read_text(encoding="utf-8"))
    assert [name for name in LAYERS if config[name]["quant_enable"]] == ["pool", "score"]


def test_written_nets_read_back_to_the_same_numbers(tmp_path: Path) -> None:
    work = CaffeWork(tmp_path)
    fake, deploy = work.save()
    feeds = batches(3, seed=5)
    exact, simulated, deployed = (outputs(files, feeds) for files in (work.files, fake, deploy))
    assert 0 < np.abs(simulated - exact).max() < 0.05
    # Sums of integers are rounded elsewhere; a value on the edge of two codes may fall to the other side.
    assert relative_error(deployed, simulated) < 0.02
    graph = work.calibrate()
    quantized = read_quantized(load_model(f"{fake[0]},{fake[1]}"))
    assert isinstance(quantized, QuantizedModel)
    scales = {each.tensor: float(each.params.scale) for each in quantized.quantizers if each.kind == "activation"}
    records = read_records(Path(work.record))
    assert np.float32(records["conv1"].scale_d) == np.float32(scales["data"])
    assert graph.opened.layers.keys() == records.keys()


def test_names_and_types_of_the_fake_quant_net(tmp_path: Path) -> None:
    fake, deploy = CaffeWork(tmp_path).save()
    for files in (fake, deploy):
        net = read_net(*map(Path, files))
        inserted = [layer.name for layer in net.layers if layer.type in OWN_TYPES]
        # Both branches read what the first of them is called after; folded layers are gone.
        assert inserted == [
            "conv1_0_quant_layer", "conv1_dequant_layer", "left_0_quant_layer", "left_dequant_layer",
            "right_dequant_layer", "depth_0_quant_layer", "depth_dequant_layer", "pool_0_quant_layer",
            "pool_dequant_layer", "up_0_quant_layer", "up_dequant_layer", "score_0_quant_layer",
            "score_dequant_layer",
        ]  # fmt: skip
        others = {layer.type for layer in net.layers} - OWN_TYPES
        assert others == {"Input", "Convolution", "ReLU", "Eltwise", "Pooling", "LRN", "Deconvolution",
                          "InnerProduct", "Softmax"}  # fmt: skip
    assert read_net(*map(Path, deploy)).layers[2].blobs[0].dtype == np.int8
    assert read_net(*map(Path, fake)).layers[2].blobs[0].dtype == np.float32


def test_the_quantization_information(tmp_path: Path) -> None:
    CaffeWork(tmp_path).save()
    info = json.loads((tmp_path / "out/net_quant.json").read_text(encoding="utf-8"))
    ops = {each["name"]: each for each in info["graph"][0]["op"]}
    stands_for = {name: each["attr"][0]["value"]["list"]["s"] for name, each in ops.items()}
    for name in ("conv1", "conv1_0_quant_layer", "conv1_dequant_layer"):
        assert stands_for[name] == ["conv1", "bn1", "scale1"]
    assert stands_for["left_0_quant_layer"] == ["left"]
    assert stands_for["relu1"] == ["relu1"]
    origin = {
        name: {fact["key"]: fact["value"] for fact in each["output_desc"][0]["attr"]}["_datadump_origin_name"]["s"]
        for name, each in ops.items()
        if "output_desc" in each
    }
    assert origin["conv1_dequant_layer"] == "scale1"
    assert origin["relu1"] == "relu1"
    assert not {"conv1", "conv1_0_quant_layer"} & set(origin)


def test_records_say_how_large_inputs_are(tmp_path: Path) -> None:
    work = CaffeWork(tmp_path, definition='batch_num: 2 skip_fusion_layers: "conv1"')
    fake, _ = work.save()
    records = read_records(Path(work.record))
    sizes = {
        name: tuple(record.others.get(key) for key in ("channels", "height", "width"))
        for name, record in records.items()
    }
    assert sizes["conv1"] == SHAPE[1:]
    assert sizes["pool"] == (6, 7, 7)
    assert sizes["score"] == (4, 8, 8)
    assert [name for name in records if records[name].others.get("skip_fusion")] == ["conv1"]
    kept = [layer.type for layer in read_net(*map(Path, fake)).layers]
    assert "BatchNorm" in kept


def test_a_record_makes_the_same_nets(tmp_path: Path) -> None:
    work = CaffeWork(tmp_path)
    first = work.save()
    amct.convert_model(*work.files, work.record, str(tmp_path / "again/net"))
    again = work.results("again/net")
    for one, other in zip((*first[0], *first[1]), (*again[0], *again[1]), strict=True):
        assert Path(one).read_bytes() == Path(other).read_bytes()


def test_a_record_of_the_other_dialect(tmp_path: Path) -> None:
    work = CaffeWork(tmp_path)
    text = (
        'record { key: "conv1" value { scale_w: 0.01 offset_w: 0 num_bits_w: 8 object_layer: "conv1" '
        "record_d { scale_d: 0.02 offset_d: -3 index: 0 channels: 4 height: 9 width: 9 num_bits_d: 8 } } }"
    )
    Path(work.record).write_text(text, encoding="utf-8")
    amct.convert_model(*work.files, work.record, str(tmp_path / "net"))
    quantized = read_quantized(load_model(f"{tmp_path}/net_fake_quant_model.prototxt"))
    entrance = next(each for each in quantized.quantizers if each.kind == "activation")
    assert (np.float32(entrance.params.scale), int(entrance.params.zero_point)) == (np.float32(0.02), -3)
    Path(work.record).write_text(text.replace("num_bits_d: 8", "num_bits_d: 16"), encoding="utf-8")
    with pytest.raises(BadInput, match="a Quant layer of Caffe rounds to all 256 codes"):
        amct.convert_model(*work.files, work.record, str(tmp_path / "net"))


def test_shifts_of_the_chip_are_simulated(tmp_path: Path) -> None:
    work = CaffeWork(tmp_path)
    plain, _ = work.save()
    records = read_records(Path(work.record))
    shifted = {name: replace(each, shift_bit=(9,) * len(each.scale_w)) for name, each in records.items()}
    write_records(Path(work.record), shifted)
    amct.convert_model(*work.files, work.record, str(tmp_path / "shift/net"))
    fake, deploy = work.results("shift/net")
    feeds = batches(1, seed=5)
    assert np.abs(outputs(fake, feeds) - outputs(plain, feeds)).max() > 1e-4
    assert relative_error(outputs(deploy, feeds), outputs(fake, feeds)) < 0.05
    packed = next(layer for layer in read_net(*map(Path, deploy)).layers if layer.name == "left_dequant_layer")
    assert set(packed.blobs[0] >> np.uint64(32)) == {9}


def test_only_what_was_asked_for_is_saved(tmp_path: Path) -> None:
    work = CaffeWork(tmp_path)
    graph = amct.init(work.config, *work.files, work.record)
    with pytest.raises(RuntimeError, match=r"was not finished") as unfinished:
        amct.save_model(graph, "Both", str(tmp_path / "a/net"))
    assert "amct.caffe.run_model" in str(unfinished.value)
    graph = work.calibrate()
    amct.save_model(graph, "Fakequant", str(tmp_path / "a/net"))
    names = {"net_fake_quant_model.prototxt", "net_fake_quant_weights.caffemodel"}
    assert {path.name for path in (tmp_path / "a").iterdir()} == names
    amct.save_model(graph, "Deploy", str(tmp_path / "b/net"))
    names = {"net_deploy_model.prototxt", "net_deploy_weights.caffemodel", "net_quant.json"}
    assert {path.name for path in (tmp_path / "b").iterdir()} == names
    with pytest.raises(ValueError, match="save_type is 'All'"):
        amct.save_model(graph, "All", str(tmp_path / "c/net"))
    with pytest.raises(RuntimeError, match="not what init"):
        amct.save_model("graph", "Both", str(tmp_path / "c/net"))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="not what init"):
        amct.quantize_model("graph", *work.modified)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="A batch is ndarray, not a value for each input"):
        amct.run_model(*work.modified, [np.zeros(SHAPE, np.float32)])  # type: ignore[list-item]


def test_a_record_of_a_single_input(tmp_path: Path) -> None:
    net = NetText().add("Pooling", "pool", "data", "", "pooling_param { pool: MAX kernel_size: 2 stride: 2 }")
    net.add("InnerProduct", "fc", "pool", "prob", "inner_product_param { num_output: 2 bias_term: false }",
            [values(2, 48)])  # fmt: skip
    work = CaffeWork(tmp_path, net)
    text = 'record { key: "pool:0" value { scale_d: 0.25 offset_d: 0 is_tensor_quantize: true } }'
    Path(work.record).write_text(text, encoding="utf-8")
    amct.convert_model(*work.files, work.record, str(tmp_path / "net"))
    feeds = [{"data": values(1, 3, 8, 8)}]
    rounded = [{"data": np.rint(feeds[0]["data"] * 4) / np.float32(4)}]
    fake, _ = work.results("net")
    assert np.allclose(outputs(fake, feeds), outputs(work.files, rounded), atol=1e-6)


def test_a_modified_net_counts_its_runs(tmp_path: Path) -> None:
    work = CaffeWork(tmp_path)
    graph = amct.init(work.config, *work.files, work.record)
    amct.quantize_model(graph, *work.modified)
    amct.run_model(*work.modified, batches(1))
    with pytest.raises(RuntimeError, match="1 of 2 batches were run"):
        amct.save_model(graph, "Both", str(tmp_path / "net"))
    amct.run_model(*work.modified, batches(2)[1:])
    apart = read_records(Path(work.record))
    # Further runs change nothing.
    amct.run_model(*work.modified, batches(1, seed=9))
    assert read_records(Path(work.record)) == apart
    work.calibrate()
    assert read_records(Path(work.record)) == apart
    # It is a net like any other, whose weights are rounded and whose activations are not.
    exact, rounded = (outputs(files, batches(1)) for files in (work.files, work.modified))
    assert 0 < np.abs(exact - rounded).max() < 0.1
    assert not OWN_TYPES & {layer.type for layer in read_net(*map(Path, work.modified)).layers}


def test_files_of_the_net_itself_are_not_replaced(tmp_path: Path) -> None:
    work = CaffeWork(tmp_path)
    graph = amct.init(work.config, *work.files, work.record)
    for files in ((work.files[0], work.modified[1]), (work.modified[0], work.files[1])):
        with pytest.raises(ValueError, match="is read, and would be replaced"):
            amct.quantize_model(graph, *files)


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("common_config { dmq_balancer { } }", "asks for dmq_balancer in 'conv1'"),
        ("common_config { ifmr_quantize { dst_type: INT16 } }", "asks for inputs of 16 bits in 'conv1'"),
        (
            'tensor_quantize { layer_name: "pool" input_index: 0 ifmr_quantize { } }',
            "has tensor_quantize, which AMCT does not have for Caffe",
        ),
        ('skip_layers: "norm"', "norm"),
        ('skip_layer_types: "Conv"', "Conv"),
    ],
)
def test_what_caffe_cannot_say_is_refused(definition: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        CaffeWork(tmp_path, definition=definition)


def test_layers_that_amct_leaves_in_float(tmp_path: Path) -> None:
    net = NetText({"data": (1, 4, 6, 6)})
    holes = "convolution_param { num_output: 4 kernel_size: 2 dilation: 2 }"
    net.add("Deconvolution", "holes", "data", "", holes, [values(4, 4, 2, 2), values(4)])
    net.add("Pooling", "all", "holes", "", "pooling_param { pool: AVE global_pooling: true }")
    turned = "inner_product_param { num_output: 3 transpose: true bias_term: false }"
    net.add("InnerProduct", "turned", "all", "", turned, [values(4, 3)])
    net.add(
        "InnerProduct", "last", "turned", "", "inner_product_param { num_output: 2 }", [values(2, 3), values(2)]
    )
    config = json.loads(Path(CaffeWork(tmp_path, net).config).read_text(encoding="utf-8"))
    assert [name for name, entry in config.items() if isinstance(entry, dict)] == ["last"]


def test_a_quantized_net_is_refused(tmp_path: Path) -> None:
    work = CaffeWork(tmp_path)
    for files in work.save():
        with pytest.raises(BadInput, match="is quantized already"):
            amct.convert_model(*files, work.record, str(tmp_path / "again/net"))


def test_modes(caplog: pytest.LogCaptureFixture) -> None:
    amct.set_cpu_mode()
    assert not caplog.messages
    amct.set_gpu_mode()
    assert caplog.messages == ["models are run on the processor, also in GPU mode"]


@given(net=nets())
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
def test_random_nets_come_through(net: NetText, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("net")
    model, weights = map(str, net.write(folder))
    config, record = str(folder / "c.json"), str(folder / "r.txt")
    try:
        amct.create_quant_config(config, model, weights)
    except BadInput as error:
        assert "can be quantized" in error.what  # noqa: PT017 - a net without such layers is one of many
        return
    graph = amct.init(config, model, weights, record)
    files = str(folder / "m.prototxt"), str(folder / "m.caffemodel")
    amct.quantize_model(graph, *files)
    feed = {"data": values(*net.inputs["data"], seed=13)}
    amct.run_model(*files, [feed])
    amct.save_model(graph, "Both", str(folder / "one/net"))
    opened, records = graph.opened, read_records(Path(record))
    wanted = run_all(insert_quantizers(opened.model, quantizers_of(opened.model, opened.layers, records)), feed)
    for kind, limit in (("fake_quant", 1e-5), ("deploy", 0.05)):
        start = f"{folder}/one/net_{kind}"
        (found,) = amct.run_model(f"{start}_model.prototxt", f"{start}_weights.caffemodel", [feed])
        for name, value in found.items():
            # Integers are rounded elsewhere; one value on the other side of a step moves outputs by some steps.
            assert np.abs(value - wanted[name]).max() <= limit * (np.abs(wanted[name]).max() or 1), (kind, name)
    amct.convert_model(model, weights, record, str(folder / "two/net"))
    for path in (folder / "one").iterdir():
        assert path.read_bytes() == (folder / "two" / path.name).read_bytes()


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("pad", [0, 1])
def test_batch_norm_and_scale_in_front_of_a_convolution_go_into_it(pad: int, group: int, tmp_path: Path) -> None:
    """Without padding, where that is exact; AMCT's list of fusions has it for Caffe."""
    channels = SHAPE[1] * 2
    net = NetText({"data": SHAPE})
    net.add("Concat", "both", ["data", "data"])
    stored = [values(channels, seed=1), values(channels, seed=2, low=0.2), np.array([1.0], np.float32)]
    net.add("BatchNorm", "bn", "both", blobs=stored, params="batch_norm_param { use_global_stats: true }")
    affine = [values(channels, seed=3), values(channels, seed=4)]
    net.add("Scale", "scale", "bn", params="scale_param { bias_term: true }", blobs=affine)
    said = f"convolution_param {{ num_output: 4 kernel_size: 3 pad: {pad} group: {group} }}"
    blobs = [values(4, channels // group, 3, 3, seed=5), values(4, seed=6)]
    net.add("Convolution", "conv", "scale", "prob", said, blobs)
    work = CaffeWork(tmp_path, net)
    fake, deploy = work.save()
    kinds = [layer.type for layer in read_net(Path(fake[0]), Path(fake[1])).layers]
    assert ("BatchNorm" in kinds) == bool(pad)
    assert ("Scale" in kinds) == bool(pad)
    feeds = batches(3, seed=5)
    exact, simulated, deployed = (outputs(files, feeds) for files in (work.files, fake, deploy))
    assert 0 < relative_error(simulated, exact) < 0.05
    assert relative_error(deployed, simulated) < 0.02
