"""Masks and residual streams of transformers: found where they are planted, and not where they are sound."""

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx.numpy_helper import from_array, to_array

from roundoff.core.plan import Recipe
from roundoff.core.quantizers import QuantParams, parameters_from_range
from roundoff.diagnosis.causes.transformers import ResidualOutliers
from roundoff.diagnosis.study import diagnose_quantization
from roundoff.diagnosis.subject import open_case
from roundoff.graph.load import Model
from roundoff.graph.nodes import producers
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.transformers import find_parts
from roundoff.quantize.recipes import RecipeBuilder
from roundoff.quantize.targets.files import load_target
from tests.diagnosis.planting import changed
from tests.graph.transformer_nets import LOWEST, TOKENS, WIDTH, Form, feeds, transformer
from tests.quantize.transforms.test_clamp_mask import Given
from tests.quantized import quantized_simply

TARGET = load_target("generic-int8")
CAUSAL = Form("causal", guarded=False, layers=1)


def sharp(model: Model) -> Model:
    """With attention that looks somewhere: random weights look everywhere, and no mask is missed."""
    for tensor in model.proto.graph.initializer:
        if list(tensor.dims) == [WIDTH, WIDTH]:
            tensor.CopyFrom(from_array((to_array(tensor) * np.float32(2.5)), tensor.name))
    return model


@cache
def quantized(value: float, clamped: bool) -> tuple[QuantizedModel, Given]:
    model = sharp(transformer(Form("where", value=value)))
    samples = Given(feeds(model, 16))
    builder = RecipeBuilder(model, samples, TARGET)
    recipe = builder.plain(Recipe()) if clamped else Recipe()
    return builder.build(recipe).quantized, samples


def diagnosed(value: float, *, clamped: bool) -> Any:
    return diagnose_quantization(*quantized(value, clamped))


@pytest.mark.parametrize("value", [LOWEST, -1e4])
def test_a_mask_that_sets_the_scale_of_scores_is_named(value: float) -> None:
    found = diagnosed(value, clamped=False)
    first = found.accused[0]
    assert (found.kind, first.cause, first.proven) == ("culprits", "attention-mask", True)
    assert first.remedy is not None
    assert first.remedy.cost == "free"
    assert first.remedy.changes[0].step is not None
    assert first.remedy.changes[0].step.name == "clamp_mask"
    assert first.evidence["lowest"] == pytest.approx(value, rel=0.01)
    assert not any(change.kind == "bits" for change in first.remedy.changes)


def test_a_limited_mask_is_not_accused() -> None:
    found = diagnosed(LOWEST, clamped=True)
    assert "attention-mask" not in {each.cause for each in found.accused}


def _plain(model: Model, given: list[dict[str, Any]]) -> Any:
    samples = Given(given)
    return diagnose_quantization(RecipeBuilder(model, samples, TARGET).build(Recipe()).quantized, samples)


def test_scores_whose_step_is_too_coarse_for_a_softmax_are_named_and_cured_by_their_range() -> None:
    model = sharp(transformer(Form("where", value=-500.0)))  # no mask by its size, and as bad as one
    found = _plain(model, feeds(model, 16))
    first = found.accused[0]
    assert (first.cause, first.proven, set(first.nodes)) == ("softmax-range", True, _softmaxes(model))
    assert first.remedy is not None
    assert first.remedy.cost == "free"
    assert {each.kind for each in first.remedy.changes} == {"range"}
    # One scale over -500 and the scores: the step is a 255th of that.
    assert first.evidence["step"] == pytest.approx(540 / 255, rel=0.03)
    assert all(each.low is not None and each.low > -60 for each in first.remedy.changes)
    assert first.control is not None
    assert first.control.holds
    assert first.measures[0].after > first.measures[0].before + 5


def _softmaxes(model: Model) -> set[str]:
    return {node.name for node in model.proto.graph.node if node.op_type == "Softmax"}


def test_probabilities_spread_over_many_keys_are_named() -> None:
    quantized, samples = _many_keys(512)
    found = diagnose_quantization(quantized, samples)
    finding = next(each for each in found.accused if each.cause == "softmax-range")
    assert finding.proven
    assert finding.evidence["lost_share"] > 0.02
    assert finding.remedy is not None
    assert [change.kind for change in finding.remedy.changes] == ["bits"]


