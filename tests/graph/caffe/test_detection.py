"""The detector's last layer against Caffe's loops: several samples, candidates limited before and after."""

from pathlib import Path

import numpy as np
import pytest

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from tests.graph.caffe.nets import NetText, run_all, values

PRIORS, CLASSES, SAMPLES = 10, 4, 2


def overlap(one: Array, other: Array) -> float:
    low, high = np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:])
    if (high <= low).any():
        return 0.0
    both = float(np.prod(high - low))
    return both / float(np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2]) - both)


def decoded(prior: Array, variance: Array, move: Array, code: str, *, encoded: bool) -> Array:
    step = move if encoded else move * variance
    size, middle = prior[:, 2:] - prior[:, :2], (prior[:, 2:] + prior[:, :2]) / 2
    if code == "CORNER":
        return np.asarray(prior + step)
    if code == "CORNER_SIZE":
        return np.asarray(prior + step * np.concatenate([size, size], axis=1))
    centre, reach = step[:, :2] * size + middle, np.exp(step[:, 2:]) * size / 2
    return np.asarray(np.concatenate([centre - reach, centre + reach], axis=1))


def suppressed(boxes: Array, scores: Array, *, threshold: float, top_k: int) -> list[int]:
    order = [place for place in np.argsort(-scores, kind="stable") if scores[place] > threshold]
    kept: list[int] = []
    for place in order[: top_k if top_k > -1 else None]:
        if all(overlap(boxes[place], boxes[other]) <= 0.45 for other in kept):
            kept.append(int(place))
    return kept


def detections(boxes: Array, scores: Array, *, threshold: float, top_k: int, keep: int, background: int) -> Array:
    rows = []
    for sample in range(SAMPLES):
        found = [
            (label, place)
            for label in range(CLASSES)
            if label != background
            for place in suppressed(boxes[sample], scores[sample][label], threshold=threshold, top_k=top_k)
        ]
        if -1 < keep < len(found):
            best = sorted(found, key=lambda pair: -scores[sample][pair[0]][pair[1]])[:keep]
            found = [pair for pair in found if pair in best]
        rows += [[sample, label, scores[sample][label][place], *boxes[sample][place]] for label, place in found]
    nothing = [[sample, *[-1] * 6] for sample in range(SAMPLES)]
    return np.array(rows or nothing, np.float32)[None, None]


@pytest.mark.parametrize("code", ["CENTER_SIZE", "CORNER", "CORNER_SIZE"])
@pytest.mark.parametrize("encoded", [True, False])
@pytest.mark.parametrize(("top_k", "keep", "threshold"), [(-1, -1, 0.2), (3, -1, 0.0), (4, 5, 0.3), (4, 3, 2.0)])
@pytest.mark.parametrize("background", [0, -1, 2])
def test_detection_output(
    *, code: str, encoded: bool, top_k: int, keep: int, threshold: float, background: int, tmp_path: Path
) -> None:
    corner = values(PRIORS, 2, seed=1, low=0, high=0.6)
    prior = np.concatenate([corner, corner + values(PRIORS, 2, seed=2, low=0.1, high=0.4)], axis=1)
    variance = np.tile(np.array([0.1, 0.1, 0.2, 0.2], np.float32), (PRIORS, 1))
    moves = values(SAMPLES, PRIORS, 4, seed=3, low=-0.5, high=0.5)
    scores = values(SAMPLES, PRIORS, CLASSES, seed=4, low=0)
    net = NetText({"m": (SAMPLES, PRIORS * 4), "s": (SAMPLES, PRIORS * CLASSES), "p": (1, 2, PRIORS * 4)})
    limit = f"top_k: {top_k}" if top_k > -1 else ""
    net.add("DetectionOutput", "found", ["m", "s", "p"], params=(
        f"detection_output_param {{ num_classes: {CLASSES} background_label_id: {background} keep_top_k: {keep} "
        f"nms_param {{ nms_threshold: 0.45 {limit} }} code_type: {code} confidence_threshold: {threshold} "
        f"variance_encoded_in_target: {str(encoded).lower()} }}"))  # fmt: skip
    feed = {"m": moves.reshape(SAMPLES, -1), "s": scores.reshape(SAMPLES, -1)}
    feed["p"] = np.stack([prior.ravel(), variance.ravel()])[None]
    found = run_all(net.load(tmp_path).model, feed)["found"]
    boxes = np.stack([decoded(prior, variance, move, code, encoded=encoded) for move in moves])
    wanted = detections(
        boxes, scores.transpose(0, 2, 1), threshold=threshold, top_k=top_k, keep=keep, background=background
    )
    assert found.shape == wanted.shape
    assert np.allclose(found, wanted, atol=1e-6)


