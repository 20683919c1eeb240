"""Inverted residuals with odd numbers of channels and ReLU6, a dilated block, batch normalization unfolded."""

import numpy as np

from benchmarks.planted.families.kit import Built, Kit
from benchmarks.planted.net import Net

# Channels, stride and dilation of each block; none of the numbers is a multiple of what a chip computes at once.
_BLOCKS = ((13, 1, 1), (19, 2, 1), (19, 1, 1), (19, 1, 2), (27, 2, 1))
_EXPANSION = 3


def build(rng: np.random.Generator) -> Built:
    kit = Kit.of_pictures(rng)
    net = Net(rng, kit.train)
    x = net.relu6(net.batch_norm(net.conv("image", 13, name="stem", spread=None)))
    for index, (channels, stride, dilation) in enumerate(_BLOCKS, start=1):
        x = _block(net, x, f"features.{index}", (channels, stride, dilation))
    x = net.relu6(net.batch_norm(net.conv(x, 41, name="last", kernel=1, spread=None)))
    logits = net.classifier(net.pooled(x), kit.labels)
    return kit.built(net.model([logits], name="inverted"))


def _block(net: Net, x: str, name: str, sizes: tuple[int, int, int]) -> str:
    channels, stride, dilation = sizes
    inputs = net.values[x].shape[1]
    y = net.conv(x, _EXPANSION * inputs, name=f"{name}.expand", kernel=1, spread=None)
    y = net.relu6(net.batch_norm(y))
    y = net.conv(y, 0, name=f"{name}.depthwise", stride=stride, dilation=dilation, spread=None)
    y = net.relu6(net.batch_norm(y))
    y = net.batch_norm(net.conv(y, channels, name=f"{name}.project", kernel=1, spread=None))
    return net.add("Add", [x, y], name=f"{name}.add") if stride == 1 and inputs == channels else y
