"""Layers of detectors against loops over pixels and boxes, as the papers' programs have them."""

import math
from pathlib import Path

import numpy as np
import pytest

from roundoff import register_layer
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.caffe.conversion import LayerJob
from tests.graph.caffe.nets import NetText, relative_error, run_all, values
from tests.graph.caffe.opencv import agree


def computed(folder: Path, net: NetText, **feed: Array) -> dict[str, Array]:
    return run_all(net.load(folder).model, feed)


# Proposal.


def anchors(ratios: tuple[float, ...], scales: tuple[float, ...]) -> Array:
    """The nine boxes of Faster R-CNN, written as its helper functions nest."""
    made = []
    for ratio in ratios:
        wide = round(math.sqrt(256 / ratio))
        high = round(wide * ratio)
        for scale in scales:
            w, h = wide * scale, high * scale
            made.append([7.5 - (w - 1) / 2, 7.5 - (h - 1) / 2, 7.5 + (w - 1) / 2, 7.5 + (h - 1) / 2])
    return np.array(made)


def overlap(one: Array, other: Array) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0]) + 1
    height = min(one[3], other[3]) - max(one[1], other[1]) + 1
    if width <= 0 or height <= 0:
        return 0.0
    area = [(box[2] - box[0] + 1) * (box[3] - box[1] + 1) for box in (one, other)]
    return float(width * height / (sum(area) - width * height))


def proposals(
    scores: Array, moves: Array, info: Array, *, base: Array, limits: tuple[int, int], stride: int, least: float
) -> Array:
    """Box by box."""
    before, after = limits
    count = len(base)
    found = []
    for y, x, number in np.ndindex(*scores.shape[2:], count):
        left, top, right, bottom = base[number] + stride * np.array([x, y, x, y])
        width, height = right - left + 1, bottom - top + 1
        dx, dy, dw, dh = moves[0, 4 * number : 4 * number + 4, y, x].astype(np.float64)
        cx, cy = dx * width + left + width / 2, dy * height + top + height / 2
        w, h = math.exp(dw) * width, math.exp(dh) * height
        box = np.array([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2])
        box = np.clip(box, 0, np.array([info[1], info[0], info[1], info[0]]) - 1)
        if min(box[2] - box[0], box[3] - box[1]) + 1 >= least * info[2]:
            found.append((float(scores[0, count + number, y, x]), box))
    found.sort(key=lambda pair: -pair[0])
    kept: list[Array] = []
    for _, box in found[:before]:
        if all(overlap(box, other) <= 0.7 for other in kept):
            kept.append(box)
    return np.array([[0, *box] for box in kept[:after]])


PROPOSAL = "proposal_param { feat_stride: 16 base_size: 16 min_size: 16 pre_nms_topn: %d post_nms_topn: %d %s }"


@pytest.mark.parametrize(("before", "after"), [(6000, 300), (60, 20), (150, 12)])
@pytest.mark.parametrize("shape", [((0.5, 1.0, 2.0), (8.0, 16.0, 32.0)), ((1.0, 2.0), (4.0,))])
def test_proposal(
    before: int, after: int, shape: tuple[tuple[float, ...], tuple[float, ...]], tmp_path: Path
) -> None:
    ratios, scales = shape
    count = len(ratios) * len(scales)
    net = NetText({"scores": (1, 2 * count, 6, 7), "moves": (1, 4 * count, 6, 7), "im_info": (1, 3)})
    said = " ".join([*(f"ratio: {each}" for each in ratios), *(f"scale: {each}" for each in scales)])
    net.add("Proposal", "rois", list(net.inputs), params=PROPOSAL % (before, after, said))
    scores = values(1, 2 * count, 6, 7, seed=1, low=0)
    moves = values(1, 4 * count, 6, 7, seed=2, low=-0.4, high=0.4)
    info = np.array([[90, 110, 1.5]], np.float32)
    found = computed(tmp_path, net, scores=scores, moves=moves, im_info=info)["rois"]
    base = anchors(ratios, scales)
    wanted = proposals(scores, moves, info[0], base=base, limits=(before, after), stride=16, least=16)
    assert len(wanted) > 3
    assert relative_error(found, wanted) < 1e-5


