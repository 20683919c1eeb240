"""A plain stack of convolutions."""

import numpy as np

from benchmarks.planted.families.kit import Built, Kit
from benchmarks.planted.net import Net


def build(rng: np.random.Generator) -> Built:
    kit = Kit.of_pictures(rng)
    net = Net(rng, kit.train)
    x = net.relu(net.conv("image", 12, name="conv1"))
    x = net.relu(net.conv(x, 16, name="conv2"))
    x = net.add("MaxPool", [x], name="pool1", kernel_shape=[2, 2], strides=[2, 2])
    x = net.relu(net.conv(x, 20, name="conv3"))
    x = net.relu(net.conv(x, 24, name="conv4"))
    x = net.relu(net.conv(x, 32, name="conv5", stride=2))
    logits = net.classifier(net.pooled(x), kit.labels)
    return kit.built(net.model([logits], name="plain"))
