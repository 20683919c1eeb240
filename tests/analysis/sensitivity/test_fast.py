"""Fast analyses: what is estimated, what is measured, and what is said of it."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from roundoff.analysis.sensitivity import SensitivitySettings, analyze_sensitivity
from roundoff.analysis.sensitivity.prober import CannotProbe, Prober
from roundoff.core.sensitivity import Sensitivity, SubjectScore
from roundoff.errors import BadInput
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.runtime.session import Session
from tests.analysis.sensitivity.support import make_feeds, network
from tests.analysis.sensitivity.test_analyze import Recorder, flat, interrupting
from tests.analysis.sensitivity.test_exact import counted, scores_of
from tests.models import loaded, value, weight, wrapped
from tests.quantized import quantized_simply, with_scale_times
from tests.runtime.samples import MemorySamples

SETTINGS = SensitivitySettings(metrics=("sqnr_db", "chebyshev"), first_samples=4, top=2, blocks=4, fast=True)
Net = tuple[QuantizedModel, MemorySamples]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Net:
    return network("residual", tmp_path_factory.mktemp("net"), samples=12)


def noted(found: Sensitivity, text: str) -> str:
    return next(note for note in found.notes if text in note)


def test_leaders_are_measured_and_the_rest_is_estimated(net: Net) -> None:
    found = analyze_sensitivity(*net, SETTINGS)
    exact = analyze_sensitivity(*net, replace(SETTINGS, fast=False, exact=True))
    assert found.complete
    assert found.effort.first_samples == 4
    assert found.effort.estimated == 3
    truth = {score.subject: score for score in scores_of(exact)}
    for rows in found.rankings.values():
        assert [row.score.engine for row in rows] == ["exact"] * 2 + ["estimate"] * (len(rows) - 2)
        assert {row.score.samples for row in rows} == {(0, 4, 7, 11)}
        for row in rows[:2]:
            expected = truth[row.score.subject].values[list(row.score.samples)]
            np.testing.assert_allclose(row.score.values, expected, rtol=1e-3)
        means = [row.score.mean["sqnr_db"] for row in rows]
        assert means[:2] == sorted(means[:2])
        assert means[2:] == sorted(means[2:])
        assert all(row.score.interval["sqnr_db"] is not None for row in rows)
        assert all(math.isnan(row.score.mean["chebyshev"]) for row in rows[2:])
        assert all(row.differs_from_next is not None for row in rows[:-1])
    assert noted(found, "only known of what was measured").endswith("measured: chebyshev")
    assert "checked by measuring: off by" in noted(found, "estimates checked")


def test_the_cost_does_not_depend_on_how_many_are_estimated(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    monkeypatch.setattr(Session, "run", counted(Session.run, runs))
    counts = []
    monkeypatch.setattr("roundoff.analysis.sensitivity.fast.FastStages._verify", lambda *_: 99)
    for nodes in (("body",), ("*",)):
        before = len(runs)
        analyze_sensitivity(*net, replace(SETTINGS, nodes=nodes, blocks=1))
        counts.append(len(runs) - before)
    assert counts[0] == counts[1] > 0


def with_sort(folder: Path) -> Net:
    """A network in which a node without a rule, and one that works in steps, are on the way of some."""
    nodes = [
        helper.make_node("MatMul", ["x", "u"], ["a"], name="first"),
        helper.make_node("Det", ["cube"], ["d"], name="det"),
        helper.make_node("Reshape", ["a", "shape"], ["cube"], name="fold"),
        helper.make_node("MatMul", ["x", "v"], ["b"], name="other"),
        helper.make_node("Round", ["b"], ["c"], name="round"),
        helper.make_node("Tanh", ["x"], ["t"], name="smooth"),
        helper.make_node("Add", ["t", "c"], ["e"], name="join"),
        helper.make_node("Add", ["e", "d"], ["y"], name="last"),
    ]
    nodes = [nodes[0], nodes[2], nodes[1], *nodes[3:]]
    shape = numpy_helper.from_array(np.array([-1, 1, 2, 2], np.int64), "shape")
    weights = [weight("u", 4, 4), weight("v", 4, 4, seed=1), shape]
    model = loaded(wrapped(nodes, [value("x", ("N", 4))], [value("y", None)], weights), folder)
    feeds = make_feeds({"x": (1, 4)}, 6)
    return quantized_simply(model, feeds), MemorySamples(feeds)


def test_what_cannot_be_estimated_is_measured_and_named(tmp_path: Path) -> None:
    quantized, samples = with_sort(tmp_path)
    settings = replace(SETTINGS, kinds=("node", "weight"), top=1)
    found = analyze_sensitivity(quantized, samples, settings)
    engines = {score.subject.name: score.engine for score in scores_of(found)}
    without = noted(found, "Det 'det'")
    assert without.startswith("measured, not estimated, as Det 'det': this operation has no rule: first, fold")
    assert noted(found, "works in steps").endswith("Round 'round' works in steps: q:other:weight")
    assert engines["first"] == engines["fold"] == engines["q:other:weight"] == "exact"
    # What the node without a rule itself makes of its inputs is known.
    assert engines["det"] == "estimate"
    exact = analyze_sensitivity(quantized, samples, replace(settings, fast=False, exact=True))
    truth = {score.subject: score.values for score in scores_of(exact)}
    for score in scores_of(found):
        if score.engine == "exact":
            expected = truth[score.subject][list(score.samples)]
            np.testing.assert_allclose(score.values, expected, rtol=1e-3, err_msg=score.subject.name)


def test_without_a_graph_that_runs_everything_is_measured(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*_: Any, **__: Any) -> None:
        raise CannotProbe("it is Tuesday")

    monkeypatch.setattr(Prober, "__init__", refusing)
    found = analyze_sensitivity(*net, SETTINGS)
    assert found.complete
    assert found.effort.estimated == 0
    assert "as it is Tuesday" in noted(found, "measured, not estimated")
    usual = analyze_sensitivity(*net, replace(SETTINGS, fast=False))
    assert [row.score.subject for row in found.rankings["node"]] == [
        row.score.subject for row in usual.rankings["node"]
    ]


def test_large_errors_are_measured(net: Net) -> None:
    quantized, samples = net
    broken = with_scale_times(quantized, ["a"], 60.0)
    found = analyze_sensitivity(broken, samples, replace(SETTINGS, kinds=("activation",), top=1))
    note = noted(found, "too large where they begin")
    assert "q:a" in note
    assert found.rankings["activation"][0].score.subject.tensor == "a"


def test_wrong_estimates_are_called_wrong(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    def tampered(run: Callable[..., Any]) -> Callable[..., Any]:
        def ten_times(*args: Any, **options: Any) -> Any:
            return 10 * run(*args, **options)

        return ten_times

    monkeypatch.setattr(Prober, "_products", tampered(Prober._products))
    found = analyze_sensitivity(*net, SETTINGS)
    assert "leave out --fast" in noted(found, "estimates are wrong for")


def test_saturated_outputs_are_measured(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Clip", ["a", "", "low"], ["b"], name="wall"),
        helper.make_node("Identity", ["b"], ["y"], name="last"),
    ]
    low = numpy_helper.from_array(np.float32(-100), "low")
    model = loaded(wrapped(nodes, [value("x", ("N", 4))], [value("y", None)], [weight("w", 4, 4), low]), tmp_path)
    feeds = make_feeds({"x": (1, 4)}, 6)
    found = analyze_sensitivity(
        quantized_simply(model, feeds), MemorySamples(feeds), replace(SETTINGS, kinds=("weight",))
    )
    assert "first" in noted(found, "no gradient comes back")
    assert scores_of(found)[0].engine == "exact"


def test_an_interrupted_analysis_keeps_its_estimates(net: Net) -> None:
    found = analyze_sensitivity(*net, SETTINGS, on_result=interrupting(3))
    assert not found.complete
    assert found.effort.measured == found.effort.estimated == 3
    count = found.effort.planned
    late = analyze_sensitivity(*net, SETTINGS, on_result=interrupting(count + count + 1))
    assert late.effort.measured == count
    assert late.effort.estimated == count - 1
    assert "interrupted after" in late.notes[-1]


def test_what_is_estimated_is_remembered(net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = tmp_path / "journal"
    settings = replace(SETTINGS, metrics=("sqnr_db",))
    first = analyze_sensitivity(*net, settings, journal=journal)
    monkeypatch.setattr(Prober, "run", interrupting(1))
    again = analyze_sensitivity(*net, settings, journal=journal)
    assert flat(again) == flat(first)
    assert again.effort.resumed == first.effort.planned
    assert first.effort.resumed == 0


def test_other_vectors_are_not_remembered(net: Net, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    settings = replace(SETTINGS, probes=2)
    first = analyze_sensitivity(*net, settings, journal=journal)
    other = analyze_sensitivity(*net, replace(settings, seed=1), journal=journal)
    one, two = (
        {score.subject: score.mean["sqnr_db"] for score in scores_of(found) if score.engine == "estimate"}
        for found in (first, other)
    )
    assert one != two


def test_time_ends_it_with_estimates(net: Net) -> None:
    found = analyze_sensitivity(*net, replace(SETTINGS, budget_s=1e-6, first_samples=12))
    assert not found.complete
    assert {score.engine for score in scores_of(found)} == {"estimate"}
    assert noted(found, "to stay within the time")


def test_progress_is_told(net: Net) -> None:
    progress = Recorder()
    seen: list[SubjectScore] = []
    analyze_sensitivity(*net, SETTINGS, progress=progress, on_result=seen.append)
    assert [title for title, _, _ in progress.jobs] == [
        "estimating all", "running the model", "measuring the leading ones",
    ]  # fmt: skip
    assert all(total == done for _, total, done in progress.jobs)
    assert {score.engine for score in seen} == {"estimate", "exact"}


@pytest.mark.parametrize("count", [1, 3, 5])
def test_how_samples_are_put_together_changes_nothing(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantized, samples = network("attention", tmp_path, samples=7)
    settings = replace(SETTINGS, first_samples=7, metrics=("sqnr_db",), arithmetic="plain")
    usual = analyze_sensitivity(quantized, samples, settings)
    monkeypatch.setattr("roundoff.analysis.sensitivity.estimate.Estimator._batch", lambda *_: count)
    other = analyze_sensitivity(quantized, samples, settings)
    left, right = ({score.subject: score.values for score in scores_of(found)} for found in (usual, other))
    for subject, values in left.items():
        np.testing.assert_allclose(values, right[subject], rtol=1e-4, err_msg=subject.name)


def test_samples_that_lie_along_another_axis_are_kept_apart(tmp_path: Path) -> None:
    # Steps first, samples second, as some recurrent and attention layers have it; then both in one axis.
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"], name="turn", perm=[1, 0, 2]),
        helper.make_node("MatMul", ["turned", "w"], ["a"], name="inner"),
        helper.make_node("Transpose", ["a"], ["b"], name="back", perm=[1, 0, 2]),
        helper.make_node("Reshape", ["b", "rows"], ["c"], name="fold"),
        helper.make_node("MatMul", ["c", "v"], ["d"], name="outer"),
        helper.make_node("Reshape", ["d", "cube"], ["y"], name="unfold"),
    ]
    held = [
        numpy_helper.from_array(np.array(shape, np.int64), name)
        for name, shape in (("rows", [-1, 4]), ("cube", [-1, 3, 4]))
    ]
    held += [weight("w", 4, 4), weight("v", 4, 4, seed=1)]
    model = loaded(wrapped(nodes, [value("x", ("N", 3, 4))], [value("y", None)], held), tmp_path)
    feeds = make_feeds({"x": (1, 3, 4)}, 6)
    quantized = quantized_simply(model, feeds)
    settings = replace(SETTINGS, first_samples=6, metrics=("mse",), probes=12, kinds=("weight",), top=1)
    found = analyze_sensitivity(quantized, MemorySamples(feeds), settings)
    exact = analyze_sensitivity(quantized, MemorySamples(feeds), replace(settings, fast=False, exact=True))
    truth = {score.subject: score.values for score in scores_of(exact)}
    estimates = [score for score in scores_of(found) if score.engine == "estimate"]
    assert estimates
    for score in estimates:
        # Everything is linear, and every element is looked at.
        np.testing.assert_allclose(score.values, truth[score.subject], rtol=1e-3)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"mode": "left_out"}, "--leave-one-out has no estimate"),
        ({"exact": True}, "either exact or fast"),
        ({"metrics": ("chebyshev", "sqnr_db")}, "'chebyshev' cannot be estimated"),
        ({"probes": 0}, "0 probes see nothing"),
    ],
)
def test_what_has_no_estimate_is_refused(net: Net, change: dict[str, Any], what: str) -> None:
    with pytest.raises(BadInput, match=what):
        analyze_sensitivity(*net, replace(SETTINGS, **change))
