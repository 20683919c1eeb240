"""Every layer that OpenCV has, too, computes the same in both."""

from pathlib import Path

import numpy as np
import pytest

from tests.graph.caffe.nets import NetText, relative_error, run_all, values
from tests.graph.caffe.opencv import TOLERANCE, agree, opencv_layers

SHAPE = {"data": (2, 4, 5, 6)}


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("ReLU", ""),
        ("ReLU", "relu_param { negative_slope: 0.1 }"),
        ("ReLU6", ""),
        ("ELU", "elu_param { alpha: 0.5 }"),
        ("Sigmoid", ""),
        ("TanH", ""),
        ("AbsVal", ""),
        ("BNLL", ""),
        ("Power", "power_param { power: 2 scale: 0.5 shift: 1.5 }"),
        ("Power", "power_param { scale: 3 }"),
        ("Power", "power_param { scale: 3 shift: -1 }"),
        ("Exp", "exp_param { base: 2 scale: 0.5 shift: 1 }"),
        ("Exp", ""),
        ("Dropout", "dropout_param { dropout_ratio: 0.3 }"),
        ("Softmax", ""),
        ("Softmax", "softmax_param { axis: -1 }"),
        ("LRN", "lrn_param { local_size: 3 alpha: 0.5 beta: 0.7 }"),
        ("LRN", "lrn_param { local_size: 3 alpha: 0.5 beta: 0.7 norm_region: WITHIN_CHANNEL }"),
        ("MVN", ""),
        ("MVN", "mvn_param { across_channels: true }"),
        ("MVN", "mvn_param { normalize_variance: false }"),
        ("Flatten", ""),
        ("Flatten", "flatten_param { axis: 2 }"),
        ("Flatten", "flatten_param { axis: 1 end_axis: 2 }"),
        ("Reshape", "reshape_param { shape { dim: 0 dim: -1 } }"),
        ("Reshape", "reshape_param { shape { dim: 0 dim: 2 dim: -1 } }"),
        ("Reshape", "reshape_param { shape { dim: 5 dim: -1 } axis: 2 num_axes: 1 }"),
        ("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }"),
        ("ShuffleChannel", "shuffle_channel_param { group: 2 }"),
        ("Interp", "interp_param { height: 9 width: 7 }"),
        ("Interp", "interp_param { zoom_factor: 2 }"),
    ],
)
def test_layers_without_numbers(kind: str, params: str, tmp_path: Path) -> None:
    agree(NetText(SHAPE).add(kind, "layer", "data", params=params), tmp_path)


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize("size", [5, 6, 7, 8, 9])
@pytest.mark.parametrize(
    ("kernel", "stride", "pad"),
    [(2, 2, 0), (3, 2, 0), (3, 2, 1), (3, 3, 1), (2, 2, 1), (4, 3, 2), (5, 1, 2), (1, 1, 0)],
)
def test_pooling(method: str, size: int, kernel: int, stride: int, pad: int, tmp_path: Path) -> None:
    params = f"pooling_param {{ pool: {method} kernel_size: {kernel} stride: {stride} pad: {pad} }}"
    agree(NetText({"data": (1, 2, size, size + 1)}).add("Pooling", "pool", "data", params=params), tmp_path)


@pytest.mark.parametrize("method", ["MAX", "AVE"])
def test_global_pooling(method: str, tmp_path: Path) -> None:
    params = f"pooling_param {{ pool: {method} global_pooling: true }}"
    agree(NetText(SHAPE).add("Pooling", "pool", "data", params=params), tmp_path)


@pytest.mark.parametrize(
    ("params", "weight", "bias"),
    [
        ("num_output: 6 kernel_size: 3 pad: 1 stride: 2 group: 2", (6, 2, 3, 3), 6),
        ("num_output: 6 kernel_h: 3 kernel_w: 2 pad_h: 1 pad_w: 2 dilation: 2 bias_term: false", (6, 4, 3, 2), 0),
        ("num_output: 4 kernel_size: 3 group: 4", (4, 1, 3, 3), 4),
        ("num_output: 3 kernel_size: 2 kernel_size: 3 stride: 2 stride: 1", (3, 4, 2, 3), 3),
    ],
)
def test_convolution(params: str, weight: tuple[int, ...], bias: int, tmp_path: Path) -> None:
    blobs = [values(*weight), *([values(bias, seed=1)] if bias else [])]
    net = NetText({"data": (2, 4, 9, 8)})
    agree(
        net.add("Convolution", "conv", "data", params=f"convolution_param {{ {params} }}", blobs=blobs), tmp_path
    )


def test_deconvolution_with_groups(tmp_path: Path) -> None:
    params = "convolution_param { num_output: 6 kernel_size: 4 pad: 1 stride: 2 group: 2 }"
    blobs = [values(4, 3, 4, 4), values(6, seed=1)]
    agree(NetText(SHAPE).add("Deconvolution", "up", "data", params=params, blobs=blobs), tmp_path)


@pytest.mark.parametrize(("axis", "count"), [(1, 120), (2, 30)])
def test_inner_product(axis: int, count: int, tmp_path: Path) -> None:
    params = f"inner_product_param {{ num_output: 6 axis: {axis} }}"
    blobs = [values(6, count), values(6, seed=1)]
    agree(NetText(SHAPE).add("InnerProduct", "fc", "data", params=params, blobs=blobs), tmp_path)


