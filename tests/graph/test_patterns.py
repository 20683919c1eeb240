"""Operations spelled out in several nodes are recognised however they are written, and nothing else is."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from roundoff.graph.patterns import PATTERNS, POINTWISE, evaluate, find_patterns
from tests.models import loaded, random_feed, single_node, value, weight, wrapped

node = helper.make_node


class Writer:
    """Writes nodes down one after the other; numbers become constants."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def __call__(self, op_type: str, *inputs: str | float, **attributes: Any) -> str:
        names = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        output = f"t{len(self.nodes)}"
        self.nodes.append(node(op_type, names, [output], name=f"{op_type}_{len(self.nodes)}", **attributes))
        return output

    def constant(self, number: float, shape: Sequence[int] = ()) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.full(shape, number, dtype=np.float32), name))
        return name

    def model(self, output: str, opset: int = 17) -> Any:
        return wrapped(self.nodes, [value("x", (2, 3, 4))], [value(output)], self.constants, opset=opset)


Form = Callable[[Writer], str]


def tanh_gelu(w: Writer, cube: str) -> str:
    inner = w("Mul", w("Add", "x", w("Mul", cube, 0.044715)), math.sqrt(2 / math.pi))
    return w("Mul", w("Mul", "x", 0.5), w("Add", w("Tanh", inner), 1.0))


FORMS: list[tuple[str, Form]] = [
    ("swish", lambda w: w("Mul", "x", w("Sigmoid", "x"))),
    ("swish", lambda w: w("Mul", w("Sigmoid", "x"), "x")),
    ("swish", lambda w: w("Div", "x", w("Add", w("Exp", w("Neg", "x")), 1.0))),
    ("quick_gelu", lambda w: w("Mul", "x", w("Sigmoid", w("Mul", "x", 1.702)))),
    ("hardswish", lambda w: w("Mul", "x", w("HardSigmoid", "x", alpha=1 / 6, beta=0.5))),
    ("hardswish", lambda w: w("Div", w("Mul", "x", w("Clip", w("Add", "x", 3.0), 0.0, 6.0)), 6.0)),
    ("hardswish", lambda w: w("Mul", "x", w("Div", w("Clip", w("Add", "x", 3.0), 0.0, 6.0), 6.0))),
    ("hardswish", lambda w: w("Mul", w("Mul", w("Min", w("Relu", w("Add", 3.0, "x")), 6.0), "x"), 1 / 6)),
    ("hardswish", lambda w: w("HardSwish", "x")),
    ("hardsigmoid", lambda w: w("Clip", w("Add", w("Mul", "x", 1 / 6), 0.5), 0.0, 1.0)),
    ("gelu", lambda w: w("Mul", w("Mul", "x", w("Add", w("Erf", w("Div", "x", math.sqrt(2))), 1.0)), 0.5)),
    ("gelu", lambda w: w("Mul", "x", w("Mul", w("Add", w("Erf", w("Mul", "x", math.sqrt(0.5))), 1.0), 0.5))),
    ("gelu", lambda w: w("Mul", w("Mul", 0.5, "x"), w("Add", 1.0, w("Erf", w("Div", "x", 1.4141))))),
    ("gelu", lambda w: tanh_gelu(w, w("Pow", "x", 3.0))),
    ("gelu", lambda w: tanh_gelu(w, w("Mul", w("Mul", "x", "x"), "x"))),
    ("mish", lambda w: w("Mul", "x", w("Tanh", w("Softplus", "x")))),
    ("mish", lambda w: w("Mul", w("Tanh", w("Log", w("Add", w("Exp", "x"), 1.0))), "x")),
    ("relu6", lambda w: w("Clip", "x", 0.0, 6.0)),
    ("relu6", lambda w: w("Min", w("Relu", "x"), 6.0)),
]


@pytest.mark.parametrize(("name", "form"), FORMS, ids=[f"{name}{place}" for place, (name, _) in enumerate(FORMS)])
def test_functions_are_recognised_in_every_form(name: str, form: Form, tmp_path: Path) -> None:
    writer = Writer()
    last = form(writer)
    found = {
        (each.name, each.entry, each.exit): each for each in find_patterns(loaded(writer.model(last), tmp_path))
    }
    assert (name, "x", last) in found
    assert found[name, "x", last].nodes == tuple(each.name for each in writer.nodes)


