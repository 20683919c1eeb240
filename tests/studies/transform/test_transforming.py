"""Judging steps: what decides whether they are kept."""

import numpy as np
import pytest

from roundoff.quantize.pipeline import QuantizeSettings
from roundoff.quantize.targets.files import load_target
from roundoff.run.evaluators import Evaluator
from roundoff.studies.transform.study import Judge, try_steps
from tests.graph.transformer_nets import Form, feeds, transformer
from tests.quantize.transforms.nets import Net, samples_for, step
from tests.quantize.transforms.test_clamp_mask import Given


def classifier() -> Net:
    net = Net(11)
    net.add("Gemm", ["x", net.uneven("w0", 12, 6), net.normal("b0", 12)], "first", transB=1)
    net.add("Relu", ["first"], "act")
    net.add("Gemm", ["act", net.normal("w1", 12, 4)], "out")
    return net


def settings() -> QuantizeSettings:
    return QuantizeSettings(load_target("generic-int8-per-tensor"))


@pytest.mark.parametrize("wrong", [0, 1])
def test_chance_does_not_decide_but_the_outputs_do(wrong: int) -> None:
    """One answer more or less says nothing; a better signal-to-noise ratio does."""
    model = classifier().model({"x": (1, 6)}, ["out"])
    samples = samples_for(model, count=40)
    judge = Judge(samples, labels=np.full(40, wrong))
    trial = try_steps(model, samples, [step("equalize")], settings=settings(), judge=judge)
    before, after = trial.report.sqnr_db
    assert trial.report.score is not None
    assert abs(trial.report.score.after - trial.report.score.before) < 0.1
    assert trial.report.kept == (after >= before)


@pytest.mark.parametrize(("higher", "kept"), [(True, False), (False, True)])
def test_an_evaluator_decides(higher: bool, kept: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    calls: list[int] = []

    def evaluate(run: object, samples: object) -> float:
        calls.append(1)
        return -float(len(calls))

    model = classifier().model({"x": (1, 6)}, ["out"])
    samples = samples_for(model)
    path = tmp_path_factory.mktemp("eval") / "eval.py"
    judge = Judge(samples, evaluator=Evaluator("calls", higher, path, evaluate))
    trial = try_steps(model, samples, [step("equalize")], settings=settings(), judge=judge)
    assert trial.report.kept == kept
    untouched = (
        trial.quantized.float_model.proto.graph.initializer[0].raw_data
        == model.proto.graph.initializer[0].raw_data
    )
    assert untouched != kept


def test_what_quantizing_does_by_itself_is_judged_when_it_is_asked_for() -> None:
    """Masks are limited unasked; asked for, the network with them as they were is what comes before."""
    model = transformer(Form("where"))
    samples = Given(feeds(model, 8))
    trial = try_steps(model, samples, [step("clamp_mask")], settings=settings(), judge=Judge(samples))
    before, after = trial.report.sqnr_db
    assert [each.name for each in trial.report.steps] == ["clamp_mask"]
    assert trial.report.kept
    assert after > before + 3