def test_a_threshold_that_changes_is_refused(tmp_path: Path) -> None:
    net = NetText({"m": (1, 8), "s": (1, 4), "p": (1, 2, 8)})
    params = "detection_output_param { num_classes: 2 nms_param { eta: 0.9 } }"
    net.add("DetectionOutput", "found", ["m", "s", "p"], params=params)
    with pytest.raises(BadInput, match="eta"):
        net.load(tmp_path)


# Two stages, as RefineDet has them.


@pytest.mark.parametrize("code", ["CENTER_SIZE", "CORNER", "CORNER_SIZE"])
@pytest.mark.parametrize("encoded", [True, False])
@pytest.mark.parametrize("bottoms", ["mspco", "mspc"])
def test_detection_in_two_stages(*, code: str, encoded: bool, bottoms: str, tmp_path: Path) -> None:
    corner = values(PRIORS, 2, seed=1, low=0, high=0.6)
    prior = np.concatenate([corner, corner + values(PRIORS, 2, seed=2, low=0.1, high=0.4)], axis=1)
    variance = np.tile(np.array([0.1, 0.1, 0.2, 0.2], np.float32), (PRIORS, 1))
    moves, first = (values(SAMPLES, PRIORS, 4, seed=seed, low=-0.5, high=0.5) for seed in (3, 5))
    scores, chances = values(SAMPLES, PRIORS, CLASSES, seed=4, low=0), values(SAMPLES, PRIORS, 2, seed=6, low=0)
    feed = {"m": moves, "s": scores, "c": chances, "o": first}
    feed = {name: array.reshape(SAMPLES, -1) for name, array in feed.items()}
    feed["p"] = np.stack([prior.ravel(), variance.ravel()])[None]
    feed = {name: feed[name] for name in bottoms}
    net = NetText({name: array.shape for name, array in feed.items()})
    net.add("DetectionOutput", "found", list(bottoms), params=(
        f"detection_output_param {{ num_classes: {CLASSES} keep_top_k: 9 code_type: {code} "
        f"nms_param {{ nms_threshold: 0.45 top_k: 8 }} confidence_threshold: 0.2 objectness_score: 0.4 "
        f"variance_encoded_in_target: {str(encoded).lower()} }}"))  # fmt: skip
    found = run_all(net.load(tmp_path).model, feed)["found"]
    boxes = np.zeros((SAMPLES, PRIORS, 4))
    for sample in range(SAMPLES):
        start = prior
        if "o" in bottoms:
            start = decoded(prior, variance, first[sample], code, encoded=encoded)
        boxes[sample] = decoded(start, variance, moves[sample], code, encoded=encoded)
    asked = scores.copy()
    for sample, place in np.ndindex(SAMPLES, PRIORS):
        if chances[sample, place, 1] < 0.4:
            asked[sample, place] = [1, *[0] * (CLASSES - 1)]
    assert not np.array_equal(asked, scores)
    wanted = detections(boxes, asked.transpose(0, 2, 1), threshold=0.2, top_k=8, keep=9, background=0)
    assert found.shape == wanted.shape
    assert np.allclose(found, wanted, atol=1e-6)


def test_two_stages_belong_together(tmp_path: Path) -> None:
    net = NetText({"m": (1, 8), "s": (1, 4), "p": (1, 2, 8), "c": (1, 6), "o": (1, 8)})
    net.add("DetectionOutput", "found", list(net.inputs), params=(
        "detection_output_param { num_classes: 2 objectness_score: 0.1 }"))  # fmt: skip
    with pytest.raises(BadInput, match="a first stage of another number of boxes"):
        net.load(tmp_path)
    net.text = net.text.replace("dim: 6", "dim: 4").replace("objectness_score: 0.1", "")
    with pytest.raises(BadInput, match="needs 'objectness_score'"):
        net.load(tmp_path)


# YOLO of forks.


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x.astype(np.float64))))


def best_rows(predictions: list[tuple[float, int, Array]], overlapping: float) -> Array:
    """Of predictions (confidence, class, middle and size) those that overlap no better one, whatever its class."""
    kept: list[tuple[float, int, Array]] = []
    for prediction in sorted(predictions, key=lambda each: -each[0]):
        corners = np.concatenate(
            [prediction[2][:2] - prediction[2][2:] / 2, prediction[2][:2] + prediction[2][2:] / 2]
        )
        if all(overlap(corners, other) < overlapping for _, _, other in kept):
            kept.append((prediction[0], prediction[1], corners))
    rows = [[0, label + 1, score, *corners] for score, label, corners in kept] or [[0, *[-1] * 6]]
    return np.array(rows)[None, None]