def layernorm(
    w: Writer, x: str = "x", *, square: str = "Pow", invert: str = "Div", axes: Sequence[int] = (-1,)
) -> str:
    centred = w("Sub", x, w("ReduceMean", x, axes=list(axes)))
    squared = w("Pow", centred, 2.0) if square == "Pow" else w("Mul", centred, centred)
    variance = w("Add", w("ReduceMean", squared, axes=list(axes)), 1e-5)
    if invert == "Div":
        return w("Div", centred, w("Sqrt", variance))
    if invert == "Reciprocal":
        return w("Mul", centred, w("Reciprocal", w("Sqrt", variance)))
    return w("Mul", w("Pow", variance, -0.5), centred)


@pytest.mark.parametrize("square", ["Pow", "Mul"])
@pytest.mark.parametrize("invert", ["Div", "Reciprocal", "Pow"])
@pytest.mark.parametrize("affine", [0, 1, 2])
def test_layer_normalization_with_and_without_gain(square: str, invert: str, affine: int, tmp_path: Path) -> None:
    writer = Writer()
    last = layernorm(writer, square=square, invert=invert)
    if affine > 0:
        last = writer("Mul", last, writer.constant(1.5, (4,)))
    if affine > 1:
        last = writer("Add", last, writer.constant(0.5, (4,)))
    found = [each for each in find_patterns(loaded(writer.model(last), tmp_path)) if each.name == "layernorm"]
    assert [(each.entry, each.exit, len(each.nodes)) for each in found] == [("x", last, len(writer.nodes))]


def test_a_normalization_without_the_mean(tmp_path: Path) -> None:
    w = Writer()
    mean = w("Add", w("ReduceMean", w("Mul", "x", "x"), axes=[-1]), 1e-6)
    last = w("Mul", w("Div", "x", w("Sqrt", mean)), w.constant(2.0, (4,)))
    found = find_patterns(loaded(w.model(last), tmp_path))
    assert [(each.name, each.entry, len(each.nodes)) for each in found] == [("rmsnorm", "x", 6)]


def by_moments(w: Writer, *, share: float = 0.25, less: str = "first") -> str:
    """As JAX has it: the mean of squares less the square of the mean, both repeated before they are used."""
    axis = numpy_helper.from_array(np.array([2]), "axis")
    shape = numpy_helper.from_array(np.array([2, 3, 4]), "shape")
    w.constants += [axis, shape]
    first = w("Mul", w("ReduceSum", "x", "axis"), share)
    second = w("Mul", w("ReduceSum", w("Mul", "x", "x"), "axis"), share)
    spread = w("Max", 0.0, w("Sub", second, w("Mul", first, first) if less == "first" else first))
    radicand = w("Add", w("Expand", spread, "shape"), 1e-6)
    factor = w("Mul", w("Reciprocal", w("Sqrt", radicand)), w.constant(1.5, (4,)))
    return w("Add", w("Mul", w("Sub", "x", w("Expand", first, "shape")), factor), w.constant(0.5, (4,)))


def test_a_normalization_by_moments(tmp_path: Path) -> None:
    w = Writer()
    last = by_moments(w)
    found = find_patterns(loaded(w.model(last), tmp_path))
    assert [(each.name, each.entry, each.exit) for each in found] == [("layernorm", "x", last)]
    assert found[0].nodes == tuple(each.name for each in w.nodes)


NOT_THESE: list[Form] = [
    lambda w: by_moments(w, share=0.3),
    lambda w: by_moments(w, less="mean"),
    lambda w: w("Mul", "x", w("Sigmoid", w("Mul", "x", 2.0))),
    lambda w: w("Mul", w("Relu", "x"), w("Sigmoid", "x")),
    lambda w: w("Mul", "x", w("HardSigmoid", "x")),
    lambda w: w("Mul", w("Mul", "x", w("Add", w("Erf", w("Div", "x", 2.0)), 1.0)), 0.5),
    lambda w: w("Clip", "x", -1.0, 6.0),
    lambda w: w("Mul", w("Softmax", "x"), w("Sigmoid", "x")),
    lambda w: w("Mul", "x", w("Sigmoid", w("Mul", "x", w.constant(1.0, (4,))))),
    lambda w: layernorm(w, axes=(-2, -1)),
]


