"""Whole nets of the kinds that are deployed, against OpenCV: a detector, a segmenter, old binaries."""

from pathlib import Path

import numpy as np
import pytest

from roundoff.core.tensors import Array
from roundoff.core.text_proto import TextEntry, TextMessage
from roundoff.graph.caffe.convert import import_caffe
from roundoff.graph.caffe.wire import encode
from tests.graph.caffe.nets import NetText, relative_error, run_all, values
from tests.graph.caffe.opencv import TOLERANCE, agree, opencv_layers
from tests.graph.caffe.test_net import V1


def conv(
    net: NetText, name: str, bottom: str, channels: tuple[int, int], params: str = "kernel_size: 3 pad: 1"
) -> str:
    inputs, out = channels
    kernel = int(params.split("kernel_size: ")[1].split(maxsplit=1)[0])
    weights = values(out, inputs, kernel, kernel, seed=len(net.text)) / np.float32(kernel * inputs)
    blobs = [weights, values(out, seed=len(net.text) + 1, low=-0.1, high=0.1)]
    net.add("Convolution", name, bottom, params=f"convolution_param {{ num_output: {out} {params} }}", blobs=blobs)
    return name


def detector(size: int = 40, classes: int = 3) -> NetText:
    """Two maps with boxes, as SSD has them."""
    net = NetText({"data": (1, 3, size, size)})
    first = conv(net, "conv1", "data", (3, 8), "kernel_size: 3 pad: 1 stride: 4")
    net.add("ReLU", "relu1", first, first)
    second = conv(net, "conv2", first, (8, 8), "kernel_size: 3 pad: 1 stride: 2")
    net.add("ReLU", "relu2", second, second)
    norm = "norm_param { across_spatial: false channel_shared: false scale_filler { type: 'constant' value: 2 } }"
    net.add("Normalize", "conv1_norm", first, params=norm, blobs=[np.full(8, 2, np.float32)])
    moves: list[str] = []
    scores: list[str] = []
    priors: list[str] = []
    for source, smallest in (("conv1_norm", 8), ("conv2", 16)):
        for kind, count, found in (("loc", 4, moves), ("conf", classes, scores)):
            name = conv(net, f"{source}_{kind}", source, (8, 4 * count))
            net.add(
                "Permute", f"{name}_perm", name, params="permute_param { order: 0 order: 2 order: 3 order: 1 }"
            )
            net.add("Flatten", f"{name}_flat", f"{name}_perm", params="flatten_param { axis: 1 }")
            found.append(f"{name}_flat")
        box = f"min_size: {smallest} max_size: {2 * smallest} aspect_ratio: 2 flip: true clip: false offset: 0.5"
        variance = " ".join(f"variance: {each}" for each in (0.1, 0.1, 0.2, 0.2))
        net.add("PriorBox", f"{source}_prior", [source, "data"], params=f"prior_box_param {{ {box} {variance} }}")
        priors.append(f"{source}_prior")
    net.add("Concat", "loc", moves, params="concat_param { axis: 1 }")
    net.add("Concat", "conf", scores, params="concat_param { axis: 1 }")
    net.add("Concat", "prior", priors, params="concat_param { axis: 2 }")
    net.add(
        "Reshape", "conf_rows", "conf", params=f"reshape_param {{ shape {{ dim: 0 dim: -1 dim: {classes} }} }}"
    )
    net.add("Softmax", "conf_softmax", "conf_rows", params="softmax_param { axis: 2 }")
    net.add("Flatten", "conf_flat", "conf_softmax", params="flatten_param { axis: 1 }")
    output = "share_location: true background_label_id: 0 nms_param { nms_threshold: 0.45 top_k: 400 } "
    output += "save_output_param { label_map_file: 'x.prototxt' } code_type: CENTER_SIZE keep_top_k: 20 "
    output += "confidence_threshold: 0.4"
    return net.add(
        "DetectionOutput", "found", ["loc", "conf_flat", "prior"],
        params=f"detection_output_param {{ num_classes: {classes} {output} }}",
    )  # fmt: skip


def test_a_detector(tmp_path: Path) -> None:
    net = detector()
    feed = {"data": values(1, 3, 40, 40, seed=3)}
    wanted = opencv_layers(net.write(tmp_path), feed)
    model = net.load(tmp_path).model
    ours = run_all(model, feed)
    for node in model.proto.graph.node:
        if node.name in wanted and node.name != "found":
            assert relative_error(ours[node.output[0]], wanted[node.name]) < TOLERANCE, node.name
    rows = wanted["found"][0, 0]
    assert ours["found"].shape[2] == np.count_nonzero(rows[:, 2]) > 3
    sorted_rows = np.array(sorted((row for row in rows if row[2]), key=lambda row: (row[1], -row[2])))
    assert relative_error(ours["found"][0, 0], sorted_rows) < TOLERANCE