@pytest.mark.parametrize("threshold", [0.05, 0.3, 0.99])
@pytest.mark.parametrize("sides", [(5,), (4, 7)])
def test_yolo_detection_output(threshold: float, sides: tuple[int, ...], tmp_path: Path) -> None:
    biases = [0.7, 0.9, 2.4, 2.6, 1.3, 0.6]
    feed = {f"b{side}": values(1, 3 * 9, side, side, seed=side, low=-2, high=2) for side in sides}
    net = NetText({name: array.shape for name, array in feed.items()})
    said = " ".join(f"biases: {each}" for each in biases)
    net.add("YoloDetectionOutput", "found", list(feed), params=(
        f"yolo_detection_output_param {{ num_classes: 4 num_box: 3 confidence_threshold: {threshold} "
        f"nms_threshold: 0.4 {said} }}"))  # fmt: skip
    found = run_all(net.load(tmp_path).model, feed)["found"]
    predictions = []
    for side, grid in zip(sides, feed.values(), strict=True):
        for number, y, x in np.ndindex(3, side, side):
            raw = grid[0, 9 * number : 9 * number + 9, y, x].astype(np.float64)
            middle = (np.array([x, y]) + sigmoid(raw[:2])) / side
            size = np.exp(raw[2:4]) * biases[2 * number : 2 * number + 2] / side
            classes = np.exp(raw[5:]) / np.exp(raw[5:]).sum()
            score = float(sigmoid(raw[4]) * classes.max())
            if score >= threshold:
                predictions.append((score, int(classes.argmax()), np.concatenate([middle, size])))
    wanted = best_rows(predictions, 0.4)
    assert found.shape == wanted.shape
    assert np.allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize(("threshold", "gaussian"), [(0.1, 0), (0.4, 0), (0.99, 0), (0.1, 1)])
def test_yolo3_detection_output(threshold: float, gaussian: int, tmp_path: Path) -> None:
    """With and without Gaussian boxes, whose numbers are each followed by how unsure it is."""
    biases, mask, scales = [10, 14, 23, 27, 37, 58, 81, 82], [2, 3, 0, 1], [32, 16]
    width = 12 if gaussian else 8
    feed = {"large": values(1, 2 * width, 4, 4, seed=1, low=-2, high=2)}
    feed["small"] = values(1, 2 * width, 8, 8, seed=2)
    net = NetText({name: array.shape for name, array in feed.items()})
    said = [*(f"biases: {each}" for each in biases), *(f"mask: {each}" for each in mask)]
    said += [*(f"anchors_scale: {each}" for each in scales), *["gaussian_box: true"] * gaussian]
    net.add("Yolov3DetectionOutput", "found", list(feed), params=(
        f"yolov3_detection_output_param {{ num_classes: 3 num_box: 2 confidence_threshold: {threshold} "
        f"nms_threshold: 0.5 mask_group_num: 2 {' '.join(said)} }}"))  # fmt: skip
    found = run_all(net.load(tmp_path).model, feed)["found"]
    predictions = []
    for place, grid in enumerate(feed.values()):
        side = grid.shape[-1]
        for number, y, x in np.ndindex(2, side, side):
            raw = grid[0, width * number : width * (number + 1), y, x].astype(np.float64)
            sure = 1.0
            if gaussian:
                sure = (4 - sigmoid(raw[1]) - sigmoid(raw[3]) - sigmoid(raw[5]) - sigmoid(raw[7])) / 4
                raw = np.array([raw[0], raw[2], raw[4], raw[6], *raw[8:]])
            anchor = mask[2 * place + number]
            middle = (np.array([x, y]) + sigmoid(raw[:2])) / side
            size = np.exp(raw[2:4]) * biases[2 * anchor : 2 * anchor + 2] / (side * scales[place])
            for label in range(3):
                score = float(sigmoid(raw[4]) * sure * sigmoid(raw[5 + label]))
                if score > threshold:
                    predictions.append((score, label, np.concatenate([middle, size])))
    # Boxes of two classes are one box: it is reported for the likelier class.
    wanted = best_rows(predictions, 0.5)
    assert found.shape == wanted.shape
    assert np.allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "said", "message"),
    [
        ("YoloDetectionOutput", "num_classes: 4 num_box: 3", "fewer values of biases"),
        ("YoloDetectionOutput", "num_classes: 5 num_box: 1 biases: 1 biases: 1", "1 boxes and 5 classes"),
        ("Yolov3DetectionOutput", "num_classes: 4 mask_group_num: 1 mask: 0", "fewer values of mask"),
        ("Yolov3DetectionOutput", "num_classes: 4 scale_x_y: 1.2", "scale_x_y"),
    ],
)
def test_yolo_that_does_not_fit(kind: str, said: str, message: str, tmp_path: Path) -> None:
    word = "yolov3" if "v3" in kind else "yolo"
    net = NetText({"data": (1, 27, 5, 5)})
    net.add(kind, "found", "data", params=f"{word}_detection_output_param {{ {said} }}")
    with pytest.raises(BadInput, match=message):
        net.load(tmp_path)
