"""A recurrent network that reads a picture row by row."""

import numpy as np

from benchmarks.planted.families.kit import Built, Kit
from benchmarks.planted.net import Net

_EMBEDDED, _HIDDEN = 24, 24


def build(rng: np.random.Generator) -> Built:
    kit = Kit.of_rows(rng)
    net = Net(rng, kit.train)
    x = net.relu(net.matmul("rows", _EMBEDDED, name="embed", std=1.0))
    x = net.add("Transpose", [x], name="time_first", perm=[1, 0, 2])
    for name, size in (("gru1", _EMBEDDED), ("gru2", _HIDDEN)):
        weights = [
            net.constant(f"{name}_{part}", rng.normal(0, 1 / width**0.5, (1, 3 * _HIDDEN, width)))
            for part, width in (("W", size), ("R", _HIDDEN))
        ]
        bias = net.constant(f"{name}_B", rng.normal(0, 0.1, (1, 6 * _HIDDEN)))
        x = net.add("GRU", [x, *weights, bias], name=name, hidden_size=_HIDDEN, linear_before_reset=1)
        x = net.add("Squeeze", [x, net.constant("direction", [1], "int64")], name=f"{name}/squeeze")
    x = net.add("Transpose", [x], name="batch_first", perm=[1, 0, 2])
    x = net.relu(net.matmul(x, 32, name="mix", std=1.0))
    x = net.add("ReduceMean", [x], name="mean", axes=[1], keepdims=0)
    x = net.relu(net.dense(x, 32, name="head"))
    logits = net.classifier(x, kit.labels)
    return kit.built(net.model([logits], name="gru"))
