"""Rounding of weights: never worse than the nearest codes, and what it does to layers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from roundoff.core.quantizers import QuantSpec, dequantize, quantize
from roundoff.graph.insertion import switch_on
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.subgraph import tap
from roundoff.graph.weights import Weights
from roundoff.quantize.agreement import judge_outputs
from roundoff.quantize.corrections import round_weights
from roundoff.quantize.corrections.layers import Gram, activation_clip, quantized_layers, weight_rows
from roundoff.quantize.corrections.round_weights import output_error, rounded_together
from roundoff.quantize.steps import StepContext, apply_correction
from roundoff.quantize.targets.files import load_target
from roundoff.run.session import open_session
from tests.quantize.corrections.test_bias_correct import net, quantized_for
from tests.quantize.transforms.nets import Net, step
from tests.quantized import Recipe, quantized_simply
from tests.run.samples import MemorySamples


@settings(deadline=None)
@given(
    seed=st.integers(0, 10_000),
    groups=st.integers(1, 3),
    rows=st.integers(1, 4),
    length=st.integers(1, 9),
    seen=st.integers(1, 30),
)
def test_no_row_is_worse_and_codes_are_next_to_their_values(
    seed: int, groups: int, rows: int, length: int, seen: int
) -> None:
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(groups, seen, length)) + rng.normal(size=(groups, 1, 1))
    gram = inputs.transpose(0, 2, 1) @ inputs
    steps = rng.uniform(-130, 130, (groups, rows, length))
    nearest = np.clip(np.rint(steps), -128, 127)
    found = rounded_together(steps, nearest, gram, limits=(-128, 127), sweeps=20)
    assert ((found >= -128) & (found <= 127)).all()
    inside = (steps > -128) & (steps < 127)
    assert (np.abs(found - steps)[inside] < 1).all()
    np.testing.assert_array_equal(found[~inside], nearest[~inside])
    # With the damping that it was found with.
    mean = np.einsum("gkk->g", gram) / length
    whole = gram + 0.01 * mean[:, None, None] * np.eye(length)
    assert (output_error(found - steps, whole) <= output_error(nearest - steps, whole) * (1 + 1e-9)).all()


def test_errors_of_like_inputs_cancel() -> None:
    """Two inputs that are always equal: one weight is rounded up, the other down."""
    gram = np.ones((1, 2, 2))
    steps = np.array([[[0.4, 0.4]]])
    found = rounded_together(steps, np.rint(steps), gram, limits=(-8, 7), sweeps=5)
    assert sorted(found.ravel().tolist()) == [0.0, 1.0]


@pytest.mark.parametrize("length", [5, 64, 150])
def test_errors_are_made_up_for_element_by_element(length: int) -> None:
    """The textbook form: each element is rounded, and all that are still to come learn of its error."""
    rng = np.random.default_rng(length)
    inputs, steps = rng.normal(size=(2, 3 * length, length)), rng.normal(size=(2, 4, length)) * 20
    whole = inputs.transpose(0, 2, 1) @ inputs
    found = round_weights._with_feedback(steps, whole, (-30, 30))
    order = np.argsort(-np.einsum("gkk->k", whole), kind="stable")
    expected = np.empty(steps.shape)
    for group in range(2):
        factor = np.linalg.cholesky(np.linalg.inv(whole[group][np.ix_(order, order)])).T
        for row in range(4):
            left = steps[group, row, order].copy()
            for place, at in enumerate(order):
                value = steps[group, row, at]
                low, high = np.clip([np.floor(value), np.ceil(value)], -30, 30)
                expected[group, row, at] = np.clip(np.rint(left[place]), low, high)
                error = (left[place] - expected[group, row, at]) / factor[place, place]
                left[place + 1 :] -= error * factor[place, place + 1 :]
    assert found is not None
    np.testing.assert_array_equal(found, expected)


def errors(quantized: QuantizedModel, context: StepContext, name: str, weight: np.ndarray) -> float:
    """Squared error of what gets past a node's activation with another weight, on what it reads in a model."""
    model = switch_on(quantized.float_model, quantized.quantizers)
    nodes = {node.name: node for node in model.proto.graph.node}
    session = open_session(model, outputs=tap(model, [nodes[name].input[0]]))
    rows = weight_rows(nodes[name], weight.shape)
    assert rows is not None
    layer = next(each for each in quantized_layers(quantized) if each.node == name)
    counts = activation_clip(layer, rows, quantized.float_model)
    gram = Gram(nodes[name], weight.shape, rows, samples=1, counts=counts)
    for index in range(len(context.samples.names)):
        gram.add(session.run(context.samples.feed(index))[0])
    return float(output_error(rows.rows(weight).reshape(len(gram.matrix), -1, rows.length), gram.matrix).sum())


