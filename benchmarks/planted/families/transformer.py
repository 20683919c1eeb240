"""Two transformer blocks on patches of pictures, with Gelu as exporters write it."""

import numpy as np

from benchmarks.planted.families.kit import Built, Kit
from benchmarks.planted.net import Net

WIDTH, HEADS, PATCH = 32, 2, 4


def build(rng: np.random.Generator) -> Built:
    kit = Kit.of_pictures(rng)
    net = Net(rng, kit.train)
    x = net.conv("image", WIDTH, name="embed/conv", kernel=5, stride=PATCH)
    tokens = net.constant("token_shape", [0, WIDTH, -1], "int64")
    x = net.add("Reshape", [x, tokens], name="embed/flatten")
    x = net.add("Transpose", [x], name="embed/transpose", perm=[0, 2, 1])
    count = net.values[x].shape[1]
    position = net.constant("positions", rng.normal(0, 0.4, (1, count, WIDTH)))
    x = net.add("Add", [x, position], name="embed/position")
    for index in range(2):
        x = _block(net, x, f"layer{index}")
    x = _norm(net, x, "head/norm")
    x = net.add("ReduceMean", [x], name="head/mean", axes=[1], keepdims=0)
    logits = net.classifier(x, kit.labels)
    return kit.built(net.model([logits], name="transformer"))


def _block(net: Net, x: str, name: str) -> str:
    x = net.add(
        "Add", [x, _attention(net, _norm(net, x, f"{name}/norm1"), f"{name}/attention")], name=f"{name}/add1"
    )
    inner = net.matmul(_norm(net, x, f"{name}/norm2"), 2 * WIDTH, name=f"{name}/mlp/up")
    outer = net.matmul(_gelu(net, inner, f"{name}/mlp/gelu"), WIDTH, name=f"{name}/mlp/down", std=0.7)
    return net.add("Add", [x, outer], name=f"{name}/add2")


def _norm(net: Net, x: str, name: str) -> str:
    gain = net.constant(f"{name}_scale", net.rng.uniform(0.7, 1.3, WIDTH))
    shift = net.constant(f"{name}_shift", net.rng.normal(0, 0.1, WIDTH))
    return net.add("LayerNormalization", [x, gain, shift], name=name, axis=-1)


def _attention(net: Net, x: str, name: str) -> str:
    size = WIDTH // HEADS
    split = net.constant("split_heads", [0, 0, HEADS, size], "int64")
    parts = {}
    for part, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        y = net.matmul(x, WIDTH, name=f"{name}/{part}")
        y = net.add("Reshape", [y, split], name=f"{name}/{part}/split")
        parts[part] = net.add("Transpose", [y], name=f"{name}/{part}/transpose", perm=order)
    scores = net.add("MatMul", [parts["query"], parts["key"]], name=f"{name}/scores")
    scaled = net.add("Mul", [scores, net.constant(f"{name}_scale", size**-0.5)], name=f"{name}/scale")
    weights = net.add("Softmax", [scaled], name=f"{name}/softmax", axis=-1)
    mixed = net.add("MatMul", [weights, parts["value"]], name=f"{name}/mix")
    mixed = net.add("Transpose", [mixed], name=f"{name}/merge", perm=[0, 2, 1, 3])
    joined = net.add("Reshape", [mixed, net.constant("join_heads", [0, 0, WIDTH], "int64")], name=f"{name}/join")
    return net.matmul(joined, WIDTH, name=f"{name}/project", std=0.7)


def _gelu(net: Net, x: str, name: str) -> str:
    divided = net.add("Div", [x, net.constant("root_two", 2**0.5)], name=f"{name}/Div")
    curve = net.add("Erf", [divided], name=f"{name}/Erf")
    raised = net.add("Add", [curve, net.constant("one", 1.0)], name=f"{name}/Add")
    product = net.add("Mul", [x, raised], name=f"{name}/Mul")
    return net.add("Mul", [product, net.constant("half", 0.5)], name=f"{name}/Half")
