"""What is said to be expected counts what costs a chip nothing, and agrees with what is said to be put right."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from roundoff.core.plan import Recipe, Step
from roundoff.core.tensors import Array
from roundoff.diagnosis import repairable_model
from roundoff.diagnosis.interventions import InterventionRunner
from roundoff.diagnosis.repairable_model import free_levers
from roundoff.diagnosis.study import diagnose_quantization
from roundoff.diagnosis.subject import open_case
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model, model_from_proto
from roundoff.quantize.recipes import RecipeBuilder
from roundoff.quantize.steps import apply_correction
from roundoff.quantize.targets.files import load_target
from roundoff.run.session import open_session
from roundoff.samples.sample_set import ArraySamples
from tests.diagnosis.planting import changed, demo, for_target, numpy_tensor, scaled
from tests.diagnosis.test_diagnosis import shown as terminal_lines
from tests.models import value, wrapped

PER_TENSOR, CHANNELS = "generic-int8-per-tensor", 16


def uneven(layers: int, seed: int, spread: float) -> tuple[Model, dict[str, Array]]:
    """Convolutions whose channels differ in size at random; the next layer takes that back."""
    rng = np.random.default_rng(seed)
    nodes, constants, name, gain = [], [], "x", np.ones(3)
    for at in range(layers):
        weight = rng.normal(size=(CHANNELS, gain.size, 3, 3)) * np.sqrt(2 / (gain.size * 9))
        own = np.exp(spread * rng.normal(size=CHANNELS))
        weight = weight * own[:, None, None, None] / gain[None, :, None, None]
        gain = own
        bias = 0.1 * rng.normal(size=CHANNELS) * gain
        constants += [numpy_tensor(f"w{at}", weight.astype(np.float32)), numpy_tensor(f"b{at}", np.float32(bias))]
        nodes += [
            helper.make_node("Conv", [name, f"w{at}", f"b{at}"], [f"c{at}"], name=f"conv{at}", pads=[1] * 4),
            helper.make_node("Relu", [f"c{at}"], [f"r{at}"], name=f"relu{at}"),
        ]
        name = f"r{at}"
    last = (rng.normal(size=(CHANNELS, 10)) / gain[:, None]).astype(np.float32)
    nodes += [
        helper.make_node("GlobalAveragePool", [name], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flat"),
        helper.make_node("MatMul", ["f", "w"], ["y"], name="dense"),
    ]
    proto = wrapped(
        nodes, [value("x", (1, 3, 8, 8))], [value("y", (1, 10))], [*constants, numpy_tensor("w", last)]
    )
    data = rng.normal(size=(16, 3, 8, 8)).astype(np.float32)
    return model_from_proto(proto, path=Path("uneven.onnx")), {"x": data}


def pooled_db(model: Model, other: Model, data: Array) -> float:
    """Signal to noise of all samples as one tensor."""
    ours, theirs = (
        np.concatenate([open_session(each).run({"x": row[None]})[0] for row in data]).astype(np.float64)
        for each in (model, other)
    )
    return float(10 * np.log10(np.square(ours).sum() / np.square(ours - theirs).sum()))


@pytest.mark.parametrize(("layers", "seed", "spread"), [(6, 3, 2.0), (5, 7, 1.6)])
def test_equalization_counts_in_what_is_expected(layers: int, seed: int, spread: float) -> None:
    model, arrays = uneven(layers, seed, spread)
    quantized, samples = for_target(model, arrays, PER_TENSOR)
    found = diagnose_quantization(quantized, samples)
    now, expected = found.measures[0].before, found.measures[0].after
    # The same by another way: a recipe as `tune` builds it, made of half the samples for the others.
    recipe, reached = Recipe(transforms=(Step("equalize"),)), []
    for half in (0, 1):
        some = ArraySamples({"x": arrays["x"][half::2]})
        done = RecipeBuilder(model, some, load_target(PER_TENSOR)).build(recipe).quantized
        reached.append(pooled_db(model, switch_on(done.float_model, done.quantizers), arrays["x"][1 - half :: 2]))
    assert now < 10
    assert min(reached) > now + 15
    assert expected >= min(reached) - 1.5
    assert any(each.name.key == "diagnosis.check_levers" for each in found.checks)


def test_levers_are_measured_as_they_are_named() -> None:
    model, arrays = uneven(4, 11, 1.5)
    quantized, samples = for_target(model, arrays, PER_TENSOR)
    found = dict(free_levers(open_case(quantized, samples)))
    assert list(found) == [("equalize",), ("equalize", "bias_correct")]
    assert all(each.samples == 16 for each in found.values())


def test_levers_are_measured_on_samples_that_they_are_not_fitted_to(monkeypatch: pytest.MonkeyPatch) -> None:
    model, arrays = uneven(3, 5, 1.5)
    case = open_case(*for_target(model, arrays, PER_TENSOR))
    fitted, shown = list[set[int]](), list[set[int]]()
    work, pairs = apply_correction, InterventionRunner.pairs

    def correct(step: Step, quantized: Any, context: Any) -> Any:
        fitted.append({case.runner.indices.index(index) for index in context.samples.indices})
        return work(step, quantized, context)

    def measure(runner: Any, network: Any, places: Any = None, *, fused: bool = False) -> Any:
        shown.append(set(places))
        return pairs(runner, network, places, fused=fused)

    monkeypatch.setattr(repairable_model, "apply_correction", correct)
    monkeypatch.setattr(InterventionRunner, "pairs", measure)
    (_, loss), *_ = free_levers(case)
    assert loss.samples == 16
    # Of each half the equalized network is measured, then the corrected one; opening it runs all samples.
    halves = [each for each in shown if len(each) < 16]
    assert [each.isdisjoint(fitted[at // 2]) for at, each in enumerate(halves)] == [True] * 4
    assert fitted[0] | fitted[1] == set(range(16))


@pytest.mark.parametrize("factor", [0.1, 30.0])
def test_what_is_put_right_and_what_is_expected_agree_or_it_is_said_why(factor: float) -> None:
    quantized, samples = demo()
    tensor = [each.tensor for each in quantized.quantizers if each.kind == "activation"][4]
    found = diagnose_quantization(changed(quantized, tensor, scaled(factor)), samples)
    expected, cured = found.measures[0].after, float(str(found.verdict).split(" dB without")[0].split()[-1])
    assert expected >= cured - 0.1
    said = [each.result for each in found.checks if each.result.key == "diagnosis.levers_reach"]
    told = " ".join(" ".join(terminal_lines(found)).split())
    if expected - cured >= 0.5:
        assert f"{expected:.1f} dB" in str(said[0])
        assert f"{expected:.1f} expected by" in told
    else:
        assert f"{expected:.1f} expected)" in told or f"{expected:.1f} with the best ranges)" in told