def test_layers_with_numbers(tmp_path: Path) -> None:
    net = NetText(SHAPE)
    net.add("BatchNorm", "bn", "data", blobs=[values(4), values(4, low=0.1), np.array([2.5], np.float32)])
    net.add("Scale", "scale", "bn", params="scale_param { bias_term: true }", blobs=[values(4), values(4, seed=1)])
    net.add("PReLU", "prelu", "scale", blobs=[values(4, seed=2)])
    shared = "prelu_param { channel_shared: true }"
    net.add("PReLU", "shared", "prelu", params=shared, blobs=[np.array([0.3], np.float32)])
    agree(net, tmp_path)


@pytest.mark.parametrize(("across", "shared"), [("true", "true"), ("false", "true"), ("false", "false")])
def test_normalize(across: str, shared: str, tmp_path: Path) -> None:
    params = f"norm_param {{ across_spatial: {across} channel_shared: {shared} }}"
    blobs = [values(1 if shared == "true" else 4, seed=2)]
    agree(NetText(SHAPE).add("Normalize", "norm", "data", params=params, blobs=blobs), tmp_path)


@pytest.mark.parametrize(
    ("operation", "count"), [("PROD", 2), ("PROD", 4), ("SUM", 2), ("SUM", 3), ("MAX", 2), ("MAX", 3)]
)
def test_eltwise(operation: str, count: int, tmp_path: Path) -> None:
    names = [f"in{number}" for number in range(count)]
    net = NetText(dict.fromkeys(names, (2, 4, 5, 6)))
    net.add("Eltwise", "sum", names, params=f"eltwise_param {{ operation: {operation} }}")
    feed = {name: values(2, 4, 5, 6, seed=number) for number, name in enumerate(names)}
    agree(net, tmp_path, feed)


def test_layers_with_several_bottoms_or_tops(tmp_path: Path) -> None:
    net = NetText({"a": (2, 4, 5, 6), "b": (2, 4, 5, 6), "c": (2, 4)})
    net.add("Eltwise", "weighted", ["a", "b"], params="eltwise_param { coeff: 1 coeff: -2.5 }")
    net.add("Concat", "joined", ["weighted", "b"])
    net.add("Slice", "cut", "joined", ["left", "right"], "slice_param { slice_point: 3 }")
    net.add("ReLU", "relu", "right")
    net.add("Scale", "gate", ["a", "c"], params="scale_param { axis: 0 }")
    agree(net, tmp_path, {name: values(*shape, seed=4) for name, shape in net.inputs.items()})


def test_crop(tmp_path: Path) -> None:
    net = NetText({"a": (2, 4, 9, 8), "b": (2, 4, 5, 6)})
    agree(net.add("Crop", "crop", ["a", "b"], params="crop_param { axis: 2 offset: 1 offset: 2 }"), tmp_path)


def test_roi_pooling(tmp_path: Path) -> None:
    net = NetText({"plane": (1, 4, 20, 20), "rois": (3, 5)})
    net.add("ROIPooling", "roi", ["plane", "rois"], params=(
        "roi_pooling_param { pooled_h: 3 pooled_w: 4 spatial_scale: 0.5 }"))  # fmt: skip
    rois = np.array([[0, 1, 2, 30, 33], [0, 5, 5, 11, 38], [0, 0, 0, 3, 3]], np.float32)
    agree(net, tmp_path, {"plane": values(1, 4, 20, 20), "rois": rois})


@pytest.mark.parametrize(
    "params",
    [
        (
            "min_size: 20 max_size: 40 aspect_ratio: 2 aspect_ratio: 3 variance: 0.1 variance: 0.1 "
            "variance: 0.2 variance: 0.2 clip: false"
        ),
        "min_size: 20 min_size: 30 aspect_ratio: 2 aspect_ratio: 1 flip: false clip: true step: 8 variance: 0.1",
    ],
)
def test_prior_box(params: str, tmp_path: Path) -> None:
    net = NetText({"map": (1, 4, 3, 5), "image": (1, 3, 60, 100)})
    agree(net.add("PriorBox", "prior", ["map", "image"], params=f"prior_box_param {{ {params} }}"), tmp_path)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("code", ["CENTER_SIZE", "CORNER"])
@pytest.mark.parametrize("limits", [(5, 12), (7, 6), (200, 12)])
def test_detection_output(*, shared: bool, code: str, limits: tuple[int, int], tmp_path: Path) -> None:
    priors, classes = 12, 3
    generator = np.random.default_rng(3)
    corner = generator.uniform(0, 0.6, (priors, 2))
    boxes = np.concatenate([corner, corner + generator.uniform(0.1, 0.4, (priors, 2))], axis=1)
    prior = np.stack([boxes.ravel(), np.tile([0.1, 0.1, 0.2, 0.2], priors)])[None].astype(np.float32)
    moves = priors * 4 * (1 if shared else classes)
    net = NetText({"moves": (1, moves), "scores": (1, priors * classes), "prior": (1, 2, priors * 4)})
    net.add("DetectionOutput", "found", ["moves", "scores", "prior"], params=(
        f"detection_output_param {{ num_classes: {classes} share_location: {str(shared).lower()} "
        f"background_label_id: 0 nms_param {{ nms_threshold: 0.45 top_k: {limits[1]} }} code_type: {code} "
        f"keep_top_k: {limits[0]} confidence_threshold: 0.3 }}"))  # fmt: skip
    feed = {
        "moves": values(1, moves, seed=5),
        "scores": values(1, priors * classes, seed=6, low=0),
        "prior": prior,
    }
    wanted = opencv_layers(net.write(tmp_path), feed)["found"]
    ours = run_all(net.load(tmp_path).model, feed)["found"]
    # OpenCV fills up to keep_top_k rows with zeros, and has an order of its own.
    rows = sorted((row for row in wanted[0, 0] if row[2]), key=lambda row: (row[1], -row[2]))
    assert relative_error(ours[0, 0], np.array(rows)) < TOLERANCE
