"""Residual blocks: sums of a branch and what went around it."""

import numpy as np

from benchmarks.planted.families.kit import Built, Kit
from benchmarks.planted.net import Net, Spread

_BRANCH = Spread(mean=0.0, std=0.7)


def build(rng: np.random.Generator) -> Built:
    kit = Kit.of_pictures(rng)
    net = Net(rng, kit.train)
    x = net.relu(net.conv("image", 16, name="stem"))
    for index, (channels, stride) in enumerate(((16, 1), (24, 2), (24, 1)), start=1):
        block, around = f"stage{index}", x
        if stride > 1 or channels != net.values[x].shape[1]:
            around = net.conv(x, channels, name=f"{block}/shortcut", kernel=1, stride=stride)
        y = net.relu(net.conv(x, channels, name=f"{block}/conv1", stride=stride))
        y = net.conv(y, channels, name=f"{block}/conv2", spread=_BRANCH)
        x = net.relu(net.add("Add", [y, around], name=f"{block}/add"))
    logits = net.classifier(net.pooled(x), kit.labels)
    return kit.built(net.model([logits], name="residual"))
