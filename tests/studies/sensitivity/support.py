"""Networks of several shapes, and sensitivities by brute force: the whole model rebuilt for every subject."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.quantizers import Quantizer, SwitchedSubject, fake_quantize
from roundoff.core.tensors import Array
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.subgraph import tap
from roundoff.graph.weights import Weights
from roundoff.measure.metrics import score
from roundoff.measure.pairs import measure_pair
from roundoff.run.session import open_session
from tests.models import branches, conv_net, loaded, residual, two_inputs, value, weight, with_if, wrapped
from tests.quantized import quantized_simply
from tests.run.samples import MemorySamples

Feed = Mapping[str, Array]


def skips_and_outputs() -> Any:
    """Two inputs, two outputs (one is read further on), a long skip, a shared weight and computed constants."""
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["a"], name="stem", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], name="act"),
        helper.make_node("Conv", ["b", "w"], ["c"], name="again", pads=[1] * 4),
        helper.make_node("Sigmoid", ["c"], ["gate"], name="gate"),
        helper.make_node("Reshape", ["gain", "column"], ["gains"], name="shape_gain"),
        helper.make_node("Mul", ["other", "gains"], ["scaled"], name="scale"),
        helper.make_node("Add", ["gate", "scaled"], ["mixed"], name="mix"),
        helper.make_node("Shape", ["mixed"], ["size"], name="size"),
        helper.make_node("Conv", ["mixed", "v"], ["d"], name="late", pads=[1] * 4),
        helper.make_node("Reshape", ["d", "size"], ["e"], name="keep_shape"),
        helper.make_node("Add", ["e", "b"], ["sum"], name="skip"),
        helper.make_node("GlobalAveragePool", ["sum"], ["pooled"], name="pool"),
        helper.make_node("Concat", ["pooled", "pooled"], ["twice"], name="twice", axis=1),
    ]
    weights = [
        weight("w", 3, 3, 3, 3),
        weight("v", 3, 3, 3, 3, seed=1),
        weight("gain", 3, seed=2),
        numpy_helper.from_array(np.array([1, 3, 1, 1], np.int64), "column"),
    ]
    fed = [value("image", ("N", 3, 6, 6)), value("other", ("N", 3, 6, 6))]
    return wrapped(nodes, fed, [value("gate"), value("twice")], weights)


def attention() -> Any:
    """A small transformer layer: products of two activations, Softmax, normalization, a table of embeddings."""
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["x"], name="embed"),
        helper.make_node("MatMul", ["x", "wq"], ["q"], name="query"),
        helper.make_node("MatMul", ["x", "wk"], ["k"], name="key"),
        helper.make_node("Transpose", ["k"], ["kt"], name="turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["scores"], name="scores"),
        helper.make_node("Softmax", ["scores"], ["weights"], name="softmax", axis=-1),
        helper.make_node("MatMul", ["weights", "x"], ["read"], name="attend"),
        helper.make_node("Add", ["read", "x"], ["added"], name="skip"),
        helper.make_node("LayerNormalization", ["added", "gain"], ["normal"], name="norm", axis=-1),
        helper.make_node("MatMul", ["normal", "wo"], ["out"], name="project"),
    ]
    weights = [
        weight("table", 11, 8),
        *(weight(name, 8, 8, seed=at) for at, name in enumerate(("wq", "wk", "wo"))),
    ]
    weights.append(numpy_helper.from_array(np.ones(8, np.float32), "gain"))
    tokens = value("tokens", ("N", 5), TensorProto.INT64)
    return wrapped(nodes, [tokens], [value("out")], weights)


NETWORKS: Mapping[str, tuple[Callable[[], Any], Mapping[str, tuple[int, ...]]]] = {
    "chain": (lambda: conv_net("N"), {"image": (1, 3, 8, 8)}),
    "fixed batch": (conv_net, {"image": (1, 3, 8, 8)}),
    "residual": (residual, {"image": (1, 3, 8, 8)}),
    "branches": (branches, {"image": (1, 3, 8, 8)}),
    "two inputs": (two_inputs, {"left": (2, 5), "right": (2, 5)}),
    "skips and outputs": (skips_and_outputs, {"image": (1, 3, 6, 6), "other": (1, 3, 6, 6)}),
    "attention": (attention, {"tokens": (1, 5)}),
    "control flow": (with_if, {"x": (2, 3)}),
}


def make_feeds(shapes: Mapping[str, tuple[int, ...]], count: int, seed: int = 0) -> list[Feed]:
    rng = np.random.default_rng(seed)
    return [
        {
            name: rng.integers(0, 11, shape) if name == "tokens" else rng.standard_normal(shape).astype(np.float32)
            for name, shape in shapes.items()
        }
        for _ in range(count)
    ]


def network(name: str, folder: Path, *, samples: int = 5) -> tuple[QuantizedModel, MemorySamples]:
    """A quantized network and samples for it."""
    build, shapes = NETWORKS[name]
    feeds = make_feeds(shapes, samples)
    return quantized_simply(loaded(build(), folder), feeds), MemorySamples(feeds)


def brute_force(
    quantized: QuantizedModel,
    feeds: Sequence[Feed],
    subject: SwitchedSubject,
    metrics: Sequence[str],
    *,
    left_out: bool = False,
    wanted: Sequence[str] = (),
    baked: bool = True,
) -> Array:
    """Scores of shape (samples, outputs, metrics), all computed with other code than the engine's.

    `baked` constants are quantized beforehand; otherwise when the model runs. onnxruntime multiplies by constants
    in another order than by what it computes, so that the two differ in the last bits.
    """
    model = quantized.float_model
    chosen = set(subject.quantizers)
    on = [each for each in quantized.quantizers if (each.name in chosen) != left_out]
    names = list(wanted or outputs(model))
    changed = _baked(model, on) if baked else insert_quantizers(model, on)
    left, right = (_run(each, feeds, names) for each in (model, changed))
    found = np.empty((len(feeds), len(names), len(metrics)))
    for row, (one, other) in enumerate(zip(left, right, strict=True)):
        for column, (x, y) in enumerate(zip(one, other, strict=True)):
            scores = score(measure_pair(x.astype(np.float64), y.astype(np.float64))).values
            found[row, column] = [scores[metric] for metric in metrics]
    return found


def _run(model: Model, feeds: Sequence[Feed], names: Sequence[str]) -> list[list[Array]]:
    session = open_session(model, outputs=tap(model, names))
    return [session.run(feed) for feed in feeds]


def _baked(model: Model, on: Sequence[Quantizer]) -> Model:
    """Quantizers switched on, those of constants by values in their place."""
    constant = Weights(model)
    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    nodes = {node.name: node for node in proto.graph.node}
    for each in on:
        if each.tensor in constant:
            values = fake_quantize(constant[each.tensor], each.params, each.spec)
            proto.graph.initializer.append(numpy_helper.from_array(values, f"{each.name}/values"))
            for consumer in each.consumers:
                nodes[consumer.node].input[consumer.input] = f"{each.name}/values"
    return insert_quantizers(replace(model, proto=proto), [each for each in on if each.tensor not in constant])
