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
