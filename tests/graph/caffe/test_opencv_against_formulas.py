"""Where OpenCV and Caffe disagree: who computes the formula, each place against numpy and against the other."""

from pathlib import Path

import numpy as np

from roundoff.core.tensors import Array
from tests.graph.caffe.nets import NetText, relative_error, run_all, values
from tests.graph.caffe.opencv import TOLERANCE, opencv_layers
from tests.graph.caffe.test_detection import PRIORS, decoded


def both(net: NetText, folder: Path, feed: dict[str, Array], layer: str) -> tuple[Array, Array]:
    """What we and OpenCV compute."""
    wanted = opencv_layers(net.write(folder), feed)[layer]
    return run_all(net.load(folder).model, feed)[layer], wanted


def test_axpy_scales_its_second_bottom_and_opencv_its_third(tmp_path: Path) -> None:
    """SENet's layer is a * x + y with the bottoms a, x, y; OpenCV multiplies y and adds x."""
    feed = {"a": values(1, 4, 1, 1, seed=1), "x": values(1, 4, 3, 5, seed=2), "y": values(1, 4, 3, 5, seed=3)}
    shapes = {name: array.shape for name, array in feed.items()}
    ours, theirs = both(NetText(shapes).add("Axpy", "out", ["a", "x", "y"]), tmp_path, feed, "out")
    assert relative_error(ours, feed["a"] * feed["x"] + feed["y"]) < 1e-6
    assert relative_error(theirs, feed["a"] * feed["y"] + feed["x"]) < 1e-6
    assert relative_error(ours, theirs) > 0.1
    _, theirs = both(NetText(shapes).add("Axpy", "out", ["a", "y", "x"]), tmp_path, feed, "out")
    assert relative_error(ours, theirs) < 1e-6


def test_boxes_are_not_cut_at_the_picture_unless_that_is_said(tmp_path: Path) -> None:
    """SSD's caffe.proto has `clip` false by default, OpenCV's copy of it true."""
    found = {}
    for clip in ("", "clip: false", "clip: true"):
        net = NetText({"map": (1, 4, 2, 3), "image": (1, 3, 32, 48)})
        net.add(
            "PriorBox",
            "prior",
            ["map", "image"],
            params=f"prior_box_param {{ min_size: 30 variance: 0.1 {clip} }}",
        )
        feed = {"map": values(1, 4, 2, 3), "image": values(1, 3, 32, 48)}
        found[clip] = both(net, tmp_path, feed, "prior")
    # A box of 30 around each cell of 16: by the middle of the cell, in shares of the picture.
    wanted = [
        [(8 + 16 * x - 15) / 48, (8 + 16 * y - 15) / 32, (8 + 16 * x + 15) / 48, (8 + 16 * y + 15) / 32]
        for y in range(2)
        for x in range(3)
    ]
    plain = np.array(wanted).ravel()
    ours, theirs = ({clip: pair[side][0, 0] for clip, pair in found.items()} for side in (0, 1))
    assert relative_error(ours[""], plain) < 1e-6
    assert np.array_equal(ours[""], ours["clip: false"])
    assert relative_error(ours["clip: true"], plain.clip(0, 1)) < 1e-6
    assert all(relative_error(ours[clip], theirs[clip]) < 1e-6 for clip in ("clip: false", "clip: true"))
    assert np.array_equal(theirs[""], theirs["clip: true"])


def test_the_first_stage_of_two_is_not_read_by_opencv(tmp_path: Path) -> None:
    """It gives the same without RefineDet's two bottoms more; fed what the first stage makes, it agrees."""
    classes = 4
    corner = values(PRIORS, 2, seed=1, low=0, high=0.6)
    prior = np.concatenate([corner, corner + values(PRIORS, 2, seed=2, low=0.1, high=0.4)], axis=1)
    variance = np.tile(np.array([0.1, 0.1, 0.2, 0.2], np.float32), (PRIORS, 1))
    moves, first = (values(PRIORS, 4, seed=seed, low=-0.5, high=0.5) for seed in (3, 5))
    scores, chances = values(PRIORS, classes, seed=4, low=0), values(PRIORS, 2, seed=6, low=0)
    feed = {
        "moves": moves.reshape(1, -1),
        "scores": scores.reshape(1, -1),
        "prior": np.stack([prior.ravel(), variance.ravel()])[None],
        "chances": chances.reshape(1, -1),
        "first": first.reshape(1, -1),
    }

    def net(bottoms: list[str], more: str = "") -> NetText:
        made = NetText({name: feed[name].shape for name in bottoms})
        return made.add("DetectionOutput", "found", bottoms, params=(
            f"detection_output_param {{ num_classes: {classes} keep_top_k: 9 code_type: CENTER_SIZE "
            "share_location: true background_label_id: 0 "
            f"nms_param {{ nms_threshold: 0.45 top_k: 8 }} confidence_threshold: 0.2 {more} }}"))  # fmt: skip

    ours, theirs = both(net(list(feed), "objectness_score: 0.4"), tmp_path, feed, "found")
    three = ["moves", "scores", "prior"]
    alone = opencv_layers(net(three).write(tmp_path), {name: feed[name] for name in three})["found"]
    assert np.array_equal(theirs, alone)
    start = decoded(prior, variance, first, "CENTER_SIZE", encoded=False)
    asked = np.where(chances[:, 1:] < 0.4, np.eye(1, classes), scores).astype(np.float32)
    assert not np.array_equal(asked, scores)
    made = {
        "moves": feed["moves"],
        "scores": asked.reshape(1, -1),
        "prior": np.stack([start.ravel(), variance.ravel()])[None].astype(np.float32),
    }
    judged = opencv_layers(net(three).write(tmp_path), made)["found"]
    # OpenCV fills up to keep_top_k rows with zeros, and has an order of its own.
    rows = sorted((row for row in judged[0, 0] if row[2]), key=lambda row: (row[1], -row[2]))
    assert len(rows) > 3
    assert relative_error(ours[0, 0], np.array(rows)) < TOLERANCE
