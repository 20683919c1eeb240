"""Residual blocks with squeeze-and-excitation and HardSwish, in the manner of MobileNetV3; 20 x 20 x 20."""

import numpy as np

from benchmarks.planted.families.kit import Built, Kit
from benchmarks.planted.net import Net, Spread

_BRANCH, _GATE = Spread(mean=0.0, std=0.7), Spread(mean=0.4, std=1.2)


def build(rng: np.random.Generator) -> Built:
    kit = Kit.of_pictures(rng)
    net = Net(rng, kit.train)
    x = net.add("HardSwish", [net.conv("image", 20, name="stem")], name="stem/hardswish")
    for index, (channels, stride) in enumerate(((20, 1), (24, 2), (24, 1)), start=1):
        x = _block(net, x, f"block{index}", channels, stride)
    logits = net.classifier(net.pooled(x), kit.labels)
    return kit.built(net.model([logits], name="squeeze"))


def _block(net: Net, x: str, name: str, channels: int, stride: int) -> str:
    y = net.add("HardSwish", [net.conv(x, 40, name=f"{name}/expand", kernel=1)], name=f"{name}/expand/hardswish")
    y = net.conv(y, 0, name=f"{name}/depthwise", stride=stride)
    y = net.add("HardSwish", [y], name=f"{name}/depthwise/hardswish")
    squeezed = net.add("GlobalAveragePool", [y], name=f"{name}/se/pool")
    squeezed = net.relu(net.conv(squeezed, 10, name=f"{name}/se/reduce", kernel=1))
    gate = net.conv(squeezed, 40, name=f"{name}/se/expand", kernel=1, spread=_GATE)
    gate = net.add("HardSigmoid", [gate], name=f"{name}/se/gate", alpha=1 / 6, beta=0.5)
    y = net.add("Mul", [y, gate], name=f"{name}/se/scale")
    y = net.conv(y, channels, name=f"{name}/project", kernel=1, spread=_BRANCH)
    same = stride == 1 and net.values[x].shape[1] == channels
    return net.add("Add", [y, x], name=f"{name}/add") if same else y
