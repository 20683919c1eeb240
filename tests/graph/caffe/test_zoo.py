"""The public zoo's networks run without their numbers; OpenCV computes the same where it has all layers."""

import re
from pathlib import Path

import numpy as np
import pytest

from roundoff.cli import main
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.caffe.convert import Imported, import_caffe
from roundoff.graph.load import load_model
from tests.graph.caffe.nets import NetText, relative_error, run_all, values, weights_bytes
from tests.graph.caffe.opencv import TOLERANCE, opencv_layers
from tests.graph.caffe.zoo_of_forks import ZOO

# Layers that OpenCV does not have, or has in another form.
NOT_JUDGED = {
    "deeplab_v2": "ArgMax", "spp_net": "SPP", "segnet": "BN", "enet": "BN", "pspnet": "BN",
    "faster_rcnn_vgg": "Python", "yolo_v2": "Reorg", "yolo_v3": "Yolo", "lrcn": "Embed",
    "crnn": "LSTM", "ctpn": "Lstm", "deconv_net": "BN", "normface": "Normalize",
    "c3d": "Convolution3D", "flownet_c": "Correlation", "mobilenet_yolo": "Yolov3DetectionOutput",
    "crf_rnn": "MultiStageMeanfield",
    "flownet_s": "DataAugmentation", "dispnet_corr": "Correlation1D", "video_decoder": "Deconvolution3D",
}  # fmt: skip
# What OpenCV has to be told to compute what Caffe does; test_opencv_against_formulas shows who is right.
TOLD = {
    "senet": (r'(bottom: "conv1")\s+(bottom: "side")', r"\2 \1"),
    "refine_det": (r"(min_size: 8)", r"\1 clip: false"),
}


def drawn(net: NetText, folder: Path) -> Imported:
    """The net with numbers that were drawn, kept in a .caffemodel too."""
    prototxt, caffemodel = folder / "net.prototxt", folder / "net.caffemodel"
    prototxt.write_text(net.text)
    imported = import_caffe(prototxt, None, fill=True)
    stored = {layer.name: (layer.type, layer.blobs) for layer in imported.net.layers if layer.blobs}
    caffemodel.write_bytes(weights_bytes(stored))
    return imported


def fed(net: NetText) -> dict[str, Array]:
    feed = {name: values(*shape, seed=5) for name, shape in net.inputs.items()}
    for name, shape in net.inputs.items():
        if name == "im_info":
            feed[name] = np.array([[96, 128, 1]], np.float32)
        elif name == "cont_sentence":
            feed[name] = np.ones(shape, np.float32)
            feed[name][0] = 0
        elif name == "input_sentence":
            feed[name] = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return feed


@pytest.mark.parametrize("name", ZOO)
def test_a_network_of_the_zoo_runs(name: str, tmp_path: Path) -> None:
    net = ZOO[name]()
    imported = drawn(net, tmp_path)
    feed = fed(net)
    ours = run_all(imported.model, feed)
    assert all(np.isfinite(array).all() for array in ours.values() if array.dtype.kind == "f" and array.size)
    assert len(imported.net.layers) >= 4
    again = run_all(import_caffe(tmp_path / "net.prototxt", tmp_path / "net.caffemodel").model, feed)
    assert all(np.array_equal(ours[output], again[output]) for output in again)
    if name in NOT_JUDGED:
        return
    told = tmp_path / "told.prototxt"
    told.write_text(re.sub(*TOLD[name], net.text) if name in TOLD else net.text)
    wanted = opencv_layers((told, tmp_path / "net.caffemodel"), feed)
    tensors = {node.name: node.output[0] for node in imported.model.proto.graph.node}
    judged = [layer for layer in wanted if layer in tensors and layer not in ("detection_out", "labels")]
    if "proposal" in judged:  # OpenCV keeps boxes of any size, against the program that is copied
        judged = judged[: judged.index("proposal")]
    assert len(judged) >= 3
    for layer in judged:
        assert relative_error(ours[tensors[layer]], wanted[layer]) < TOLERANCE, layer


def test_a_random_field_behind_a_net_is_left_out_and_said(tmp_path: Path) -> None:
    net = ZOO["crf_rnn"]()
    imported = drawn(net, tmp_path)
    assert [(each.name, each.type) for each in imported.dropped] == [
        ("inference1", "MultiStageMeanfield"), ("prob", "Softmax"),
    ]  # fmt: skip
    assert imported.dropped[0].why == "refines scores behind the net and is not run"
    assert {output.name for output in imported.model.proto.graph.output} == {"unary", "Q0"}
    net.add("Convolution", "more", "prob", params="convolution_param { num_output: 3 kernel_size: 1 }")
    with pytest.raises(
        BadInput, match=r"'more' \(Convolution\) needs 'prob' of a conditional random field"
    ) as caught:
        drawn(net, tmp_path)
    assert "end the net in front of that field" in str(caught.value.fix)


