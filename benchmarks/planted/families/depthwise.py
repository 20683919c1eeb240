"""Depthwise and pointwise convolutions with ReLU6, in the manner of MobileNet."""

import numpy as np

from benchmarks.planted.families.kit import Built, Kit
from benchmarks.planted.net import Net


def build(rng: np.random.Generator) -> Built:
    kit = Kit.of_pictures(rng)
    net = Net(rng, kit.train)
    x = net.relu6(net.conv("image", 16, name="stem"))
    for index, (channels, stride) in enumerate(((24, 2), (24, 1), (32, 2), (40, 1)), start=1):
        x = net.relu6(net.conv(x, 0, name=f"block{index}/depthwise", stride=stride))
        x = net.relu6(net.conv(x, channels, name=f"block{index}/pointwise", kernel=1))
    logits = net.classifier(net.pooled(x), kit.labels)
    return kit.built(net.model([logits], name="depthwise"))