@pytest.mark.parametrize("form", NOT_THESE)
def test_other_functions_are_not_mistaken_for_them(form: Form, tmp_path: Path) -> None:
    writer = Writer()
    assert find_patterns(loaded(writer.model(form(writer)), tmp_path)) == ()


def test_what_others_read_is_not_a_pattern(tmp_path: Path) -> None:
    writer = Writer()
    gate = writer("Sigmoid", "x")
    writer("Mul", "x", gate)
    both = writer("Add", gate, "t1")
    assert find_patterns(loaded(writer.model(both), tmp_path)) == ()


def test_what_leaves_the_network_is_not_a_pattern(tmp_path: Path) -> None:
    writer = Writer()
    gate = writer("Sigmoid", "x")
    model = writer.model(writer("Mul", "x", gate))
    model.graph.output.append(value(gate))
    assert find_patterns(loaded(model, tmp_path)) == ()


def test_patterns_stand_behind_other_layers(tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["a"], name="conv"),
        node("Sigmoid", ["a"], ["s"], name="sigmoid"),
        node("Mul", ["a", "s"], ["b"], name="mul"),
        node("Add", ["b", "x"], ["y"], name="add"),
    ]
    model = wrapped(nodes, [value("x", (1, 3, 4, 4))], [value("y")], [weight("w", 3, 3, 1, 1)])
    found = find_patterns(loaded(model, tmp_path))
    assert [(each.name, each.nodes, each.entry, each.exit) for each in found] == [
        ("swish", ("sigmoid", "mul"), "a", "b")
    ]


def test_every_pattern_is_tested() -> None:
    assert {name for name, _ in FORMS} | {"layernorm", "rmsnorm"} == PATTERNS


ATTRIBUTES: dict[str, dict[str, Any]] = {
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
    "Gelu": {"approximate": "tanh"},
    "Cast": {"to": 1},
}
TWO_INPUTS = {"Add", "Div", "Max", "Min", "Mul", "Sub"}


@pytest.mark.parametrize("op_type", sorted(POINTWISE - {"Swish"}))  # Swish is newer than the runtimes we support
def test_nodes_compute_what_onnxruntime_computes(op_type: str, tmp_path: Path) -> None:
    import onnxruntime

    feed = random_feed({"x": (40,), "z": (40,)})
    if op_type in ("Log", "Pow", "Sqrt", "Reciprocal"):
        feed["x"] = np.abs(feed["x"]) + 0.1
    names = ["x", "z"] if op_type in (*TWO_INPUTS, "Pow") else ["x"]
    made = node(op_type, names, ["y"], **ATTRIBUTES.get(op_type, {}))
    model = single_node(made, [value(name, (40,)) for name in names], opset=20, ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    [expected] = session.run(None, {name: feed[name] for name in names})
    computed = evaluate(made, [feed[name].astype(np.float64) for name in names])
    np.testing.assert_allclose(computed, expected, rtol=2e-5, atol=2e-6)


def test_limits_of_a_clip_are_inputs_or_attributes() -> None:
    values = np.array([-2.0, 0.5, 9.0])
    low, high = np.array(0.0), np.array(6.0)
    assert evaluate(node("Clip", ["x"], ["y"], min=0.0), [values]).tolist() == [0.0, 0.5, 9.0]
    assert evaluate(node("Clip", ["x", "a", "b"], ["y"]), [values, low, high]).tolist() == [0.0, 0.5, 6.0]
    nothing = np.zeros(0)
    assert evaluate(node("Clip", ["x", "", "b"], ["y"]), [values, nothing, high]).tolist() == [-2.0, 0.5, 6.0]


def test_a_swish_can_have_a_slope() -> None:
    x = np.array([-1.0, 0.0, 2.0])
    expected = x / (1 + np.exp(-1.5 * x))
    np.testing.assert_allclose(evaluate(node("Swish", ["x"], ["y"], alpha=1.5), [x]), expected)
