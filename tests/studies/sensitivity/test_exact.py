"""The engine against brute force, on networks of all shapes, however they are cut."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from onnx import helper
from onnx.numpy_helper import from_array, to_array

from roundoff.core.quantizers import QuantParams, fake_quantize
from roundoff.run.session import Session
from roundoff.studies.sensitivity.ranking import SensitivitySettings
from roundoff.studies.sensitivity.result import Mode, Sensitivity, SubjectScore
from roundoff.studies.sensitivity.study import analyze_sensitivity
from tests.models import loaded, value, wrapped
from tests.quantized import quantized_simply
from tests.run.samples import MemorySamples
from tests.studies.sensitivity.support import NETWORKS, brute_force, make_feeds, network

METRICS = ("sqnr_db", "cosine", "mse", "mean_relative_error", "chebyshev")


def scores_of(found: Sensitivity) -> list[SubjectScore]:
    return [row.score for rows in found.rankings.values() for row in rows]


def counted(run: Callable[..., Any], calls: list[int]) -> Callable[..., Any]:
    """The same function, adding to a list each time."""

    def counting(*args: Any, **options: Any) -> Any:
        calls.append(1)
        return run(*args, **options)

    return counting


@pytest.mark.parametrize("blocks", [1, 3, 9])
@pytest.mark.parametrize("name", NETWORKS)
def test_scores_are_those_of_a_rebuilt_model(name: str, blocks: int, tmp_path: Path) -> None:
    quantized, samples = network(name, tmp_path)
    settings = SensitivitySettings(metrics=METRICS, arithmetic="plain", blocks=blocks)
    found = analyze_sensitivity(quantized, samples, settings)
    assert found.effort.arithmetic == "plain"
    assert len(scores_of(found)) > 3
    for each in scores_of(found):
        truth = brute_force(quantized, samples.feeds, each.subject, METRICS)
        np.testing.assert_allclose(each.values, truth, rtol=1e-9, atol=0, err_msg=each.subject.name)


@pytest.mark.parametrize("name", NETWORKS)
def test_leaving_one_out_is_a_rebuilt_model_without_it(name: str, tmp_path: Path) -> None:
    quantized, samples = network(name, tmp_path)
    settings = SensitivitySettings(metrics=METRICS, arithmetic="plain", blocks=4, mode="left_out")
    found = analyze_sensitivity(quantized, samples, settings)
    for each in scores_of(found):
        truth = brute_force(quantized, samples.feeds, each.subject, METRICS, left_out=True)
        np.testing.assert_allclose(each.values, truth, rtol=1e-9, atol=0, err_msg=each.subject.name)
    assert found.quantized is not None
    truth = brute_force(quantized, samples.feeds, found.quantized.subject, METRICS, left_out=True)
    np.testing.assert_allclose(found.quantized.values, truth, rtol=1e-9)


@pytest.mark.parametrize("name", NETWORKS)
def test_fused_kernels_agree_with_what_a_user_would_build(name: str, tmp_path: Path) -> None:
    quantized, samples = network(name, tmp_path)
    found = analyze_sensitivity(quantized, samples, SensitivitySettings(metrics=("sqnr_db", "cosine"), blocks=4))
    for each in scores_of(found):
        truth = brute_force(quantized, samples.feeds, each.subject, ("sqnr_db", "cosine"), baked=False)
        np.testing.assert_allclose(each.values[..., 0], truth[..., 0], atol=0.02, err_msg=each.subject.name)
        np.testing.assert_allclose(each.values[..., 1], truth[..., 1], atol=1e-6)


@pytest.mark.parametrize("name", NETWORKS)
def test_an_exact_analysis_rounds_as_the_graph_does(name: str, tmp_path: Path) -> None:
    quantized, samples = network(name, tmp_path)
    settings = SensitivitySettings(metrics=("sqnr_db", "cosine"), blocks=4, exact=True)
    found = analyze_sensitivity(quantized, samples, settings)
    assert found.effort.arithmetic == "precise"
    for each in scores_of(found):
        truth = brute_force(quantized, samples.feeds, each.subject, ("sqnr_db", "cosine"), baked=False)
        np.testing.assert_allclose(each.values[..., 0], truth[..., 0], atol=0.005, err_msg=each.subject.name)
        np.testing.assert_allclose(each.values[..., 1], truth[..., 1], atol=1e-8)


def test_errors_near_rounding_are_measured_without_fused_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantized, samples = network("residual", tmp_path)
    settings = SensitivitySettings(metrics=("mse",), blocks=2, exact=True)
    distant = analyze_sensitivity(quantized, samples, settings)
    for module in ("exact", "study"):
        monkeypatch.setattr(f"roundoff.studies.sensitivity.{module}.NOISE_MARGIN_DB", 120.0)
    near = analyze_sensitivity(quantized, samples, settings)
    truths = [brute_force(quantized, samples.feeds, each.subject, ("mse",)) for each in scores_of(near)]
    for each, truth in zip(scores_of(near), truths, strict=True):
        np.testing.assert_allclose(each.values, truth, rtol=1e-9, err_msg=each.subject.name)
    assert any(
        not np.allclose(each.values, truth, rtol=1e-9, atol=0)
        for each, truth in zip(scores_of(distant), truths, strict=True)
    )
    fast = analyze_sensitivity(quantized, samples, replace(settings, metrics=("sqnr_db",), arithmetic="fast"))
    assert "contain rounding of fused kernels" in str(fast.notes[-1])


def test_outputs_may_be_inner_tensors_or_nodes(tmp_path: Path) -> None:
    quantized, samples = network("skips and outputs", tmp_path)
    settings = SensitivitySettings(outputs=("mix", "c"), metrics=("mse",), arithmetic="plain", blocks=3)
    found = analyze_sensitivity(quantized, samples, settings)
    assert found.outputs == ("mixed", "c")
    for each in scores_of(found):
        truth = brute_force(quantized, samples.feeds, each.subject, ("mse",), wanted=("mixed", "c"))
        np.testing.assert_allclose(each.values, truth, rtol=1e-9, err_msg=each.subject.name)
    # What comes after the compared tensors is not ranked, but for "skip", which shares a quantizer with "again".
    assert {subject.name for subject in found.unreached if subject.kind == "node"} == {
        "size", "late", "keep_shape", "pool", "twice",
    }  # fmt: skip
    assert "no compared output depends on" in str(found.notes[-1])


def test_groups_act_in_several_blocks(tmp_path: Path) -> None:
    quantized, samples = network("skips and outputs", tmp_path)
    groups = {"ends": ("stem", "late", "q:twice"), "all": ("*",)}
    settings = SensitivitySettings(kinds=(), groups=groups, metrics=METRICS, arithmetic="plain", blocks=6)
    found = analyze_sensitivity(quantized, samples, settings)
    assert {row.score.subject.name for row in found.rankings["group"]} == {"ends", "all"}
    for each in scores_of(found):
        truth = brute_force(quantized, samples.feeds, each.subject, METRICS)
        np.testing.assert_allclose(each.values, truth, rtol=1e-9, err_msg=each.subject.name)


def test_a_quantizer_that_follows_another_quantizes_what_that_left(tmp_path: Path) -> None:
    quantized, samples = network("residual", tmp_path)
    first = next(each for each in quantized.quantizers if each.tensor == "a")
    body, skip = first.consumers
    coarse = QuantParams(first.params.scale * np.float32(7.3), first.params.zero_point)
    chain = (
        replace(first, consumers=(body,)),
        replace(first, name="again", params=coarse, consumers=(skip,), after=first.name),
    )
    others = [each for each in quantized.quantizers if each is not first]
    quantized = replace(quantized, quantizers=(*others, *chain))
    for mode in get_args(Mode):
        settings = SensitivitySettings(
            kinds=("activation", "node"), mode=mode, metrics=METRICS, arithmetic="plain", blocks=4
        )  # fmt: skip
        for each in scores_of(analyze_sensitivity(quantized, samples, settings)):
            truth = brute_force(quantized, samples.feeds, each.subject, METRICS, left_out=mode == "left_out")
            np.testing.assert_allclose(each.values, truth, rtol=1e-9, err_msg=each.subject.name)


def test_what_changes_nothing_is_perfect(tmp_path: Path) -> None:
    quantized, samples = network("chain", tmp_path)
    model = quantized.float_model
    for tensor in model.proto.graph.initializer:
        if tensor.name == "w2":
            held = next(each for each in quantized.quantizers if each.tensor == "w2")
            tensor.CopyFrom(from_array(fake_quantize(to_array(tensor), held.params, held.spec), "w2"))
    found = analyze_sensitivity(quantized, samples, SensitivitySettings(kinds=("weight",), blocks=3))
    last = found.rankings["weight"][-1].score
    assert last.subject.tensor == "w2"
    assert last.mean == {
        "sqnr_db": np.inf, "cosine": 1.0, "mse": 0.0, "mean_relative_error": 0.0, "chebyshev": 0.0,
    }  # fmt: skip
    assert last.interval["sqnr_db"] is None


def test_a_run_stops_where_a_change_has_vanished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], name="first"),
        # Whatever comes in between, nothing of it comes out.
        helper.make_node("Clip", ["a", "zero", "zero"], ["b"], name="wall"),
        helper.make_node("Exp", ["b"], ["c"], name="middle"),
        helper.make_node("Neg", ["c"], ["y"], name="last"),
    ]
    zero = from_array(np.float32(0), "zero")
    model = loaded(wrapped(nodes, [value("x", (1, 4))], [value("y")], [zero]), tmp_path)
    samples = MemorySamples(make_feeds({"x": (1, 4)}, 3))
    quantized = quantized_simply(model, samples.feeds)
    runs: list[int] = []
    monkeypatch.setattr(Session, "run", counted(Session.run, runs))
    settings = SensitivitySettings(
        kinds=("activation",), nodes=("first",), blocks=4, arithmetic="plain", threads=1
    )
    found = analyze_sensitivity(quantized, samples, settings)
    assert found.effort.blocks == 4
    assert found.rankings["activation"][0].score.mean["sqnr_db"] == np.inf
    before = len(runs)
    # The last block ran for the base and the trials only: the wall is in the second.
    found = analyze_sensitivity(quantized, samples, replace(settings, nodes=("last",)))
    assert len(runs) - before == before - 1
