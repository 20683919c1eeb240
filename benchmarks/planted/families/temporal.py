"""A temporal network: convolutions along one axis with growing dilation, PRelu, weighted means over time."""

import numpy as np

from benchmarks.planted.families.kit import Built, Kit
from benchmarks.planted.net import Net, Spread

_CHANNELS = 22
_BRANCH, _SCORES = Spread(mean=0.0, std=0.7), Spread(mean=0.0, std=1.2)


def build(rng: np.random.Generator) -> Built:
    kit = Kit.of_rows(rng)
    net = Net(rng, kit.train)
    x = _prelu(net, net.conv("rows", _CHANNELS, name="stem", kernel=5), "stem/prelu")
    for index, dilation in enumerate((1, 2, 4), start=1):
        name = f"tcn{index}"
        y = net.conv(x, 2 * _CHANNELS, name=f"{name}/in", kernel=1)
        y = net.conv(_prelu(net, y, f"{name}/prelu1"), 0, name=f"{name}/depthwise", dilation=dilation)
        y = net.conv(_prelu(net, y, f"{name}/prelu2"), _CHANNELS, name=f"{name}/out", kernel=1, spread=_BRANCH)
        x = net.add("Add", [x, y], name=f"{name}/add")
    x = net.add("AveragePool", [x], name="pool", kernel_shape=[3], strides=[2], pads=[1, 1])
    x = net.relu(net.conv(x, 31, name="top"))
    weights = net.add(
        "Softmax", [net.conv(x, 31, name="scores", kernel=1, spread=_SCORES)], name="weights", axis=2
    )
    x = net.add("Mul", [x, weights], name="weighted")
    x = net.add("ReduceSum", [x, net.constant("time", [2], "int64")], name="sum", keepdims=0)
    logits = net.classifier(net.relu(net.dense(x, 24, name="head")), kit.labels)
    return kit.built(net.model([logits], name="temporal"))


def _prelu(net: Net, x: str, name: str) -> str:
    slopes = net.rng.uniform(0.05, 0.4, (net.values[x].shape[1], 1))
    return net.add("PRelu", [x, net.constant(f"{name}_slope", slopes)], name=name)
