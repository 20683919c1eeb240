"""Estimates against closed forms and brute force."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from roundoff.analysis.sensitivity import SensitivitySettings, analyze_sensitivity
from roundoff.core.quantizer import Consumer, QuantSpec
from roundoff.core.sensitivity import Sensitivity, SubjectScore
from roundoff.core.tensors import Array
from roundoff.graph.load import load_model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.targets import load_target
from tests.analysis.sensitivity.support import NETWORKS, brute_force, make_feeds, network
from tests.analysis.sensitivity.test_closed_form import FIRST, INPUTS, SECOND, STEP, rounded, two_layers
from tests.models import loaded, value, weight, wrapped
from tests.quantized import Recipe, quantized_simply
from tests.runtime.samples import MemorySamples

BRANCHES = Path(__file__).resolve().parents[4] / "shared/models/repvgg_fmnist/repvgg_fmnist_train_branches.onnx"
FINE = Recipe(QuantSpec(16, signed=False, symmetric=False), QuantSpec(16, signed=True, symmetric=True))
# As many vectors as outputs have elements: nothing is left to chance.
EVERY = 1000


def scores_of(found: Sensitivity, engine: str) -> dict[str, SubjectScore]:
    scores = (row.score for rows in found.rankings.values() for row in rows)
    return {f"{each.subject.kind} {each.subject.name}": each for each in scores if each.engine == engine}


def estimates(quantized: QuantizedModel, samples: MemorySamples, **options: Any) -> dict[str, SubjectScore]:
    settings = SensitivitySettings(fast=True, top=1, arithmetic="plain", **options)
    return scores_of(analyze_sensitivity(quantized, samples, settings), "estimate")


def closed_form() -> dict[str, Array]:
    x, y = INPUTS[:, 0], INPUTS[:, 0] @ FIRST @ SECOND
    h = x @ FIRST
    return {
        "activation x_q": (rounded(x) - x) @ FIRST @ SECOND,
        "activation h_q": (rounded(h, 4 * STEP) - h) @ SECOND,
        "weight A_q": x @ (rounded(FIRST) - FIRST) @ SECOND,
        "weight B_q": h @ (rounded(SECOND) - SECOND),
        "node first": rounded(x) @ rounded(FIRST) @ SECOND - y,
        "node second": rounded(h, 4 * STEP) @ rounded(SECOND) - y,
        "group both": rounded(x) @ rounded(FIRST) @ SECOND - y + h @ (rounded(SECOND) - SECOND),
    }


def test_on_linear_networks_estimates_equal_the_closed_form(tmp_path: Path) -> None:
    quantized, samples = two_layers(tmp_path, INPUTS)
    metrics = ("mse", "sqnr_db", "rmse")
    groups = {"both": ("first", "B"), "other": ("x", "h")}
    found = estimates(quantized, samples, metrics=metrics, probes=3, groups=groups)
    errors, y = closed_form(), INPUTS[:, 0] @ FIRST @ SECOND
    assert len(found) == 4, "one of each kind is measured"
    for name, score in found.items():
        if name == "group other":
            continue
        power = (errors[name] ** 2).mean(axis=1)
        sqnr = 10 * np.log10((y**2).mean(axis=1) / power)
        expected = np.stack([power, sqnr, np.sqrt(power)], axis=1)
        np.testing.assert_allclose(score.values[:, 0], expected, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("probes", [1, 2])
def test_random_vectors_give_the_closed_form_on_average(probes: int, tmp_path: Path) -> None:
    quantized, samples = two_layers(tmp_path, np.repeat(INPUTS[:1], 900, axis=0))
    found = estimates(quantized, samples, metrics=("mse", "sqnr_db"), probes=probes, first_samples=900)
    errors, y = closed_form(), INPUTS[0, 0] @ FIRST @ SECOND
    for name, score in found.items():
        power = (errors[name][0] ** 2).mean()
        expected = power, 10 * np.log10((y**2).mean() / power)
        for place, truth in enumerate(expected):
            values = score.values[:, 0, place]
            error = values.std(ddof=1) / np.sqrt(values.size)
            assert error > 0
            assert abs(values.mean() - truth) < 4 * error, name


@pytest.mark.parametrize("name", NETWORKS)
def test_small_errors_are_what_a_rebuilt_model_shows(name: str, tmp_path: Path) -> None:
    build, shapes = NETWORKS[name]
    feeds = make_feeds(shapes, 5)
    quantized = quantized_simply(loaded(build(), tmp_path), feeds, FINE)
    found = estimates(quantized, MemorySamples(feeds), metrics=("mse",), probes=EVERY)
    assert len(found) > 2
    for score in found.values():
        truth = brute_force(quantized, feeds, score.subject, ("mse",))
        if len(score.subject.quantizers) == 1:
            # What is this small is rounding of the run itself.
            np.testing.assert_allclose(score.values, truth, rtol=0.05, atol=1e-12, err_msg=score.subject.name)
        else:
            # One quantizer may round what another has changed: other errors, but as large.
            np.testing.assert_allclose(score.values.mean(), truth.mean(), rtol=0.5, err_msg=score.subject.name)


def test_inner_tensors_can_be_compared(tmp_path: Path) -> None:
    build, shapes = NETWORKS["skips and outputs"]
    feeds = make_feeds(shapes, 4)
    quantized = quantized_simply(loaded(build(), tmp_path), feeds, FINE)
    found = estimates(
        quantized, MemorySamples(feeds), metrics=("mse",), probes=EVERY, outputs=("mix", "c"), nodes=("stem", "w")
    )
    assert found
    for score in found.values():
        truth = brute_force(quantized, feeds, score.subject, ("mse",), wanted=("mixed", "c"))
        np.testing.assert_allclose(score.values, truth, rtol=0.05, err_msg=score.subject.name)


def test_cosines_are_estimated_when_they_rank(tmp_path: Path) -> None:
    quantized, samples = network("attention", tmp_path, samples=12)
    found = estimates(quantized, samples, metrics=("cosine", "sqnr_db"), probes=20)
    for score in found.values():
        truth = brute_force(quantized, samples.feeds, score.subject, ("cosine",))
        losses = 1 - score.values[..., 0].mean(), 1 - truth.mean()
        assert losses[0] == pytest.approx(losses[1], rel=0.4), score.subject.name
    without = estimates(quantized, samples, metrics=("sqnr_db", "cosine"))
    assert all(np.isnan(score.values[..., 1]).all() for score in without.values())


def test_constants_that_are_computed_from_quantized_ones_are_computed_anew(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["w"], ["turned"], name="turn", perm=[1, 0]),
        helper.make_node("Mul", ["turned", "gain"], ["scaled"], name="scale"),
        helper.make_node("MatMul", ["x", "scaled"], ["h"], name="product"),
        helper.make_node("Tanh", ["h"], ["y"], name="bend"),
    ]
    gain = numpy_helper.from_array(np.full(3, 1.7, np.float32), "gain")
    model = loaded(wrapped(nodes, [value("x", ("N", 5))], [value("y", None)], [weight("w", 3, 5), gain]), tmp_path)
    feeds = make_feeds({"x": (1, 5)}, 6)
    quantized = quantized_simply(model, feeds)
    on_weight = next(each for each in quantized.quantizers if each.tensor == "x")
    weights = replace(
        on_weight,
        name="q:w",
        tensor="w",
        kind="weight",
        spec=QuantSpec(16, signed=True, symmetric=True),
        params=replace(on_weight.params, scale=np.full((), 0.004, np.float32), zero_point=np.asarray(0)),
        consumers=(Consumer("turn", 0),),
    )
    quantized = replace(quantized, quantizers=(*quantized.quantizers, weights))
    found = estimates(
        quantized, MemorySamples(feeds), metrics=("mse",), probes=EVERY, kinds=("node",), nodes=("turn", "bend")
    )
    score = found["node turn"]
    truth = brute_force(quantized, feeds, score.subject, ("mse",))
    assert truth.min() > 0
    np.testing.assert_allclose(score.values, truth, rtol=0.1)


def rank_correlation(left: Sensitivity, right: Sensitivity, kind: str) -> float:
    orders = [{row.score.subject.name: row.rank for row in found.rankings[kind]} for found in (left, right)]  # type: ignore[index]
    names = list(orders[0])
    return float(np.corrcoef([[order[name] for name in names] for order in orders])[0, 1])


@pytest.mark.parametrize("kind", ["node", "activation"])
def test_transformers_are_ranked_as_by_measuring(kind: str, tmp_path: Path) -> None:
    quantized, samples = network("attention", tmp_path, samples=24)
    settings = SensitivitySettings(kinds=(kind,), metrics=("sqnr_db",))  # type: ignore[arg-type]
    fast = analyze_sensitivity(quantized, samples, replace(settings, fast=True, top=2))
    exact = analyze_sensitivity(quantized, samples, replace(settings, exact=True))
    assert fast.effort.estimated > 5
    assert rank_correlation(fast, exact, kind) > 0.9


@pytest.mark.skipif(not BRANCHES.exists(), reason="no real models beside this checkout")
@pytest.mark.parametrize("kind", ["node", "weight", "activation"])
def test_a_real_network_with_branches_is_ranked_as_by_measuring(kind: str) -> None:
    model = load_model(BRANCHES)
    rng = np.random.default_rng(0)
    samples = MemorySamples([{"data": rng.random((1, 1, 28, 28), np.float32)} for _ in range(24)])
    settings = QuantizeSettings(load_target("generic-int8-per-tensor"))
    quantized = quantize_model(model, samples, settings).quantized
    wanted = SensitivitySettings(kinds=(kind,), metrics=("sqnr_db",))  # type: ignore[arg-type]
    fast = analyze_sensitivity(quantized, samples, replace(wanted, fast=True))
    exact = analyze_sensitivity(quantized, samples, replace(wanted, exact=True))
    assert fast.effort.estimated == len(fast.rankings[kind]) - 10  # type: ignore[index]
    assert rank_correlation(fast, exact, kind) > 0.9
