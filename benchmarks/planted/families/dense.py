"""Dense blocks: each layer reads all before it; normalization and activation stand before the convolutions."""

import numpy as np

from benchmarks.planted.families.kit import Built, Kit
from benchmarks.planted.net import Net

_GROWTH, _LAYERS = 10, 3


def build(rng: np.random.Generator) -> Built:
    """The network; a batch normalization behind a Concat cannot be folded into what is before it."""
    kit = Kit.of_pictures(rng)
    net = Net(rng, kit.train)
    x = net.conv("image", 2 * _GROWTH, name="conv0", spread=None)
    for block in (1, 2, 3):
        for layer in range(1, _LAYERS + 1):
            name = f"block{block}/layer{layer}"
            y = net.relu(net.batch_norm(x, name=f"{name}/norm"))
            y = net.conv(y, 2 * _GROWTH, name=f"{name}/narrow", kernel=1, spread=None)
            y = net.conv(net.relu(net.batch_norm(y)), _GROWTH, name=f"{name}/conv", spread=None)
            x = net.add("Concat", [x, y], name=f"{name}/concat", axis=1)
        if block < 3:
            x = net.relu(net.batch_norm(x, name=f"transition{block}/norm"))
            x = net.conv(x, 2 * _GROWTH, name=f"transition{block}/conv", kernel=1, spread=None)
            pads = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
            x = net.add("AveragePool", [x], name=f"transition{block}/pool", **pads)
    logits = net.classifier(net.pooled(net.relu(net.batch_norm(x, name="last/norm"))), kit.labels)
    return kit.built(net.model([logits], name="dense"))