def test_a_segmenter(tmp_path: Path) -> None:
    """Fully convolutional: far padding, pooling that rounds up, transposed convolutions, crops and sums."""
    net = NetText({"data": (1, 3, 19, 23)})
    blob = conv(net, "conv1", "data", (3, 6), "kernel_size: 3 pad: 10")
    net.add("ReLU", "relu1", blob, blob)
    net.add("Pooling", "pool1", blob, params="pooling_param { pool: MAX kernel_size: 2 stride: 2 }")
    conv(net, "conv2", "pool1", (6, 6))
    net.add("Pooling", "pool2", "conv2", params="pooling_param { pool: MAX kernel_size: 2 stride: 2 }")
    conv(net, "score", "pool2", (6, 5), "kernel_size: 1 pad: 0")
    up = "convolution_param { num_output: 5 bias_term: false kernel_size: 4 stride: 2 }"
    net.add("Deconvolution", "up1", "score", params=up, blobs=[values(5, 5, 4, 4)])
    conv(net, "score1", "pool1", (6, 5), "kernel_size: 1 pad: 0")
    net.add("Crop", "crop1", ["up1", "score1"], params="crop_param { axis: 2 offset: 0 }")
    net.add("Eltwise", "fuse", ["crop1", "score1"])
    net.add("Deconvolution", "up2", "fuse", params=up, blobs=[values(5, 5, 4, 4, seed=9)])
    net.add("Crop", "out", ["up2", "data"], params="crop_param { axis: 2 offset: 5 }")
    agree(net, tmp_path)


def legacy(array: Array) -> TextMessage:
    """A blob of four sizes."""
    shape = (1,) * (4 - array.ndim) + array.shape
    sizes = zip(("num", "channels", "height", "width"), shape, strict=True)
    return TextMessage((*(TextEntry(name, int(size)) for name, size in sizes), TextEntry("data", array.ravel())))


@pytest.mark.parametrize("oldest", [False, True])
def test_binaries_of_the_old_forms(*, oldest: bool, tmp_path: Path) -> None:
    blobs = {
        "conv": ("CONVOLUTION", [values(4, 3, 3, 3), values(4, seed=1)]),
        "fc": ("INNER_PRODUCT", [values(5, 64, seed=2), values(5, seed=3)]),
    }
    layers = []
    for name, (kind, arrays) in blobs.items():
        stored = [TextEntry("blobs", legacy(array)) for array in arrays]
        types = {"CONVOLUTION": "conv", "INNER_PRODUCT": "innerproduct"}
        inner = (TextEntry("name", name), TextEntry("type", types[kind] if oldest else kind), *stored)
        message = TextMessage((TextEntry("layer", TextMessage(inner)),)) if oldest else TextMessage(inner)
        layers.append(TextEntry("layers", message))
    (tmp_path / "net.prototxt").write_text(V1)
    (tmp_path / "net.caffemodel").write_bytes(b"".join(encode(TextMessage(tuple(layers)), "NetParameter")))
    files = tmp_path / "net.prototxt", tmp_path / "net.caffemodel"
    feed = {"data": values(1, 3, 8, 8, seed=4)}
    found = run_all(import_caffe(*files).model, feed)
    if oldest:  # OpenCV does not read these
        np.testing.assert_allclose(found["prob"].sum(), 1, rtol=1e-5)
        return
    wanted = opencv_layers(files, feed)
    assert relative_error(found["prob"], wanted["prob"]) < TOLERANCE
    assert relative_error(found["norm"], wanted["norm"]) < TOLERANCE


def test_numbers_of_half_precision(tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2", reason="opencv-python-headless<5 is not installed")
    net = NetText()
    conv(net, "conv", "data", (3, 8))
    prototxt, caffemodel = net.write(tmp_path)
    cv2.dnn.shrinkCaffeModel(str(caffemodel), str(tmp_path / "half.caffemodel"))
    feed = {"data": values(1, 3, 8, 8)}
    whole = run_all(import_caffe(prototxt, caffemodel).model, feed)["conv"]
    half = run_all(import_caffe(prototxt, tmp_path / "half.caffemodel").model, feed)["conv"]
    assert 0 < relative_error(half, whole) < 1e-3
    wanted = opencv_layers((prototxt, tmp_path / "half.caffemodel"), feed)["conv"]
    assert relative_error(half, wanted) < TOLERANCE
