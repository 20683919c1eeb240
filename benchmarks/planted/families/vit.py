"""A vision transformer with a mask of the patches that count; its queries, keys and values are one projection."""

import numpy as np

from benchmarks.planted.families.kit import Built, Kit
from benchmarks.planted.net import Net

_WIDTH, _HEADS, _PATCH = 32, 4, 4
# What is added to the score of a patch that does not count: enough for a softmax, and within reach of 8 bits.
_MASKED = -12.0


def build(rng: np.random.Generator) -> Built:
    kit = Kit.of_pictures(rng, masked_patches=(20 // _PATCH) ** 2)
    net = Net(rng, kit.train)
    x = net.conv("image", _WIDTH, name="patches/conv", kernel=5, stride=_PATCH)
    x = net.add("Reshape", [x, net.constant("patch_shape", [0, _WIDTH, -1], "int64")], name="patches/flatten")
    x = net.add("Transpose", [x], name="patches/transpose", perm=[0, 2, 1])
    x = net.add(
        "Add", [x, net.constant("positions", rng.normal(0, 0.4, (1, 25, _WIDTH)))], name="patches/position"
    )
    hidden = net.add("Sub", [net.constant("one", 1.0), "mask"], name="mask/hidden")
    penalty = net.add("Mul", [hidden, net.constant("masked", _MASKED)], name="mask/penalty")
    axes = net.constant("mask_axes", [1, 2], "int64")
    penalty = net.add("Unsqueeze", [penalty, axes], name="mask/broadcast")
    for index in range(2):
        x = _block(net, x, penalty, f"layer{index}")
    x = net.add("ReduceMean", [_norm(net, x, "head/norm")], name="head/mean", axes=[1], keepdims=0)
    logits = net.classifier(x, kit.labels)
    return kit.built(net.model([logits], name="vit"))


def _norm(net: Net, x: str, name: str) -> str:
    gain = net.constant(f"{name}_scale", net.rng.uniform(0.7, 1.3, _WIDTH))
    shift = net.constant(f"{name}_shift", net.rng.normal(0, 0.1, _WIDTH))
    return net.add("LayerNormalization", [x, gain, shift], name=name, axis=-1)


def _block(net: Net, x: str, penalty: str, name: str) -> str:
    mixed = _attention(net, _norm(net, x, f"{name}/norm1"), penalty, f"{name}/attention")
    x = net.add("Add", [x, mixed], name=f"{name}/add1")
    inner = net.matmul(_norm(net, x, f"{name}/norm2"), 2 * _WIDTH, name=f"{name}/mlp/up")
    sigmoid = net.add("Sigmoid", [inner], name=f"{name}/mlp/sigmoid")
    inner = net.add("Mul", [inner, sigmoid], name=f"{name}/mlp/silu")
    return net.add("Add", [x, net.matmul(inner, _WIDTH, name=f"{name}/mlp/down", std=0.7)], name=f"{name}/add2")


def _attention(net: Net, x: str, penalty: str, name: str) -> str:
    size = _WIDTH // _HEADS
    three = net.matmul(x, 3 * _WIDTH, name=f"{name}/qkv")
    shape = net.constant("split_heads", [0, 0, 3, _HEADS, size], "int64")
    three = net.add("Reshape", [three, shape], name=f"{name}/heads")
    three = net.add("Transpose", [three], name=f"{name}/first", perm=[2, 0, 3, 1, 4])
    parts = [
        net.add("Gather", [three, net.constant(f"part{index}", index, "int64")], name=f"{name}/{part}", axis=0)
        for index, part in enumerate(("query", "key", "value"))
    ]
    keys = net.add("Transpose", [parts[1]], name=f"{name}/key/transpose", perm=[0, 1, 3, 2])
    scaled = net.add("Mul", [parts[0], net.constant("head_scale", size**-0.5)], name=f"{name}/query/scale")
    scores = net.add(
        "Add", [net.add("MatMul", [scaled, keys], name=f"{name}/scores"), penalty], name=f"{name}/mask"
    )
    weights = net.add("Softmax", [scores], name=f"{name}/softmax", axis=-1)
    mixed = net.add("MatMul", [weights, parts[2]], name=f"{name}/mix")
    mixed = net.add("Transpose", [mixed], name=f"{name}/merge", perm=[0, 2, 1, 3])
    joined = net.add("Reshape", [mixed, net.constant("join_heads", [0, 0, _WIDTH], "int64")], name=f"{name}/join")
    return net.matmul(joined, _WIDTH, name=f"{name}/project", std=0.7)
