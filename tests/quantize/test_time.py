"""Quantizing keeps the time that is given: fewer samples, spread over all, and nothing good is said then."""

import itertools
from pathlib import Path

import numpy as np
import pytest

import roundoff
from roundoff.core.progress import NO_DEADLINE, Deadline
from roundoff.diagnosis.investigation import DiagnoseSettings
from roundoff.diagnosis.study import diagnose_quantization
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.messages.catalogue import use_language
from roundoff.messages.message import shown
from roundoff.quantize.agreement import judge_outputs
from roundoff.quantize.calibration.calibration import Calibration, calibrate
from roundoff.quantize.calibration.files import load_calibration, save_calibration
from roundoff.quantize.pipeline import Quantization, QuantizeSettings, quantize_model
from roundoff.quantize.targets.files import load_target
from roundoff.run.bench import spread_first
from roundoff.samples.sample_set import ArraySamples
from roundoff.search.tune import TuneData, TuneSettings, tune
from tests.models import conv_net, loaded

IMAGES = np.random.default_rng(5).standard_normal((40, 3, 8, 8)).astype(np.float32)
# Samples that reach further the later they are: which were seen shows in every range.
IMAGES *= np.linspace(1, 3, 40, dtype=np.float32).reshape(-1, 1, 1, 1)


def samples() -> ArraySamples:
    return ArraySamples({"image": IMAGES})


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return loaded(conv_net(), tmp_path)


def asked(times: float) -> Deadline:
    """A deadline that allows so many questions: its clock ticks with every look at it."""
    return Deadline.after(times, clock=itertools.count().__next__)


def observed(model: Model, deadline: Deadline) -> Calibration:
    return calibrate(model, samples(), {"image": None, "logits": None}, detail="range", deadline=deadline)


@pytest.mark.parametrize("count", [1, 2, 7, 39])
def test_ranges_are_those_of_the_samples_there_was_time_for(model: Model, count: int) -> None:
    seen = observed(model, asked(count))
    assert (seen.samples, seen.left_out) == (count, 40 - count)
    own = IMAGES[list(spread_first(40)[:count])]
    assert seen.observations["image"].low.item() == own.min()
    assert seen.observations["image"].high.item() == own.max()
    told = f"ranges rest on {count} of 40 samples, evenly spaced: time ran out"
    assert str(seen.notes[0 if count > 1 else 1]) == told or str(seen.notes[0]) == told


def test_with_time_for_all_of_them_the_ranges_are_the_same(model: Model) -> None:
    whole, timed = observed(model, NO_DEADLINE), observed(model, asked(1000))
    assert timed.left_out == whole.left_out == 0
    for name, each in whole.observations.items():
        np.testing.assert_array_equal(each.low, timed.observations[name].low)
        np.testing.assert_array_equal(each.high, timed.observations[name].high)


def test_a_file_keeps_how_many_samples_were_left_out(model: Model, tmp_path: Path) -> None:
    some = observed(model, asked(3))
    save_calibration(some, tmp_path / "some.npz")
    assert load_calibration(tmp_path / "some.npz").left_out == 37
    assert some.merge(some).left_out == 74


@pytest.mark.parametrize("heavy", [False, True])
def test_the_judge_stops_whichever_way_networks_are_run(
    model: Model, monkeypatch: pytest.MonkeyPatch, *, heavy: bool
) -> None:
    monkeypatch.setattr("roundoff.run.bench.HEAVY_BYTES", 0 if heavy else 1 << 40)
    network = switch_on(model, quantized(model, NO_DEADLINE).quantized.quantizers)
    found = judge_outputs(model, network, samples(), deadline=asked(8)).judgement
    seen = found.coverage.samples
    assert seen is not None
    # Of networks that run one after the other the first one may take half of the time: it asks at 2, 3, 4 and 5,
    # where 4.5 is half of what was left at 1, and the second one at 6, 7 and 8.
    assert seen.judged == (3 if heavy else 8)
    assert [(each.why, each.count) for each in seen.left_out] == [("time", 40 - seen.judged)]
    assert "time" in [each.kind for each in found.doubts]
    assert not found.good


def test_one_sample_for_want_of_time_asks_for_no_more_samples(model: Model) -> None:
    network = switch_on(model, quantized(model, NO_DEADLINE).quantized.quantizers)
    found = judge_outputs(model, network, samples(), deadline=asked(0)).judgement
    assert [each.kind for each in found.doubts] == ["time"]


def quantized(model: Model, deadline: Deadline) -> Quantization:
    return quantize_model(model, samples(), QuantizeSettings(load_target("generic-int8")), deadline=deadline)


def test_without_a_deadline_nothing_is_left_out(model: Model) -> None:
    found = quantized(model, NO_DEADLINE)
    assert (found.skipped, found.calibration.left_out, found.builder.hurried) == ((), 0, False)
    assert found.check is not None
    assert found.judgement is not None
    assert not found.judgement.doubts


def test_what_is_optional_is_skipped_and_said(model: Model) -> None:
    found = quantized(model, asked(30))
    count = found.calibration.samples
    assert 1 <= count < 30
    assert found.check is None
    assert [str(each) for each in found.skipped] == [
        f"calibration on the other {40 - count} of 40 samples",
        "whether the prepared model computes the same",
        "remarks on samples, sums and levels",
    ]
    with use_language("zh"):
        assert shown(found.skipped[0]).startswith(f"对其余 {40 - count} 个样本")
    assert any(f"rest on {count} of 40" in str(each) for each in found.notes)
    assert found.judgement is not None
    assert "time" in [each.kind for each in found.judgement.doubts]
    assert not found.judgement.good


def test_ranges_of_few_samples_accuse_nobody_and_are_never_good(model: Model) -> None:
    made = quantized(model, asked(30))
    assert made.calibration.too_few
    settings = DiagnoseSettings(judged=made.judgement, skipped=made.skipped, few_ranges=True)
    found = diagnose_quantization(made.quantized, samples(), settings)
    assert found.kind == "not_enough_evidence"
    assert not [each for each in found.findings if each.proven]
    assert str(found.not_looked_at[0]).startswith("calibration on")


def test_a_time_that_is_over_at_once_leaves_one_sample(model: Model) -> None:
    found = roundoff.diagnose(model.path, target="generic-int8", data=IMAGES, time=1e-9)
    assert found.exit_code == 1
    assert found.result.kind == "not_enough_evidence"
    assert "calibration on the other 39 of 40 samples: no time was left" in str(found.result.not_looked_at[0])
    assert found.result.judgement is not None
    assert "time" in [each.kind for each in found.result.judgement.doubts]


def test_a_search_on_ranges_that_were_cut_short_is_in_doubt(model: Model) -> None:
    # One look when ranges begin to be found, all others later: after half of the time, not after all of it.
    looks = itertools.chain([0.0], itertools.repeat(6.0))
    deadline = Deadline(10.0, looks.__next__, 10.0)
    settings = TuneSettings(load_target("generic-int8"), deadline=deadline, max_trials=1, holdout=0.0)
    found = tune(model, TuneData(samples(), samples()), settings).tuning
    assert found.stopped.key != "search.ended_time"
    assert "time" in [each.kind for each in found.doubts]
    assert not found.good
