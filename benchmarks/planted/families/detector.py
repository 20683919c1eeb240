"""Branches joined by Concat, and a detector's head: boxes and scores in one output."""

import numpy as np

from benchmarks.planted.families.kit import Built, Kit
from benchmarks.planted.net import Net, Spread

PIXELS = 640.0
"""Width of the pictures that a detector's boxes are in, when they are in pixels."""

_BOX, _SCORE = Spread(mean=0.1, std=1.2), Spread(mean=-0.6, std=1.6)


def build(rng: np.random.Generator, *, box_unit: float = 1.0) -> Built:
    """The network; a clean one has boxes as parts of the picture, so that one scale serves them and the scores.

    Args:
        rng: Source of chance.
        box_unit: What boxes are multiplied by before they are joined with the scores.
    """
    kit = Kit.of_pictures(rng)
    net = Net(rng, kit.train)
    x = net.relu(net.conv("image", 12, name="stem", stride=2))
    left = net.relu(net.conv(x, 12, name="neck/left", kernel=1))
    right = net.relu(net.conv(net.relu(net.conv(x, 12, name="neck/reduce", kernel=1)), 12, name="neck/right"))
    x = net.add("Concat", [left, right], name="neck/concat", axis=1)
    x = net.relu(net.conv(x, 24, name="neck/fuse"))
    boxes = net.add("Sigmoid", [net.conv(x, 4, name="head/box", kernel=1, spread=_BOX)], name="head/box/sigmoid")
    score = net.conv(net.relu(net.conv(x, 20, name="head/class")), 6, name="head/score", kernel=1, spread=_SCORE)
    score = net.add("Sigmoid", [score], name="head/score/sigmoid")
    if box_unit != 1.0:
        boxes = net.add("Mul", [boxes, net.constant("pixels", box_unit)], name="head/box/pixels")
    joined = net.add("Concat", [boxes, score], name="head/concat", axis=1)
    detections = net.add(
        "Reshape", [joined, net.constant("flat_shape", [0, 10, -1], "int64")], name="head/flatten"
    )
    return kit.built(net.model([detections], name="detector"), classifies=False)