def test_a_detector_as_ascends_converter_wants_it_ends_in_front_of_the_chips_operators(tmp_path: Path) -> None:
    net = NetText({"data": (1, 3, 16, 16), "img_info": (1, 4)})
    tops: dict[str, list[str]] = {"coords": [], "obj": [], "classes": []}
    for number in range(3):
        said = "convolution_param { num_output: 21 kernel_size: 1 }"
        net.add("Convolution", f"conv{number}", "data", params=said, blobs=[values(21, 3, 1, 1), values(21)])
        names = [f"yolo{number}_{word}" for word in tops]
        for own, name in zip(tops.values(), names, strict=True):
            own.append(name)
        said = "boxes: 3 coords: 4 classes: 2 yolo_version: 'V3' softmax: true background: false"
        net.add("Yolo", f"yolo{number}", f"conv{number}", names, f"yolo_param {{ {said} }}")
    said = "boxes: 3 classes: 2 relative: true obj_threshold: 0.5 score_threshold: 0.5 iou_threshold: 0.45 "
    said += "pre_nms_topn: 512 post_nms_topn: 1024 biases_high: 10 biases_mid: 30 biases_low: 116"
    bottoms = [*tops["coords"], *tops["obj"], *tops["classes"], "img_info"]
    params = f"yolov3_detection_output_param {{ {said} }}"
    net.add("YoloV3DetectionOutput", "detection_out3", bottoms, ["box_out", "box_out_num"], params)
    imported = net.load(tmp_path)
    assert [(each.name, str(each.why)) for each in imported.dropped] == [
        ("detection_out3", "picks boxes behind the net, on the chip alone"),
        ("img_info", "is read by no layer that runs"),
    ]
    assert len(imported.model.proto.graph.output) == 9


def test_the_field_of_the_first_deeplab_is_left_out(tmp_path: Path) -> None:
    prototxt = tmp_path / "net.prototxt"
    prototxt.write_text("""
      input: "data" input_dim: 1 input_dim: 3 input_dim: 9 input_dim: 9
      layers { name: "pool" type: POOLING bottom: "data" top: "fc8" pooling_param { kernel_size: 3 stride: 2 } }
      layers { name: "up" type: INTERP bottom: "fc8" top: "fc8_interp" interp_param { height: 9 width: 9 } }
      layers { name: "crf" type: DENSE_CRF bottom: "fc8_interp" bottom: "data" top: "crf_inf"
        dense_crf_param { max_iter: 10 pos_w: 3 pos_xy_std: 3 bi_w: 5 bi_xy_std: 50 bi_rgb_std: 10 } }
      layers { name: "mat" type: MAT_WRITE bottom: "crf_inf" }
    """)
    imported = import_caffe(prototxt, None)
    assert [each.name for each in imported.dropped] == ["crf", "mat"]
    assert [output.name for output in imported.model.proto.graph.output] == ["fc8_interp"]


# Nets without numbers, with shared ones, and on other sizes.


def test_a_net_without_layers_that_have_numbers_needs_no_file_of_them(tmp_path: Path) -> None:
    prototxt = tmp_path / "net.prototxt"
    prototxt.write_text(NetText().add("Pooling", "pool", "data", params="pooling_param { kernel_size: 2 }").text)
    assert [node.op_type for node in load_model(prototxt).proto.graph.node] == ["MaxPool"]
    prototxt.write_text(ZOO["lenet"]().text)
    with pytest.raises(BadInput, match=r"'conv1' .* needs blob 0, but no .caffemodel was given") as caught:
        load_model(prototxt)
    assert "--random-weights" in str(caught.value.fix)


def test_numbers_that_were_drawn_are_the_same_each_time_and_never_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.prototxt").write_text(ZOO["lenet"]().text)
    for name in ("a.onnx", "b.onnx"):
        assert main(["convert", "net.prototxt", "--random-weights", "-o", name]) == 0
        assert "numbers of 4 layers were drawn at random" in capsys.readouterr().err
    assert Path("a.onnx").read_bytes() == Path("b.onnx").read_bytes()
    np.save("x.npy", values(2, 1, 28, 28))
    assert main(["dump", "a.onnx", "--data", "x.npy", "-o", "dump"]) == 0
    assert "a.onnx: the numbers of 4 layers were drawn at random" in capsys.readouterr().err


