"""A diagnosis keeps the time that it is given, counted in runs of the network."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roundoff.core.progress import Deadline
from roundoff.diagnosis.culprits import rank
from roundoff.diagnosis.interventions import InterventionRunner
from roundoff.diagnosis.investigation import DiagnoseSettings
from roundoff.diagnosis.result import Diagnosis
from roundoff.diagnosis.study import diagnose_quantization
from roundoff.diagnosis.subject import open_case
from roundoff.graph.load import load_model, model_from_proto
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import values
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.targets.files import load_target
from roundoff.run.session import open_session
from roundoff.samples.sample_set import ArraySamples
from tests.diagnosis.deep import CHIP, deep_inputs, save_deep
from tests.models import conv_net


class Clock:
    """Ticks with every run of a network."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()

    def open_ticking(*args: Any, **options: Any) -> Any:
        session = open_session(*args, **options)
        run = session.run

        def ticking(*feed: Any, **more: Any) -> Any:
            found.now += 1
            return run(*feed, **more)

        monkeypatch.setattr(session, "run", ticking)
        return session

    monkeypatch.setattr("roundoff.run.bench.open_session", open_ticking)
    return found


def quantized(folder: Path, layers: int = 10) -> tuple[QuantizedModel, ArraySamples]:
    save_deep(folder / "deep.onnx", layers)
    (folder / "chip.toml").write_text(CHIP)
    samples = ArraySamples({"x": deep_inputs()})
    settings = QuantizeSettings(load_target(folder / "chip.toml"))
    return quantize_model(load_model(folder / "deep.onnx"), samples, settings).quantized, samples


def diagnosed(folder: Path, clock: Clock, seconds: float | None) -> Diagnosis:
    subject = quantized(folder)
    # Quantizing runs networks, too; the time of the diagnosis begins here.
    clock.now = 0.0
    settings = DiagnoseSettings(deadline=Deadline.after(seconds, clock=clock))
    return diagnose_quantization(*subject, settings)


@pytest.mark.parametrize("seconds", [1, 30, 100, 300, 1000])
def test_no_more_runs_than_there_is_time_for(tmp_path: Path, clock: Clock, seconds: float) -> None:
    found = diagnosed(tmp_path, clock, seconds)
    assert clock.now <= max(seconds + 8, 1.1 * seconds)
    assert found.not_looked_at or found.kind == "distributed"
    assert all("no time was left" in str(each) for each in found.not_looked_at)


def test_with_little_time_nobody_is_accused_and_what_was_left_out_is_told(tmp_path: Path, clock: Clock) -> None:
    found = diagnosed(tmp_path, clock, 40)
    assert found.kind == "not_enough_evidence"
    assert "in the time given" in str(found.verdict)
    assert found.not_looked_at
    assert 1 <= found.samples < 32


def test_with_all_the_time_everything_is_looked_at(tmp_path: Path, clock: Clock) -> None:
    found = diagnosed(tmp_path, clock, None)
    assert (found.kind, found.not_looked_at, found.samples) == ("distributed", (), 32)
    (finding,) = found.findings
    assert finding.cause == "accumulated-error"
    assert str(finding.intervention).startswith("with the 1, 3, ")
    golden, *others = finding.measures
    assert golden.after > golden.before
    worst = [each for each in others if "worst places in float" in str(each.what)]
    chance = [each for each in others if "at random" in str(each.what)]
    assert len(worst) == len(chance) == 3
    assert all(each.before == golden.before for each in others)


def test_many_places_are_ranked_with_few_runs_and_the_worst_is_found(tmp_path: Path) -> None:
    subject, samples = quantized(tmp_path, layers=40)
    case = open_case(subject, samples)
    suspects = case.facts.suspects
    assert len(suspects) > 64
    before = case.runner.runs
    found = rank(case, suspects, out_of_time=lambda: False)
    assert found is not None
    assert case.runner.runs - before < len(suspects)
    assert {each.name for each in found.places} <= {each.name for each in suspects}
    costs = [found.costs[each.name] for each in found.places]
    assert costs == sorted(costs, reverse=True)
    assert rank(case, suspects, out_of_time=lambda: True) is None


def test_a_small_budget_of_memory_keeps_fewer_samples() -> None:
    """A tenth of the budget is for inputs and float outputs: here three samples and one."""
    model = model_from_proto(conv_net(), path=Path("m.onnx"))
    samples = ArraySamples({"image": np.random.default_rng(3).normal(size=(20, 3, 8, 8)).astype(np.float32)})
    feed = samples.feed(0)
    everything = values(model, {name: each.shape for name, each in feed.items()})
    whole = InterventionRunner(model, samples, everything=everything)
    assert len(whole.indices) == 20
    exact, _ = next(whole.pairs(()))
    one = sum(each.nbytes for each in (*feed.values(), *exact.values()))
    some = InterventionRunner(model, samples, everything=everything, max_memory=10 * 3 * one)
    assert len(some.indices) == 4
