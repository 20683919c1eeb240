"""An encoder and a decoder with skips, batch normalization unfolded; two outputs of one decoder."""

import numpy as np

from benchmarks.planted.families.kit import Built, Kit
from benchmarks.planted.net import Net, Spread

_PICTURE, _MASK = Spread(mean=0.0, std=0.8), Spread(mean=-0.3, std=1.5)


def build(rng: np.random.Generator) -> Built:
    """The network; at its top 20 channels of 20 x 20, in the middle 10 of 10 x 10."""
    kit = Kit.of_pictures(rng)
    net = Net(rng, kit.train)
    top = _stage(net, "image", "encoder1", 20)
    down = net.add("MaxPool", [top], name="encoder1/pool", kernel_shape=[2, 2], strides=[2, 2])
    middle = _stage(net, down, "encoder2", 10)
    down = net.add("AveragePool", [middle], name="encoder2/pool", kernel_shape=[2, 2], strides=[2, 2])
    x = _stage(net, down, "bottom", 24)
    x = net.add("Concat", [_up(net, x, "decoder2/up"), middle], name="decoder2/concat", axis=1)
    x = _stage(net, x, "decoder2", 16)
    x = net.add("Concat", [_up(net, x, "decoder1/up"), top], name="decoder1/concat", axis=1)
    x = _stage(net, x, "decoder1", 12)
    picture = net.conv(x, 3, name="picture", kernel=1, spread=_PICTURE)
    mask = net.add("Sigmoid", [net.conv(x, 1, name="mask/conv", kernel=1, spread=_MASK)], name="mask")
    return kit.built(net.model([picture, mask], name="unet"), classifies=False)


def _stage(net: Net, x: str, name: str, channels: int) -> str:
    for part in ("a", "b"):
        x = net.relu(net.batch_norm(net.conv(x, channels, name=f"{name}/{part}", spread=None)))
    return x


def _up(net: Net, x: str, name: str) -> str:
    scales = net.constant("twice", [1.0, 1.0, 2.0, 2.0])
    nearest = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return net.add("Resize", [x, "", scales], name=name, **nearest)