def test_the_proposal_layer_in_python_is_the_same(tmp_path: Path) -> None:
    feed = {
        "scores": values(1, 18, 4, 5, seed=1, low=0),
        "moves": values(1, 36, 4, 5, seed=2),
        "im_info": np.array([[64, 80, 1]], np.float32),
    }
    shapes = {name: array.shape for name, array in feed.items()}
    plain = NetText(shapes).add("Proposal", "rois", list(shapes), params="proposal_param { feat_stride: 16 }")
    python = (
        "python_param { module: 'rpn.proposal_layer' layer: 'ProposalLayer' "
        "param_str: \"'feat_stride': 16\\n'scales': !!python/tuple [8, 16, 32]\" }"
    )
    other = NetText(shapes).add("Python", "rois", list(shapes), params=python)
    (tmp_path / "other").mkdir()
    first, second = computed(tmp_path, plain, **feed)["rois"], computed(tmp_path / "other", other, **feed)["rois"]
    assert np.array_equal(first, second)


def test_scores_and_number_of_proposals(tmp_path: Path) -> None:
    shapes = {"scores": (1, 18, 4, 5), "moves": (1, 36, 4, 5), "im_info": (1, 3)}
    feed = {name: values(*shape, seed=3, low=0) for name, shape in shapes.items()}
    feed["im_info"] = np.array([[64, 80, 1]], np.float32)
    for said, wanted in (("", None), ("output_actual_rois_num: true", 1)):
        net = NetText(shapes).add("Proposal", "p", list(shapes), ["rois", "more"], PROPOSAL % (100, 9, said))
        found = computed(tmp_path, net, **feed)
        if wanted:
            assert found["more"].tolist() == [len(found["rois"])]
        else:
            assert found["more"].shape == (len(found["rois"]), 1)
            assert (np.diff(found["more"][:, 0]) <= 0).all()


def test_where_every_box_is_too_small_the_likeliest_stays(tmp_path: Path) -> None:
    shapes = {"scores": (1, 18, 4, 5), "moves": (1, 36, 4, 5), "im_info": (1, 3)}
    feed = {name: values(*shape, seed=3, low=0) for name, shape in shapes.items()}
    feed["im_info"] = np.array([[8, 8, 4]], np.float32)
    net = NetText(shapes).add("Proposal", "p", list(shapes), "rois", PROPOSAL % (100, 9, ""))
    assert computed(tmp_path, net, **feed)["rois"].shape == (1, 5)


# Parts of planes.

ROIS = np.array(
    [
        [0, 1, 2, 30, 33],
        [1, 5, 5, 11, 38],
        [0, 0, 0, 3, 3],
        [1, 20.5, 3.5, 21.5, 39],
        [0, 36, 36, 60, 60],
        [1, 7, 9, 7, 9],
    ],
    np.float32,
)


def test_psroi_pooling(tmp_path: Path) -> None:
    data, cells, out = values(2, 2 * 9, 20, 19, seed=1), 3, 2
    net = NetText({"plane": data.shape, "rois": ROIS.shape})
    params = "psroi_pooling_param { spatial_scale: 0.5 output_dim: 2 group_size: 3 }"
    found = computed(
        tmp_path, net.add("PSROIPooling", "layer", ["plane", "rois"], params=params), plane=data, rois=ROIS
    )
    wanted = np.zeros((len(ROIS), out, cells, cells), np.float32)
    for number, roi in enumerate(ROIS):
        sample = int(roi[0])
        left, top = (math.floor(edge + 0.5) * 0.5 for edge in roi[1:3])
        right, bottom = ((math.floor(edge + 0.5) + 1) * 0.5 for edge in roi[3:])
        high, wide = max(bottom - top, 0.1) / cells, max(right - left, 0.1) / cells
        for channel, i, j in np.ndindex(out, cells, cells):
            y0, y1 = (
                min(max(edge, 0), 20) for edge in (math.floor(i * high + top), math.ceil((i + 1) * high + top))
            )
            x0, x1 = (
                min(max(edge, 0), 19) for edge in (math.floor(j * wide + left), math.ceil((j + 1) * wide + left))
            )
            window = data[sample, (channel * cells + i) * cells + j, y0:y1, x0:x1]
            wanted[number, channel, i, j] = window.mean() if window.size else 0
    assert relative_error(found["layer"], wanted) < 1e-5
    agree(net, tmp_path, {"plane": data, "rois": ROIS})