def _many_keys(keys: int) -> tuple[QuantizedModel, Given]:
    from pathlib import Path

    from onnx import TensorProto, helper

    from roundoff.graph.load import inside_bytes
    from roundoff.graph.nodes import make_model

    rng = np.random.default_rng(0)
    width = 8
    weights = [
        from_array((rng.normal(size=(width, width)) * size).astype(np.float32), name)
        for name, size in (("q", 0.1), ("k", 0.1), ("v", 0.5))
    ]
    nodes = [
        *(
            helper.make_node("MatMul", ["x", name], [f"{name}x"], name=f"{name}_product")
            for name in ("q", "k", "v")
        ),
        helper.make_node("Transpose", ["kx"], ["kt"], name="turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["qx", "kt"], ["scores"], name="scores"),
        helper.make_node("Softmax", ["scores"], ["p"], name="softmax", axis=-1),
        helper.make_node("MatMul", ["p", "vx"], ["y"], name="context"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, keys, width]) for name in ("x", "y")]
    proto = make_model(helper.make_graph(nodes, "keys", ends[:1], ends[1:], weights), opset=17)
    model = Model(proto, Path("keys.onnx"), inside_bytes(proto))
    samples = Given([{"x": rng.normal(size=(1, keys, width)).astype(np.float32) + 0.5} for _ in range(8)])
    quantized = RecipeBuilder(model, samples, TARGET).build(Recipe()).quantized
    whole = QuantParams(np.asarray(1 / 255, np.float32), np.zeros((), np.int32))  # as kernels want it
    return changed(quantized, "p", lambda each: replace(each, params=whole)), samples


@pytest.mark.parametrize("norm", ["spelled", "rms"])
def test_norms_that_are_computed_of_rounded_squares_are_named(norm: str) -> None:
    model = transformer(Form("none", norm=norm, images=True, pre_norm=True))
    given, rng = feeds(model, 16), np.random.default_rng(3)
    for each in given:
        each["patches"] *= np.exp(rng.normal(size=(2, TOKENS, 1)) * 1.5).astype(np.float32)
    found = diagnose_quantization(quantized_simply(model, given), Given(given))
    finding = next(each for each in found.accused if each.cause == "norm-precision")
    assert finding.proven
    assert finding.evidence["norms"] == 5
    assert {"Pow", "ReduceMean", "Sqrt"} <= {
        node.op_type for node in model.proto.graph.node if node.name in finding.nodes
    }


def test_norms_and_softmaxes_of_a_sound_transformer_are_not_accused() -> None:
    for form in (Form("none", norm="spelled"), Form("none", pre_norm=True, images=True)):
        model = transformer(form)
        assert _plain(model, feeds(model, 16)).accused == ()


def test_a_token_that_holds_all_maxima_is_named_with_its_position_and_channel() -> None:
    model = transformer(Form("none", pre_norm=True, images=True, layers=1))
    given = feeds(model, 16)
    for each in given:
        each["patches"][:, 1] *= 400
    found = _plain(model, given)
    finding = next(each for each in found.accused if each.cause == "residual-outliers")
    assert finding.evidence["sink_token"] == 1
    assert "the token at position 1 holds the maxima" in str(finding.summary)
    assert any("the token at position 1 is a sink" in str(note) for note in found.notes)
    given[3]["patches"][:, 4] *= 4000  # another in one sample: a large token, and no position that holds them all
    assert not any("sink" in str(note) for note in _plain(model, given).notes)


def _signals(patches: float) -> list[float]:
    """How far tensors of the stream reach beyond their rms, where that is said."""
    model = transformer(Form("none", pre_norm=True, images=True, layers=1))
    given = feeds(model, 16)
    given[3]["patches"][0, 2, 5] = patches
    samples = Given(given)
    case = open_case(RecipeBuilder(model, samples, TARGET).build(Recipe()).quantized, samples)
    found = [ResidualOutliers().signal(case, suspect) for suspect in case.facts.suspects]
    return [each.numbers["reach_over_rms"] for each in found if each is not None]


def test_one_token_far_from_the_rest_of_the_stream_is_a_sign_and_a_usual_stream_is_none() -> None:
    assert _signals(2.0) == []
    assert max(_signals(2000.0)) > 20


