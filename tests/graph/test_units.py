from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from roundoff.core.quantizers import Consumer, Kind, Quantizer, QuantParams, QuantSpec
from roundoff.graph.load import Model
from roundoff.graph.units import derived_constants, units
from tests.models import conv_net, loaded, residual, value, weight, with_if, wrapped

_PARAMS = QuantParams(np.array(0.1, np.float32), np.array(0))


def quantizer(
    tensor: str, *consumers: tuple[str, int], kind: Kind = "activation", output: bool = False
) -> Quantizer:
    spec = QuantSpec(8, signed=True, symmetric=True)
    return Quantizer(tensor, tensor, kind, spec, _PARAMS, tuple(Consumer(*edge) for edge in consumers), output)


def chain(folder: Path, ops: Sequence[str], extra_outputs: Sequence[str] = ()) -> Model:
    """x -> ops[0] -> t0 -> ops[1] -> t1 ...; a node is called like its op."""
    nodes = []
    for index, op in enumerate(ops):
        inputs = ["x" if index == 0 else f"t{index - 1}", *{"Conv": ["w"], "Add": ["b"]}.get(op, [])]
        nodes.append(helper.make_node(op, inputs, [f"t{index}"], name=op))
    names = [*extra_outputs, f"t{len(ops) - 1}"]
    weights = [weight("w", 3, 3, 1, 1), weight("b", 1)]
    return loaded(wrapped(nodes, [value("x", (1, 3, 4, 4))], [value(name) for name in names], weights), folder)


def test_what_follows_a_convolution_up_to_the_next_quantizer_is_one_unit(tmp_path: Path) -> None:
    model = loaded(conv_net(), tmp_path)
    quantizers = [
        quantizer("image", ("Conv1", 0)),
        quantizer("w1", ("Conv1", 1), kind="weight"),
        quantizer("relu1", ("Conv2", 0)),
        quantizer("relu2", ("Pool", 0)),
        quantizer("flat", ("Classifier", 0)),
    ]

    found = units(model, quantizers)

    assert dict(found.members) == {
        "Conv1": ("Conv1", "Relu1"),
        "Conv2": ("Conv2", "Relu2"),
        "Pool": ("Pool", "Flatten"),
        "Classifier": ("Classifier",),
    }
    assert found.unit_of["Relu2"] == "Conv2"
    assert found.inside == {Consumer("Relu1", 0), Consumer("Relu2", 0), Consumer("Flatten", 0)}


def test_a_longer_chain_with_constants_on_the_way_is_one_unit(tmp_path: Path) -> None:
    found = units(
        chain(tmp_path, ["Conv", "Add", "Relu", "Neg"]),
        [quantizer("x", ("Conv", 0)), quantizer("t3", output=True)],
    )

    assert dict(found.members) == {"Conv": ("Conv", "Add", "Relu", "Neg")}


def test_a_unit_ends_where_nothing_is_quantized_any_more(tmp_path: Path) -> None:
    found = units(
        chain(tmp_path, ["Conv", "Add", "Relu", "Neg"]),
        [quantizer("x", ("Conv", 0)), quantizer("t1", ("Relu", 0))],
    )

    assert dict(found.members) == {"Conv": ("Conv", "Add"), "Relu": ("Relu",), "Neg": ("Neg",)}


def test_a_unit_does_not_begin_with_float_inputs(tmp_path: Path) -> None:
    model = chain(tmp_path, ["Conv", "Relu"])
    only_weight = [quantizer("w", ("Conv", 1), kind="weight"), quantizer("t1", output=True)]

    assert units(model, only_weight).inside == frozenset()
    assert units(model, []).inside == frozenset()


def test_a_tensor_that_leaves_the_network_or_is_read_twice_is_not_inside(tmp_path: Path) -> None:
    ends = [quantizer("x", ("Conv", 0)), quantizer("t1", output=True)]
    assert units(chain(tmp_path, ["Conv", "Relu"]), ends).inside == {Consumer("Relu", 0)}
    assert units(chain(tmp_path, ["Conv", "Relu"], extra_outputs=["t0"]), ends).inside == frozenset()

    square = [
        helper.make_node("Conv", ["x", "w"], ["t0"], name="Conv"),
        helper.make_node("Mul", ["t0", "t0"], ["t1"], name="Mul"),
    ]
    twice = wrapped(square, [value("x", (1, 3, 4, 4))], [value("t1")], [weight("w", 3, 3, 1, 1)])
    assert units(loaded(twice, tmp_path), ends).inside == frozenset()


def test_a_node_that_joins_two_live_tensors_begins_a_unit(tmp_path: Path) -> None:
    model = loaded(residual(), tmp_path)
    quantizers = [
        quantizer("image", ("stem", 0)),
        quantizer("a", ("body", 0), ("add", 0)),
        quantizer("sum", output=True),
    ]

    found = units(model, quantizers)

    # `c` reaches the sum unquantized, but beside `a`: fed with float activations, the sum starts from both.
    assert found.inside == frozenset()
    assert found.unit_of == {"stem": "stem", "body": "body", "act": "act", "add": "add"}


def test_what_a_subgraph_captures_is_not_inside(tmp_path: Path) -> None:
    found = units(loaded(with_if(), tmp_path), [quantizer("x", ("scale", 0)), quantizer("chosen", ("exp", 0))])

    assert found.inside == frozenset()
    assert found.unit_of["choose"] == "choose"


def test_constants_computed_from_constants_count_as_constants(tmp_path: Path) -> None:
    nodes: list[Any] = [
        helper.make_node("Transpose", ["w"], ["turned"], name="turn", perm=[1, 0]),
        helper.make_node("RandomNormal", [], ["noise"], name="noise", shape=[4]),
        helper.make_node("MatMul", ["x", "turned"], ["product"], name="product"),
        helper.make_node("Add", ["product", "bias"], ["sum"], name="add"),
        helper.make_node("Add", ["sum", "noise"], ["y"], name="jitter"),
    ]
    bias = numpy_helper.from_array(np.ones(4, np.float32), "bias")
    model = loaded(wrapped(nodes, [value("x", (2, 3))], [value("y")], [weight("w", 4, 3), bias]), tmp_path)

    found = units(model, [quantizer("x", ("product", 0)), quantizer("sum", ("jitter", 0))])

    assert derived_constants(model.proto.graph) == {"w", "bias", "turned"}
    assert dict(found.members) == {"noise": ("noise",), "product": ("product", "add"), "jitter": ("jitter",)}