CONV = "convolution_param {{ num_output: 3 kernel_size: 1 bias_term: false }} param {{ name: 'w' share_mode: {} }}"


def test_layers_that_share_numbers_have_those_that_were_stored_last(tmp_path: Path) -> None:
    first, last = values(3, 3, 1, 1, seed=1), values(3, 3, 1, 1, seed=2)
    data = values(1, 3, 8, 8)
    net = NetText().add("Convolution", "one", "data", params=CONV.format("STRICT"), blobs=[first])
    net.add("Convolution", "two", "data", params=CONV.format("STRICT"))
    found = run_all(net.load(tmp_path).model, {"data": data})
    wanted = np.einsum("oc,nchw->nohw", first[:, :, 0, 0], data)
    assert relative_error(found["one"], wanted) < 1e-5
    assert np.array_equal(found["two"], found["one"])
    net.add("Convolution", "three", "data", params=CONV.format("STRICT"), blobs=[last])
    found = run_all(net.load(tmp_path).model, {"data": data})
    wanted = np.einsum("oc,nchw->nohw", last[:, :, 0, 0], data)
    assert all(relative_error(found[name], wanted) < 1e-5 for name in ("one", "two", "three"))


def test_shared_numbers_of_another_shape(tmp_path: Path) -> None:
    stored = values(3, 3, seed=1)
    data = values(1, 3, 8, 8)
    said = "inner_product_param { num_output: 3 bias_term: false } param { name: 'w' }"
    net = NetText({"data": data.shape, "row": (1, 3)}).add(
        "InnerProduct", "ip", "row", params=said, blobs=[stored]
    )
    net.add("Convolution", "conv", "data", params=CONV.format("PERMISSIVE"))
    found = run_all(net.load(tmp_path).model, {"data": data, "row": values(1, 3)})["conv"]
    assert relative_error(found, np.einsum("oc,nchw->nohw", stored, data)) < 1e-5
    net.text = net.text.replace("PERMISSIVE", "STRICT")
    with pytest.raises(BadInput, match="needs blob 0 in the shape 3x3x1x1"):
        net.load(tmp_path)


def test_a_fully_convolutional_net_takes_other_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    drawn(ZOO["fcn8s"](), tmp_path)
    words = ["convert", "net.prototxt", "net.caffemodel", "--input-shape", "data:1x3x61x83", "-o", "big.onnx"]
    assert main(words) == 0
    assert "data: Nx3x61x83" in capsys.readouterr().out
    data = values(1, 3, 61, 83)
    ours = run_all(load_model("big.onnx"), {"data": data})["score"]
    assert ours.shape == (1, 5, 61, 83)
    Path("net.prototxt").write_text(Path("net.prototxt").read_text().replace("dim: 40 dim: 40", "dim: 61 dim: 83"))
    wanted = opencv_layers((Path("net.prototxt"), Path("net.caffemodel")), {"data": data})["score"]
    assert relative_error(ours, wanted) < TOLERANCE
    assert main([*words[:4], "date:1,3,61,83", *words[5:]]) == 2
    assert "no input 'date'" in capsys.readouterr().err
    assert main([*words[:4], "1,3,61,83", *words[5:], "--force"]) == 0
    assert "data: Nx3x61x83" in capsys.readouterr().out
    drawn(ZOO["siamese"](), tmp_path)
    assert main([*words[:4], "1,1,61,83", *words[5:], "--force"]) == 2
    assert "has 2 inputs" in capsys.readouterr().err
    drawn(ZOO["lenet"](), tmp_path)
    assert main([*words[:4], "data:1,1,40,40", *words[5:], "--force"]) == 2
    assert "leave out --input-shape" in capsys.readouterr().err


def test_the_two_files_of_a_net_may_be_two_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    drawn(ZOO["lenet"](), tmp_path)
    Path("net.caffemodel").rename("numbers.caffemodel")
    Path("other.caffemodel").write_bytes(b"no numbers")
    np.save("x.npy", values(2, 1, 28, 28))
    assert main(["dump", "net.prototxt", "numbers.caffemodel", "--data", "x.npy", "-o", "dump"]) == 0
    assert main(
        ["layers", "--data", "x.npy", "--target", "generic-int8", "net.prototxt", "numbers.caffemodel"]
    ) in (0, 1)
    assert main(["dump", "net.prototxt", "--data", "x.npy", "-o", "again"]) == 2
    assert "beside it there are 2" in capsys.readouterr().err
