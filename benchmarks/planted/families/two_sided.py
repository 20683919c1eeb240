"""Two inputs, two outputs: a picture and readings of sensors become a class and a measurement."""

import numpy as np

from benchmarks.planted.families.kit import Built, Kit
from benchmarks.planted.net import Net

_READINGS = 12


def build(rng: np.random.Generator) -> Built:
    kit = Kit.of_pictures(rng, readings=_READINGS)
    net = Net(rng, kit.train)
    x = net.relu(net.conv("image", 12, name="eye/conv1", stride=2))
    x = net.relu(net.conv(x, 20, name="eye/conv2"))
    x = net.pooled(net.relu(net.conv(x, 24, name="eye/conv3")), name="eye/pool")
    y = net.relu(net.dense("readings", 24, name="sensor/dense1"))
    y = net.relu(net.dense(y, 16, name="sensor/dense2"))
    both = net.add("Concat", [x, y], name="join/concat", axis=1)
    both = net.relu(net.dense(both, 32, name="join/dense"))
    logits = net.classifier(both, kit.labels)
    level = net.fitted(both, kit.train["readings"][:, :2].astype(np.float64), name="regressor")
    return kit.built(net.model([logits, level], name="two_sided"))