def _with_outliers(size: float) -> Model:
    """A causal network in which the first layer writes two large channels that later gains take out again."""
    form = replace(CAUSAL, norm="rms", pre_norm=True, layers=2)
    model = transformer(form)
    graph = model.proto.graph
    makers, held = producers(graph.node), {each.name: each for each in graph.initializer}
    usual, hot = math.sqrt(WIDTH / 2), np.arange(WIDTH) % (WIDTH // 2) == 3
    [add] = [each for each in graph.node if each.name == find_parts(model).residual_adds[1]]
    [bias] = [name for each in add.input for name in makers[each].input if name in held]
    gains = [each for each in graph.initializer if each.name.startswith("gain")][2:]
    for tensor in (held[bias], *gains):
        values = to_array(tensor).copy()
        values[~hot] *= 1 if tensor is held[bias] else size / usual
        values[hot] = size if tensor is held[bias] else values[hot] / (usual if tensor is gains[-1] else 50)
        tensor.CopyFrom(from_array(values.astype(np.float32), tensor.name))
    return model


def test_outliers_that_all_of_the_stream_carries_are_one_cause() -> None:
    model = _with_outliers(100.0)
    samples = Given(feeds(model, 16))
    builder = RecipeBuilder(model, samples, TARGET)
    made = builder.build(builder.plain(Recipe())).quantized
    found = diagnose_quantization(made, samples)
    [finding] = [each for each in found.accused if each.proven]
    assert finding.cause == "residual-outliers"
    parts = find_parts(made.float_model)
    outputs = {node.name: node.output[0] for node in made.float_model.proto.graph.node}
    assert {outputs[name] for name in parts.residual_adds[1:]} <= set(finding.tensors)
    # Measured in the network as it is, where that shows it.
    assert finding.measures[0].before + 7 < finding.measures[0].after < 60
    # Products read what norms hand on, which has no outliers any more.
    assert not {norm.exit for norm in parts.norms} & set(finding.tensors)
    assert finding.remedy is not None
    assert (finding.remedy.cost, {each.kind for each in finding.remedy.changes}) == ("16 bit", {"bits"})
    # 100 in one scale with values of about 1: one channel beside it has an rms of a hundredth of that.
    assert 50 < finding.evidence["reach_over_rms"] < 300
    case = open_case(made, samples)
    places = ResidualOutliers().places(case)
    assert places is not None
    assert set(places[0].tensors) == set(finding.tensors)
    before, after = case.loss(), case.loss(places[1])
    assert after.sqnr_db > before.sqnr_db + 7


def test_a_mask_of_minus_infinity_that_was_stored_as_nothing_is_named() -> None:
    model = sharp(transformer(Form("where", value=-math.inf, guarded=True, layers=1)))
    found = _plain(model, feeds(model, 8))
    first = found.accused[0]
    assert (first.cause, first.proven, set(first.nodes)) == ("attention-mask", True, _softmaxes(model))
    assert "padding, or what comes later, is attended to" in str(first.summary)
    assert first.evidence["stored"] == 0
    assert first.measures[0].after > first.measures[0].before + 10
    assert first.remedy is not None
    assert first.remedy.cost == "free"


@cache
def _narrow(value: float, clamped: bool) -> tuple[QuantizedModel, Given, set[str]]:
    """A causal model whose masked scores have the range of the others, or that of a limited mask."""
    form = replace(CAUSAL, value=value)
    model = sharp(transformer(form))
    samples = Given(feeds(model, 16))
    attentions = find_parts(model).attentions
    sums = {part.masked for part in attentions}
    builder = RecipeBuilder(model, samples, TARGET)
    if clamped:
        return builder.build(builder.plain(Recipe())).quantized, samples, sums
    made = builder.build(Recipe()).quantized
    masks = {each.tensor for part in attentions for each in part.operands}
    made = replace(made, quantizers=tuple(each for each in made.quantizers if each.tensor not in masks))
    for tensor in sums:
        made = changed(
            made, tensor, lambda each: replace(each, params=parameters_from_range(-1.0, 8.0, each.spec))
        )
    return made, samples, sums


@pytest.mark.parametrize("value", [-math.inf, LOWEST])
def test_masked_scores_that_saturate_where_they_count_are_named(value: float) -> None:
    quantized, samples, sums = _narrow(value, clamped=False)
    found = diagnose_quantization(quantized, samples)
    first = found.accused[0]
    assert (first.cause, first.proven, set(first.tensors)) == ("attention-mask", True, sums)
    assert first.control is not None
    assert first.control.holds
    assert first.evidence["stored"] == pytest.approx(-1, abs=0.05)
    assert first.measures[0].after > first.measures[0].before + 5
    assert first.remedy is not None
    # What is left of a masked key: less than half a step of a probability, beside the largest score of its row.
    assert all(each.low is not None and each.low < -7 for each in first.remedy.changes if each.kind == "range")


def test_a_mask_that_was_stored_as_codes_of_nothing_is_lost_whatever_its_scale_reaches() -> None:
    model = sharp(transformer(CAUSAL))
    samples = Given(feeds(model, 16))
    [part] = find_parts(model).attentions
    [mask] = [each.tensor for each in part.operands]
    [held] = [each for each in model.proto.graph.initializer if each.name == mask]
    made = RecipeBuilder(model, samples, TARGET).build(Recipe()).quantized
    nothing = np.zeros(list(held.dims), np.int32)

    def stored(each: Any) -> Any:
        params = parameters_from_range(-120.0, 0.0, each.spec)
        return replace(each, params=params, codes=nothing + int(params.zero_point))

    made = changed(made, mask, stored)
    made = changed(
        made, part.masked, lambda each: replace(each, params=parameters_from_range(-120.0, 9.0, each.spec))
    )
    first = diagnose_quantization(made, samples).accused[0]
    assert (first.cause, first.proven) == ("attention-mask", True)
    assert first.evidence["stored"] == 0
    assert first.measures[0].after > first.measures[0].before + 10


def test_masked_scores_that_reach_down_far_enough_are_not_accused() -> None:
    quantized, samples, _ = _narrow(-math.inf, clamped=True)
    found = diagnose_quantization(quantized, samples)
    assert "attention-mask" not in {each.cause for each in (*found.accused, *found.findings)}
    # Nothing that saturates at a mask is an error: the best ranges are those that it has.
    assert found.measures[0].after == pytest.approx(found.measures[0].before, abs=1.0)
