"""Grouped convolutions with shuffled channels: halves that are split, computed, joined and dealt anew."""

import numpy as np

from benchmarks.planted.families.kit import Built, Kit
from benchmarks.planted.net import Net


def build(rng: np.random.Generator) -> Built:
    kit = Kit.of_pictures(rng)
    net = Net(rng, kit.train)
    x = net.relu(net.conv("image", 16, name="stem"))
    x = net.add("MaxPool", [x], name="pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for index in range(1, 4):
        x = _unit(net, x, f"unit{index}")
    x = net.relu(net.conv(x, 30, name="widen", stride=2, group=2))
    side = net.add("Tanh", [net.conv(x, 6, name="map/conv", kernel=1)], name="map")
    logits = net.classifier(net.pooled(x), kit.labels)
    return kit.built(net.model([logits, side], name="shuffle"))


def _unit(net: Net, x: str, name: str) -> str:
    half = net.values[x].shape[1] // 2
    sizes = net.constant(f"{name}_halves", [half, half], "int64")
    around, y = net.add_many("Split", [x, sizes], name=f"{name}/split", outputs=2, axis=1)
    y = net.relu(net.conv(y, half, name=f"{name}/conv1", kernel=1, group=2))
    y = net.conv(y, 0, name=f"{name}/depthwise")
    y = net.relu(net.conv(y, half, name=f"{name}/conv2", kernel=1))
    x = net.add("Concat", [around, y], name=f"{name}/concat", axis=1)
    height, width = net.values[x].shape[2:]
    apart = net.constant(f"{name}_apart", [0, 2, half, height, width], "int64")
    x = net.add("Reshape", [x, apart], name=f"{name}/apart")
    x = net.add("Transpose", [x], name=f"{name}/deal", perm=[0, 2, 1, 3, 4])
    together = net.constant(f"{name}_together", [0, 2 * half, height, width], "int64")
    return net.add("Reshape", [x, together], name=f"{name}/together")