def bilinear(plane: Array, y: float, x: float) -> float:
    height, width = plane.shape
    if y < -1 or y > height or x < -1 or x > width:
        return 0.0
    y, x = max(y, 0.0), max(x, 0.0)
    y0, x0 = min(int(y), height - 1), min(int(x), width - 1)
    y1, x1 = min(y0 + 1, height - 1), min(x0 + 1, width - 1)
    dy, dx = (0.0 if y0 == height - 1 else y - y0), (0.0 if x0 == width - 1 else x - x0)
    upper = plane[y0, x0] * (1 - dx) + plane[y0, x1] * dx
    lower = plane[y1, x0] * (1 - dx) + plane[y1, x1] * dx
    return float(upper * (1 - dy) + lower * dy)


@pytest.mark.parametrize("ratio", [-1, 2])
def test_roi_align(ratio: int, tmp_path: Path) -> None:
    data, cells = values(2, 2, 20, 19, seed=1), 3
    net = NetText({"plane": data.shape, "rois": ROIS.shape})
    params = f"roi_align_param {{ pooled_h: 3 pooled_w: 3 spatial_scale: 0.5 sampling_ratio: {ratio} }}"
    found = computed(
        tmp_path, net.add("ROIAlign", "layer", ["plane", "rois"], params=params), plane=data, rois=ROIS
    )
    wanted = np.zeros((len(ROIS), 2, cells, cells))
    for number, roi in enumerate(ROIS):
        left, top, right, bottom = roi[1:] * 0.5
        high, wide = max(bottom - top, 1) / cells, max(right - left, 1) / cells
        rows = ratio if ratio > 0 else math.ceil(high)
        columns = ratio if ratio > 0 else math.ceil(wide)
        for channel, i, j in np.ndindex(2, cells, cells):
            points = [
                bilinear(
                    data[int(roi[0]), channel],
                    top + i * high + (a + 0.5) * high / rows,
                    left + j * wide + (b + 0.5) * wide / columns,
                )
                for a, b in np.ndindex(rows, columns)
            ]
            wanted[number, channel, i, j] = np.mean(points)
    assert relative_error(found["layer"], wanted) < 1e-5


def test_a_third_bottom_of_roi_pooling_is_only_a_number(tmp_path: Path) -> None:
    data = values(2, 4, 20, 20)
    params = "roi_pooling_param { pooled_h: 3 pooled_w: 4 spatial_scale_h: 0.5 spatial_scale_w: 0.5 }"
    net = NetText({"plane": data.shape, "rois": ROIS.shape, "number": (1,)})
    net.add("ROIPooling", "three", ["plane", "rois", "number"], params=params)
    net.add("ROIPooling", "two", ["plane", "rois"], params=params)
    found = computed(tmp_path, net, plane=data, rois=ROIS, number=np.ones(1, np.float32))
    assert np.array_equal(found["three"], found["two"])


# Grids.