@pytest.mark.parametrize("target", ["generic-int8-per-tensor", "generic-int8"])
def test_each_layer_computes_more_exactly(target: str) -> None:
    quantized, context = quantized_for(net(), target)
    done = apply_correction(step("round_weights"), quantized, context)
    assert len(done.taken) >= 3
    weights = Weights(quantized.float_model)
    for old, new in zip(quantized.quantizers, done.model.quantizers, strict=True):
        if new.codes is None:
            continue
        values = weights[old.tensor].astype(np.float64)
        plain = quantize(values.astype(np.float32), old.params, old.spec)
        assert np.abs(new.codes.astype(int) - plain).max() == 1
        before, after = (
            errors(
                done.model,
                context,
                old.consumers[0].node,
                dequantize(codes, old.params, old.spec.axis) - values,
            )
            for codes in (plain, new.codes)
        )
        assert after < before


@pytest.mark.parametrize(
    ("op_type", "limits", "behind"),
    [("Relu", (0.0, np.inf), ()), ("Clip", (-0.5, 1.0), (-0.5, 1.0)), ("Tanh", None, ())],
)
@pytest.mark.parametrize("layer", ["Conv", "Gemm", "MatMul"])
def test_results_that_are_cut_off_hardly_count(
    layer: str, op_type: str, limits: tuple[float, float] | None, behind: tuple[float, ...]
) -> None:
    made = Net(4)
    shape, axis = ((2, 4, 5, 5), 1) if layer == "Conv" else ((3, 4), -1)
    if layer == "Conv":
        made.add("Conv", ["x", made.normal("w", 4, 2, 3, 3), made.normal("b", 4)], "sums", group=2)
    elif layer == "Gemm":
        made.add("Gemm", ["x", made.normal("w", 6, 4), made.normal("b", 6)], "sums", transB=1, alpha=0.5, beta=2.0)
    else:
        made.add("MatMul", ["x", made.normal("w", 4, 6)], "product")
        made.add("Add", ["product", made.normal("b", 6)], "sums")
    bounds = [made.hold(f"bound{at}", np.float32(value)) for at, value in enumerate(behind)]
    made.add(op_type, ["sums", *bounds], "act")
    made.add("Neg", ["act"], "out")
    quantized, context = quantized_for(made.model({"x": shape}, ["out"]), "generic-int8")
    model = quantized.float_model
    found = next(iter(quantized_layers(quantized)))
    node = {each.name: each for each in model.proto.graph.node}[found.node]
    values = Weights(model)[node.input[1]]
    rows = weight_rows(node, values.shape)
    assert rows is not None
    passing = activation_clip(found, rows, model)
    if limits is None:
        assert passing is None
        return
    feed = context.samples.feed(0)
    (sums,) = open_session(model, outputs=tap(model, ["sums"])).run(feed)
    weights = np.where((sums > limits[0]) & (sums < limits[1]), 1.0, 0.02)
    gram = Gram(node, values.shape, rows, samples=1, counts=passing)
    gram.add(feed["x"])
    # What another weight does to the sums, by running it.
    error = made.rng.normal(size=values.shape)
    moved = made.model({"x": shape}, ["out"])
    for tensor in moved.proto.graph.initializer:
        if tensor.name == node.input[1]:
            tensor.CopyFrom(numpy_helper.from_array((values + error).astype(np.float32), tensor.name))
    (other,) = open_session(moved, outputs=tap(moved, ["sums"])).run(feed)
    scale = 0.5 if layer == "Gemm" else 1.0
    expected = np.moveaxis(weights * np.square(other - sums) / scale**2, axis, 0).reshape(sums.shape[axis], -1)
    computed = output_error(rows.rows(error).reshape(len(gram.matrix), -1, rows.length), gram.matrix).ravel()
    np.testing.assert_allclose(computed, expected.sum(axis=1), rtol=1e-3)


