"""An encoder of sequences; its normalizations and GELU are written out, as PyTorch does before opset 17."""

import numpy as np

from benchmarks.planted.families.kit import Built, Kit
from benchmarks.planted.net import Net

_WIDTH, _HEADS = 24, 2


def build(rng: np.random.Generator) -> Built:
    kit = Kit.of_rows(rng)
    net = Net(rng, kit.train)
    x = net.matmul("rows", _WIDTH, name="embed")
    length = net.values[x].shape[1]
    x = net.add("Add", [x, net.constant("positions", rng.normal(0, 0.4, (1, length, _WIDTH)))], name="position")
    x = _norm(net, x, "embed/norm")
    for index in range(2):
        name = f"layer{index}"
        x = _norm(net, net.add("Add", [_attention(net, x, name), x], name=f"{name}/add1"), f"{name}/norm1")
        inner = _gelu(net, net.matmul(x, 2 * _WIDTH, name=f"{name}/up"), f"{name}/gelu")
        inner = net.matmul(inner, _WIDTH, name=f"{name}/down", std=0.7)
        x = _norm(net, net.add("Add", [inner, x], name=f"{name}/add2"), f"{name}/norm2")
    first = net.add("Gather", [x, net.constant("first", 0, "int64")], name="head/first", axis=1)
    mean = net.add("ReduceMean", [x], name="head/mean", axes=[1], keepdims=0)
    x = net.add(
        "Tanh",
        [net.dense(net.add("Concat", [first, mean], name="head/both", axis=1), 32, name="head/dense")],
        name="head/tanh",
    )
    logits = net.classifier(x, kit.labels)
    return kit.built(net.model([logits], name="encoder"))


def _norm(net: Net, x: str, name: str) -> str:
    mean = net.add("ReduceMean", [x], name=f"{name}/mean", axes=[-1])
    centred = net.add("Sub", [x, mean], name=f"{name}/sub")
    squares = net.add("Pow", [centred, net.constant("two", 2.0)], name=f"{name}/pow")
    variance = net.add("ReduceMean", [squares], name=f"{name}/variance", axes=[-1])
    safe = net.add("Add", [variance, net.constant("epsilon", 1e-5)], name=f"{name}/safe")
    scaled = net.add("Div", [centred, net.add("Sqrt", [safe], name=f"{name}/sqrt")], name=f"{name}/div")
    gain = net.constant(f"{name}_scale", net.rng.uniform(0.7, 1.3, _WIDTH))
    shift = net.constant(f"{name}_shift", net.rng.normal(0, 0.1, _WIDTH))
    return net.add("Add", [net.add("Mul", [scaled, gain], name=f"{name}/mul"), shift], name=f"{name}/add")


def _gelu(net: Net, x: str, name: str) -> str:
    y = net.add("Div", [x, net.constant("root_two", 2**0.5)], name=f"{name}/div")
    y = net.add("Add", [net.add("Erf", [y], name=f"{name}/erf"), net.constant("one", 1.0)], name=f"{name}/add")
    y = net.add("Mul", [x, y], name=f"{name}/mul")
    return net.add("Mul", [y, net.constant("half", 0.5)], name=f"{name}/half")


def _attention(net: Net, x: str, layer: str) -> str:
    name, size = f"{layer}/attention", _WIDTH // _HEADS
    shape = net.constant("split_heads", [0, -1, _HEADS, size], "int64")
    parts = {}
    for part, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        heads = net.add(
            "Reshape", [net.matmul(x, _WIDTH, name=f"{name}/{part}"), shape], name=f"{name}/{part}/heads"
        )
        parts[part] = net.add("Transpose", [heads], name=f"{name}/{part}/transpose", perm=order)
    scores = net.add("MatMul", [parts["query"], parts["key"]], name=f"{name}/scores")
    scores = net.add("Div", [scores, net.constant("root_size", size**0.5)], name=f"{name}/scale")
    weights = net.add("Softmax", [scores], name=f"{name}/softmax", axis=-1)
    mixed = net.add("MatMul", [weights, parts["value"]], name=f"{name}/mix")
    mixed = net.add("Transpose", [mixed], name=f"{name}/merge", perm=[0, 2, 1, 3])
    joined = net.add("Reshape", [mixed, net.constant("join_heads", [0, -1, _WIDTH], "int64")], name=f"{name}/join")
    return net.matmul(joined, _WIDTH, name=f"{name}/project", std=0.7)