@pytest.mark.parametrize("reverse", [False, True])
def test_reorg_moves_as_darknet_does(tmp_path: Path, *, reverse: bool) -> None:
    stride, shape = 2, (2, 8, 4, 6)
    data = values(*shape, seed=1)
    params = f"reorg_param {{ stride: {stride} reverse: {str(reverse).lower()} }}"
    found = computed(tmp_path, NetText({"data": shape}).add("Reorg", "layer", "data", params=params), data=data)[
        "layer"
    ]
    batch, channels, height, width = shape
    flat, moved = data.ravel(), np.zeros(data.size, np.float32)
    few = channels // stride**2
    for b, k, j, i in np.ndindex(*shape):
        here = i + width * (j + height * (k + channels * b))
        offset = k // few
        x, y = i * stride + offset % stride, j * stride + offset // stride
        there = x + width * stride * (y + height * stride * (k % few + few * b))
        if reverse:
            moved[there] = flat[here]
        else:
            moved[here] = flat[there]
    top = (batch, few, height * 2, width * 2) if reverse else (batch, channels * 4, height // 2, width // 2)
    assert np.array_equal(found, moved.reshape(top))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softmax(x: Array) -> Array:
    raised = np.exp(x - x.max(axis=0))
    return np.asarray(raised / raised.sum(axis=0))


@pytest.mark.parametrize(
    ("kind", "params", "soft", "background"),
    [
        ("Region", "region_param { classes: 3 coords: 4 boxes_of_each_grid: 2 softmax: true }", True, False),
        ("Region", "region_param { classes: 3 num: 2 }", False, False),
        ("Yolo", "yolo_param { classes: 3 boxes: 2 softmax: true }", False, False),
        ("Yolo", "yolo_param { classes: 3 boxes: 2 yolo_version: 'V2' softmax: true }", True, False),
        ("Yolo", "yolo_param { classes: 3 boxes: 2 yolo_version: 'V2' background: true }", False, True),
        (
            "Yolo",
            "yolo_param { classes: 3 boxes: 2 yolo_version: 'V2' background: true softmax: true }",
            True,
            True,
        ),
    ],
)
def test_grids_of_detectors(kind: str, params: str, tmp_path: Path, *, soft: bool, background: bool) -> None:
    data = values(2, 16, 3, 4, seed=1, low=-3, high=3)
    found = computed(tmp_path, NetText({"data": data.shape}).add(kind, "layer", "data", params=params), data=data)
    wanted = data.astype(np.float64)
    for sample, box in np.ndindex(2, 2):
        part = wanted[sample, 8 * box : 8 * box + 8]
        part[:2] = sigmoid(part[:2])
        if background and soft:
            part[4:] = softmax(part[4:])
            continue
        part[4] = part[4] if background else sigmoid(part[4])
        part[5:] = softmax(part[5:]) if soft else sigmoid(part[5:])
    assert relative_error(found["layer"], wanted) < 1e-6
    if kind == "Yolo":
        net = NetText({"data": data.shape}).add(kind, "y", "data", ["coords", "obj", "classes"], params)
        three = computed(tmp_path, net, data=data)
        boxes = wanted.reshape(2, 2, 8, 12)
        assert relative_error(three["coords"], boxes[:, :, :4].reshape(2, 8, 12)) < 1e-6
        assert relative_error(three["obj"], boxes[:, :, 4].reshape(2, 24)) < 1e-6
        assert relative_error(three["classes"], boxes[:, :, 5:].transpose(0, 2, 1, 3).reshape(2, 3, 24)) < 1e-6


# Layers in Python.


def test_layers_in_python_are_taught_by_their_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = "python_param { module: 'own.layers' layer: 'Double' param_str: 'by: 2' }"
    net = NetText().add("Python", "layer", "data", params=params)
    with pytest.raises(BadInput, match=r"runs the class 'Double' of the Python module 'own.layers'") as caught:
        net.load(tmp_path)
    assert "register_layer('Double', convert)" in str(caught.value.fix)
    from roundoff.graph.caffe import conversion

    monkeypatch.setattr(conversion, "_OWN", type(conversion._OWN)("layer type"))

    def double(job: LayerJob) -> None:
        job.top("Mul", [job.bottoms[0].name, job.floats(2.0, "two")], job.bottoms[0].shape)

    register_layer("Double", double)
    data = values(1, 3, 8, 8)
    assert np.array_equal(computed(tmp_path, net, data=data)["layer"], data * 2)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    cases = [
        ("Region", "region_param { classes: 3 num: 2 }", "has 2 boxes of 4 coordinates and 3 classes"),
        ("Reorg", "reorg_param { stride: 2 }", "moves squares of 2 x 2"),
        ("SPP", "spp_param { pyramid_height: 6 }", "lays 32 cells over 8 values"),
    ]
    for kind, params, text in cases:
        with pytest.raises(BadInput, match=text):
            NetText().add(kind, "layer", "data", params=params).load(tmp_path)
    net = NetText({"a": (1, 5, 4, 4), "r": (2, 5)})
    params = "psroi_pooling_param { spatial_scale: 1 output_dim: 2 group_size: 3 }"
    net.add("PSROIPooling", "layer", ["a", "r"], params=params)
    with pytest.raises(BadInput, match="= 18 channels; there are 5"):
        net.load(tmp_path)
