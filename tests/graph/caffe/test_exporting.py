"""Quantized nets written as Caffe's files, read back, and computing what the quantized model does."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from roundoff.core.quantizers import Consumer, Quantizer, QuantParams, QuantSpec
from roundoff.errors import BadInput
from roundoff.graph.caffe.convert import Imported, import_caffe, net_of
from roundoff.graph.caffe.export import CaffeFiles, quantized_net, save_net
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.targets.files import load_target
from roundoff.samples.sample_set import ArraySamples
from tests.graph.caffe.nets import NetText, relative_error, run_all, values
from tests.graph.caffe.test_random_nets import nets

WRITERS: dict[str, Callable[..., CaffeFiles]] = {
    "fake": quantized_net,
    "deploy": partial(quantized_net, deploy=True),
}


def quantized(imported: Imported, target: str = "ascend") -> QuantizedModel:
    shape = imported.model.proto.graph.input[0].type.tensor_type.shape.dim
    samples = ArraySamples({"data": values(4, *(dim.dim_value for dim in shape[1:]), seed=11)})
    return quantize_model(imported.model, samples, QuantizeSettings(target=load_target(target))).quantized


def written(imported: Imported, model: QuantizedModel, folder: Path, kind: str) -> Imported:
    files = folder / f"{kind}.prototxt", folder / f"{kind}.caffemodel"
    save_net(WRITERS[kind](imported.net, model), *files)
    return import_caffe(*files)


def whole_net() -> NetText:
    net = NetText({"data": (1, 3, 9, 9)})
    blobs = [values(4, 3, 3, 3)]
    plain = "convolution_param { num_output: 4 kernel_size: 3 bias_term: false }"
    net.add("Convolution", "conv", "data", params=plain, blobs=blobs)
    net.add("BatchNorm", "bn", "conv", blobs=[values(4), values(4, low=0.1), np.ones(1, np.float32)])
    net.add("Scale", "scale", "bn", params="scale_param { bias_term: true }", blobs=[values(4), values(4, seed=1)])
    net.add("ReLU", "relu", "scale", "scale")
    branch = "convolution_param { num_output: 4 kernel_size: 3 pad: 1 group: 2 }"
    for name in ("left", "right"):
        net.add("Convolution", name, "scale", params=branch, blobs=[values(4, 2, 3, 3, seed=2), values(4, seed=3)])
    net.add("Eltwise", "sum", ["left", "right"])
    net.add("Pooling", "pool", "sum", params="pooling_param { pool: AVE kernel_size: 2 stride: 2 }")
    up = "convolution_param { num_output: 6 kernel_size: 2 stride: 2 group: 2 }"
    net.add("Deconvolution", "up", "pool", params=up, blobs=[values(4, 3, 2, 2, seed=4), values(6, seed=5)])
    net.add("Dropout", "drop", "up", "up")
    net.add("InnerProduct", "fc", "up", params="inner_product_param { num_output: 5 transpose: true }",
            blobs=[values(384, 5, seed=6), values(5, seed=7)])  # fmt: skip
    return net.add("Softmax", "prob", "fc")


@pytest.mark.parametrize("kind", ["fake", "deploy"])
def test_written_nets_compute_what_the_quantized_model_does(kind: str, tmp_path: Path) -> None:
    imported = whole_net().load(tmp_path)
    model = quantized(imported)
    data = {"data": values(2, 3, 9, 9, seed=12)}
    wanted = run_all(insert_quantizers(model.float_model, model.quantizers), data)
    again = written(imported, model, tmp_path, kind)
    found = run_all(again.model, data)
    assert relative_error(found["fc"], wanted["fc"]) < 1e-5
    assert relative_error(run_all(imported.model, data)["fc"], wanted["fc"]) > 1e-3
    types = [layer.type for layer in again.net.layers]
    assert "BatchNorm" not in types
    assert "Scale" not in types
    quants = {layer.name: layer.bottoms for layer in again.net.layers if layer.type == "Quant"}
    # One Quant layer serves both branches; the folded layers' last blob keeps its name.
    assert quants == {
        "conv_0_quant_layer": ("data",), "left_0_quant_layer": ("scale",), "pool_0_quant_layer": ("sum",),
        "up_0_quant_layer": ("pool",), "fc_0_quant_layer": ("up",),
    }  # fmt: skip
    dequants = [layer.name for layer in again.net.layers if layer.type == "DeQuant"]
    assert dequants == [f"{name}_dequant_layer" for name in ("conv", "left", "right", "pool", "up", "fc")]


def test_a_model_remembers_its_net(tmp_path: Path) -> None:
    prototxt, caffemodel = whole_net().write(tmp_path)
    caffemodel = caffemodel.rename(tmp_path / "numbers.caffemodel")
    (tmp_path / "net.caffemodel").write_bytes(b"")
    model = quantized(import_caffe(prototxt, caffemodel))
    net = net_of(model.float_model)
    assert (net.path, net.weights_path) == (prototxt, caffemodel)
    assert quantized_net(net, model).prototxt.count("Quant") > 1
    with pytest.raises(BadInput, match="was not made from a Caffe net"):
        net_of(replace(model.float_model, path=Path("model.onnx")))


def test_a_deployed_net_holds_integers(tmp_path: Path) -> None:
    imported = whole_net().load(tmp_path)
    net = written(imported, quantized(imported), tmp_path, "deploy").net
    types = {layer.name: [blob.dtype.name for blob in layer.blobs] for layer in net.layers if layer.blobs}
    assert types["conv"] == types["up"] == types["fc"] == ["int8", "int32"]
    assert types["conv_dequant_layer"] == ["uint64"]


@given(net=nets())
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_random_quantized_nets_survive(net: NetText, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("net")
    imported = net.load(folder)
    try:
        model = quantized(imported)
    except BadInput:  # nothing to quantize
        return
    data = {"data": values(1, *net.inputs["data"][1:], seed=13)}
    wanted = run_all(insert_quantizers(model.float_model, model.quantizers), data)
    if any("lrn" in each.tensor for each in model.quantizers):  # inside a layer, see below
        return
    for kind in WRITERS:
        again = written(imported, model, folder, kind)
        found = run_all(again.model, data)
        for output in again.model.proto.graph.output:
            scale = np.abs(wanted[output.name]).max() or 1
            # Integers are rounded elsewhere; one value on the other side of a step moves outputs by some steps.
            limit = 1e-5 if kind == "fake" else 0.05
            assert np.abs(found[output.name] - wanted[output.name]).max() / scale < limit, (kind, output.name)


def simple(folder: Path) -> tuple[Imported, Quantizer]:
    net = NetText().add("Power", "double", "data", params="power_param { scale: 2 }")
    net.add("ReLU", "relu", "double", "double")
    imported = net.load(folder)
    spec = QuantSpec(8, signed=True, symmetric=False)
    params = QuantParams(np.array(0.02, np.float32), np.array(-5, np.int64))
    return imported, Quantizer("q", "double#double", "activation", spec, params, (Consumer("relu", 0),))


@pytest.mark.parametrize("signed", [True, False])
def test_what_is_changed_in_place_is_quantized_in_place(*, signed: bool, tmp_path: Path) -> None:
    imported, quantizer = simple(tmp_path)
    if not signed:
        unsigned = QuantParams(quantizer.params.scale, np.array(123, np.int64))
        quantizer = replace(quantizer, spec=replace(quantizer.spec, signed=False), params=unsigned)
    model = QuantizedModel(imported.model, (quantizer,))
    again = written(imported, model, tmp_path, "fake")
    data = {"data": values(1, 3, 8, 8, low=-2, high=2)}
    wanted = run_all(insert_quantizers(imported.model, [quantizer]), data)
    found = run_all(again.model, data)
    assert np.allclose(found["double"], wanted["double"], atol=1e-6)
    assert [layer.name for layer in again.net.layers] == ["data", "double", "relu_0_quant_layer", "relu"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"spec": QuantSpec(16, signed=True, symmetric=True)}, "quantized to s16"),
        ({"after": "other"}, "is quantized again"),
        ({"consumers": (), "output": True}, "leaves the net quantized"),
        ({"consumers": (Consumer("elsewhere", 0),)}, "belongs to no layer"),
    ],
)
def test_what_has_no_form_in_caffe_is_refused(change: dict[str, object], told: str, tmp_path: Path) -> None:
    imported, quantizer = simple(tmp_path)
    model = QuantizedModel(imported.model, (replace(quantizer, **change),))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=told):
        quantized_net(imported.net, model)


def test_what_is_quantized_inside_a_layer_is_refused(tmp_path: Path) -> None:
    net = NetText().add("LRN", "lrn", "data", params="lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 }")
    imported = net.load(tmp_path)
    _, quantizer = simple(tmp_path)
    inside = replace(quantizer, tensor="lrn/squares", consumers=(Consumer("lrn/means", 0),))
    with pytest.raises(BadInput, match="inside layer 'lrn'"):
        quantized_net(imported.net, QuantizedModel(imported.model, (inside,)))


def test_a_model_of_another_net_is_refused(tmp_path: Path) -> None:
    imported, quantizer = simple(tmp_path)
    other = NetText().add("Sigmoid", "other", "data").load(tmp_path)
    with pytest.raises(BadInput, match="has no layer of"):
        quantized_net(other.net, QuantizedModel(imported.model, (quantizer,)))