def test_what_was_rounded_before_is_not_rounded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    quantized, context = quantized_for(net(), "generic-int8")
    calls = []

    def counting(*args: Any, **named: Any) -> Any:
        calls.append(args)
        return rounded_together(*args, **named)

    monkeypatch.setattr(round_weights, "rounded_together", counting)
    first = apply_correction(step("round_weights"), quantized, context)
    layers = len(calls)
    # Another model, in which only what leaves the last layer has another scale.
    last = quantized.quantizers[-1]
    assert last.kind == "activation"
    wider = replace(last, params=replace(last.params, scale=last.params.scale * 2))
    changed = replace(quantized, quantizers=(*quantized.quantizers[:-1], wider))
    second = apply_correction(step("round_weights"), changed, context)
    assert layers >= 3
    assert len(calls) == layers
    for ours, theirs in zip(first.model.quantizers[:-1], second.model.quantizers[:-1], strict=True):
        np.testing.assert_array_equal(ours.codes, theirs.codes)
    # With other inputs it is.
    apply_correction(step("round_weights", samples=1), quantized, context)
    assert len(calls) > layers


def test_outputs_agree_better_where_weights_are_coarse() -> None:
    """4 bits, and inputs that are alike, as pictures are."""
    made = Net(9)
    made.add("Gemm", ["x", made.normal("w0", 24, 16), made.normal("b0", 16)], "first")
    made.add("Relu", ["first"], "act")
    made.add("Gemm", ["act", made.normal("w1", 16, 8)], "out")
    model = made.model({"x": (4, 24)}, ["out"])
    mixing = made.rng.normal(size=(3, 24))
    feeds = [{"x": (made.rng.normal(size=(4, 3)) @ mixing).astype(np.float32)} for _ in range(16)]
    quantized = quantized_simply(model, feeds, Recipe(weight=QuantSpec(bits=4, signed=True, symmetric=True)))
    context = StepContext(load_target("generic-int8"), MemorySamples(feeds[:12]))
    done, fed = apply_correction(step("round_weights"), quantized, context), MemorySamples(feeds)
    before, after = (
        judge_outputs(model, switch_on(model, each.quantizers), fed, indices=range(12, 16)).agreement
        for each in (quantized, done.model)
    )
    assert after[0].score.values["sqnr_db"] > before[0].score.values["sqnr_db"] + 3


@pytest.mark.parametrize(
    "attributes",
    [
        {"pads": [1, 0, 2, 1], "strides": [2, 1]},
        {"dilations": [2, 2], "group": 2},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
        {"group": 4, "pads": [1] * 4},
    ],
)
def test_the_gram_matrix_is_that_of_the_convolution(attributes: dict[str, object]) -> None:
    made = Net(1)
    groups = int(attributes.get("group", 1))  # type: ignore[call-overload]
    weight = made.rng.normal(size=(4, 4 // groups, 3, 3)).astype(np.float32)
    made.add("Conv", ["x", made.hold("w", weight)], "y", **attributes)
    model = made.model({"x": (2, 4, 9, 8)}, ["y"])
    feed = {"x": made.rng.normal(size=(2, 4, 9, 8)).astype(np.float32)}
    node = model.proto.graph.node[0]
    rows = weight_rows(node, weight.shape)
    assert rows is not None
    gram = Gram(node, weight.shape, rows, samples=1)
    gram.add(feed["x"])
    result = open_session(model).run(feed)[0].astype(np.float64)
    expected = np.square(result).sum(axis=(0, 2, 3))
    found = output_error(rows.rows(weight.astype(np.float64)), gram.matrix).ravel()
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_what_cannot_be_rounded_is_named() -> None:
    made = Net(2)
    shared = made.normal("w", 4, 4, 1, 1)
    made.add("Conv", ["x", shared], "first")
    made.add("Conv", ["first", shared], "second")
    made.add("ConvTranspose", ["second", made.normal("w1", 4, 4, 2, 2)], "out")
    quantized, context = quantized_for(made.model({"x": (1, 4, 6, 6)}, ["out"]), "generic-int8")
    done = apply_correction(step("round_weights"), quantized, context)
    assert any("'out' as before, because results are no sums over rows" in str(note) for note in done.notes)


def test_a_time_limit_leaves_the_rest() -> None:
    quantized, context = quantized_for(net(), "generic-int8")
    done = apply_correction(step("round_weights", time_limit=1e-9), quantized, context)
    assert done.taken == ()
    assert "the time was over before 4 layers" in str(done.notes[-1])


def test_weights_with_asymmetric_codes_are_rounded() -> None:
    spec = QuantSpec(bits=4, signed=False, symmetric=False)
    steps = np.array([[[3.4, 3.4, 20.0]]])
    nearest = np.clip(np.rint(steps), spec.code_min, spec.code_max)
    found = rounded_together(steps, nearest, np.ones((1, 3, 3)), limits=(spec.code_min, spec.code_max), sweeps=3)
    assert found[0, 0, 2] == 15
