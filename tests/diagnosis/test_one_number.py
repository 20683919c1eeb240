"""A metric of one number for all samples, such as a rank correlation: what it is asked, its chance, its repair."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from roundoff.cli import main
from roundoff.core.tensors import Array
from roundoff.diagnosis.investigation import DiagnoseSettings, TaskMetric, evaluator_metric
from roundoff.diagnosis.page import _repair_word
from roundoff.diagnosis.repair import (
    Fixed,
    RepairJudge,
    RepairSamples,
    RepairSource,
    SampleScores,
    better_of,
    judge_repair,
)
from roundoff.diagnosis.result import CostClass, Measure, Repair, RepairStep
from roundoff.graph.load import load_model
from roundoff.measure.inference import mean_interval
from roundoff.messages.message import verbatim
from roundoff.run.evaluators import EvaluationSamples, Evaluator, Run
from roundoff.samples.sample_set import ArraySamples
from tests.models import conv_net

MEASURE = Measure(verbatim("ranks"), "", 0.0, 0.0)
COUNT = 64
STEP = RepairStep(verbatim("it"), "free", 1, MEASURE, kept=True)


def ranks(found: Array, truth: Array) -> float:
    return float(np.corrcoef(found.argsort().argsort(), truth.argsort().argsort())[0, 1])


def judge_of(truth: Array, found: dict[int, Array]) -> RepairJudge:
    """Scores networks that are known by what they say of each sample; all of these are held out."""

    def some(network: Any, places: Sequence[int]) -> Array:
        return np.asarray(ranks(found[id(network)][list(places)], truth[list(places)]))

    metric = TaskMetric(verbatim("ranks"), True, lambda model: some(model, range(COUNT)), samples=COUNT, some=some)
    names: Any = SimpleNamespace(names=tuple(map(str, range(COUNT))))
    diagnosis: Any = SimpleNamespace(samples=COUNT, judgement=None, measures=(replace(MEASURE, after=1.0),))
    return RepairJudge(diagnosis, RepairSamples(names, names, False, metric, metric), DiagnoseSettings())


@pytest.mark.parametrize("seed", range(5))
def test_a_gain_in_ranks_is_known_by_leaving_groups_out(seed: int) -> None:
    """Groups of eight say little of ranks; all samples but eight say nearly what all say."""
    rng = np.random.default_rng(seed)
    truth, noise = rng.normal(size=(2, COUNT))
    before, after = SimpleNamespace(), SimpleNamespace()
    said = {id(before): truth + 0.5 * noise, id(after): truth + 0.05 * noise}
    judge = judge_of(truth, said)
    ours, theirs = (judge.score(each, held_out=True) for each in (before, after))  # type: ignore[arg-type]
    assert theirs.value == pytest.approx(ranks(said[id(after)], truth))
    gain = theirs.gain(ours)
    # The jackknife, computed anew.
    keep = [np.arange(COUNT) % 8 != group for group in range(8)]
    whole = [ranks(said[id(each)], truth) for each in (before, after)]
    alone = [
        8 * all_of - 7 * np.array([ranks(said[id(each)][rest], truth[rest]) for rest in keep])
        for each, all_of in zip((before, after), whole, strict=True)
    ]
    pseudo = alone[1] - alone[0]
    assert gain == pytest.approx(mean_interval(pseudo + (whole[1] - whole[0] - pseudo.mean())))
    assert gain is not None
    assert 0 < gain[0] < whole[1] - whole[0] < gain[1]


def test_groups_that_do_not_change_prove_nothing() -> None:
    same = SampleScores(1.0, -np.ones(8), grouped=True)
    low, high = same.gain(same) or (0.0, 0.0)
    assert low < -0.1
    assert high > 0.1
    percent = SampleScores(90.0, -np.full(8, 90.0), grouped=True)
    assert percent.gain(percent) is None


def repaired(*, kept: bool, cost: CostClass = "free") -> tuple[Fixed, Any]:
    """A network that was made anew and scores better, with one step that was or was not kept."""
    given, made, names = (
        SimpleNamespace(float_model="float"),
        SimpleNamespace(),
        SimpleNamespace(names=("a",) * 32),
    )
    spread = np.linspace(-0.1, 0.1, 32)

    def score(model: Any, *, held_out: bool = False) -> SampleScores:
        values = {"float": 1.0, id(given): 0.5}.get(model if isinstance(model, str) else id(model), 0.9) + spread
        return SampleScores(float(values.mean()), -values)

    judge: Any = SimpleNamespace(
        samples=RepairSamples(names, names),
        alike=False,
        measure=replace(MEASURE, samples=32),
        score=score,
    )
    fixed: Any = Fixed(made, Repair((replace(STEP, kept=kept, cost=cost),), ()))  # type: ignore[arg-type]
    source: Any = RepairSource(given, names)  # type: ignore[arg-type]
    return judge_repair(fixed, source, DiagnoseSettings(), judge), given


def test_a_headline_of_a_repair_is_there_only_where_a_step_was_kept() -> None:
    """What was calibrated anew to try steps on is written by nobody: it is no gain that may be told."""
    done, given = repaired(kept=False)
    assert done.quantized is given
    assert done.repair.measures[0].after == done.repair.measures[0].before == pytest.approx(0.5)
    found: Any = SimpleNamespace(repair=done.repair)
    _, word = _repair_word(found) or (None, {})
    assert "NOT REPAIRED" in str(word)
    assert not done.repair.proven
    done, given = repaired(kept=True)
    assert done.quantized is not given
    assert done.repair.measures[0].after == pytest.approx(0.9)
    assert done.repair.proven


@pytest.mark.parametrize(
    ("cost", "spread", "places_kept", "taken", "why"),
    [
        ("free", 1.0, False, True, None),  # free, better, nothing else is there
        ("free", 1.0, True, False, "diagnosis.repair_only_chance"),
        ("16 bit", 1.0, False, False, "diagnosis.repair_chance"),  # bits are not bought with chance
        ("16 bit", 0.01, False, True, None),
        ("16 bit", 0.01, True, True, None),
    ],
)
def test_what_a_search_found_is_taken_or_refused_with_its_reason(
    cost: CostClass, spread: float, places_kept: bool, taken: bool, why: str | None
) -> None:
    mine: Any = SimpleNamespace()
    theirs: Any = SimpleNamespace()
    wave = spread * np.tile([1.0, -1.0], 16)
    values = {id(mine): np.full(32, 0.9), id(theirs): 0.95 + wave}

    def score(network: Any, *, held_out: bool = False) -> SampleScores:
        known = values[id(network)]
        # Not between 0 and 1: no share of right answers.
        return SampleScores(float(known.mean()), -known, grouped=True)

    names: Any = SimpleNamespace(names=("a",) * 32)
    judge: Any = SimpleNamespace(samples=RepairSamples(names, names), measure=MEASURE, score=score)
    places: Any = Fixed(mine, Repair((replace(STEP, kept=places_kept),), ()))
    searched: Any = Fixed(theirs, Repair((replace(STEP, cost=cost),), ()))
    found = better_of(places, searched, judge)
    assert (found.quantized is theirs) is taken
    last = found.repair.steps[-1]
    assert last.kept is taken
    assert (last.why.key if last.why is not None else None) == why


def test_ranks_are_not_asked_of_fewer_than_half_of_the_samples(tmp_path: Path) -> None:
    """Two halves show that it is no mean; by a mean each sample has its value."""
    onnx.save(conv_net(), tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx")
    rng = np.random.default_rng(3)
    samples = ArraySamples({"image": rng.normal(size=(12, 3, 8, 8)).astype(np.float32)})
    truth, asked, by_ranks = rng.normal(size=12), list[int](), True

    def evaluate(run: Run, given: EvaluationSamples) -> float:
        asked.append(len(given))
        sums = np.array([float(next(iter(run(feed).values())).sum()) for feed in given])
        return ranks(sums, truth[list(given.indices)]) if by_ranks else float(sums.mean())

    metric = evaluator_metric(Evaluator("ranks", True, Path("e.py"), evaluate), samples)
    whole = metric.values(model)
    assert whole.shape == (1,)
    assert metric.pseudo_values(model, float(whole[0])) is not None
    assert min(asked) == 6
    by_ranks = False
    metric = evaluator_metric(Evaluator("mean", True, Path("e.py"), evaluate), samples)
    assert metric.values(model).shape == (12,)


WARNS = """
import numpy as np
NAME = "ranks"
def evaluate(run, samples):
    sums = [float(next(iter(run(feed).values())).sum()) for feed in samples]
    np.corrcoef([1.0], [2.0])
    return float(np.median(sums))
"""


@pytest.mark.parametrize(
    ("language", "said"), [("en", "evaluator.py warns: RuntimeWarning: "), ("zh", "evaluator.py 发出警告")]
)
def test_what_an_evaluator_warns_of_is_one_note(
    language: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(conv_net(), "m.onnx")
    np.save("x.npy", np.random.default_rng(1).normal(size=(8, 3, 8, 8)).astype(np.float32))
    Path("evaluator.py").write_text(WARNS, "utf-8")
    words = f"diagnose m.onnx --target generic-int8 --data x.npy --evaluator evaluator.py --lang {language}"
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        main(words.split())
    error = capsys.readouterr().err
    assert error.count(said) == 1
    assert "site-packages" not in error
