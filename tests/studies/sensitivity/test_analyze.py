"""The whole analysis: stages, time, interruption, going on."""

import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roundoff.core.quantizers import SwitchedSubject
from roundoff.errors import BadInput, ModelFailed
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.measure.rows import ROW_NUMBERS
from roundoff.studies.sensitivity.exact import ExactEngine, Measurement
from roundoff.studies.sensitivity.ranking import SensitivitySettings
from roundoff.studies.sensitivity.result import Sensitivity, SubjectScore
from roundoff.studies.sensitivity.study import analyze_sensitivity
from tests.quantized import with_scale_times
from tests.run.samples import MemorySamples
from tests.studies.sensitivity.support import network

SETTINGS = SensitivitySettings(metrics=("sqnr_db",), first_samples=4, top=2, blocks=4)


def flat(found: Sensitivity) -> list[Any]:
    """Everything that two results of the same work have in common."""
    return [
        (kind, row.rank, row.score.subject, row.score.samples, row.score.mean, row.score.values.tolist())
        for kind, rows in found.rankings.items()
        for row in rows
    ]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> tuple[QuantizedModel, MemorySamples]:
    return network("skips and outputs", tmp_path_factory.mktemp("net"), samples=12)


def test_leaders_are_measured_on_all_samples(net: tuple[QuantizedModel, MemorySamples]) -> None:
    found = analyze_sensitivity(*net, SETTINGS)
    assert found.complete
    assert found.effort.first_samples == 4
    assert set(found.rankings) == {"node", "weight", "activation"}
    everything = analyze_sensitivity(*net, replace(SETTINGS, exact=True))
    truth = {row.score.subject: row.score for rows in everything.rankings.values() for row in rows}
    for kind, rows in found.rankings.items():
        full = [row for row in rows if len(row.score.samples) == 12]
        assert 2 <= len(full) <= 4
        assert rows[: len(full)] == tuple(full)
        assert {row.score.samples for row in rows[len(full) :]} == {(0, 4, 7, 11)}
        # The same numbers as in the exact run, sample by sample.
        for row in rows:
            exact = truth[row.score.subject]
            np.testing.assert_allclose(row.score.values, exact.values[list(row.score.samples)], rtol=1e-3)
        assert rows[0].score.subject == everything.rankings[kind][0].score.subject


def test_exact_measures_all_on_all(net: tuple[QuantizedModel, MemorySamples]) -> None:
    found = analyze_sensitivity(*net, replace(SETTINGS, exact=True, samples=5))
    assert {row.score.samples for rows in found.rankings.values() for row in rows} == {(0, 3, 6, 8, 11)}
    assert found.samples[11] == "s11"


def test_a_planted_fault_leads(net: tuple[QuantizedModel, MemorySamples]) -> None:
    quantized, samples = net
    broken = with_scale_times(quantized, ["c"], 40.0)
    found = analyze_sensitivity(broken, samples, SETTINGS)
    assert found.rankings["activation"][0].score.subject.tensor == "c"
    assert found.rankings["node"][0].score.subject.name == "gate"


def test_results_stream_in(net: tuple[QuantizedModel, MemorySamples]) -> None:
    seen: list[SubjectScore] = []
    progress = Recorder()
    found = analyze_sensitivity(*net, SETTINGS, on_result=seen.append, progress=progress)
    assert {score.subject for score in seen} == {
        row.score.subject for rows in found.rankings.values() for row in rows
    }
    assert sum(len(score.samples) == 12 for score in seen) == sum(
        len(row.score.samples) == 12 for rows in found.rankings.values() for row in rows
    )
    assert [title for title, _, _ in progress.jobs] == [
        "running the model", "measuring all", "running the model", "measuring the leading ones",
    ]  # fmt: skip
    assert all(total == done for _, total, done in progress.jobs)


class Recorder:
    """Progress that remembers: title, steps announced, steps done."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, int, int]] = []

    def start(self, title: str, total: int) -> None:
        self.jobs.append((title, total, 0))

    def advance(self, steps: int = 1) -> None:
        title, total, done = self.jobs[-1]
        self.jobs[-1] = (title, total, done + steps)

    def finish(self) -> None:
        assert self.jobs


def interrupting(after: int, error: type[BaseException] = KeyboardInterrupt) -> Any:
    """A callback that ends the analysis."""
    seen: list[SubjectScore] = []

    def callback(score: SubjectScore) -> None:
        seen.append(score)
        if len(seen) == after:
            raise error

    return callback


def test_an_interrupted_analysis_gives_what_is_done(net: tuple[QuantizedModel, MemorySamples]) -> None:
    found = analyze_sensitivity(*net, SETTINGS, on_result=interrupting(5))
    assert not found.complete
    assert found.effort.measured == 5
    assert "interrupted after 5 of" in str(found.notes[-1])
    whole = analyze_sensitivity(*net, replace(SETTINGS, first_samples=4, exact=False))
    assert whole.effort.planned == found.effort.planned


def test_interrupted_before_anything_is_known(
    net: tuple[QuantizedModel, MemorySamples], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> Generator[Measurement, None, None]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(ExactEngine, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        analyze_sensitivity(*net, SETTINGS)


@pytest.mark.parametrize("mode", ["alone", "left_out"])
def test_a_killed_analysis_goes_on_and_ends_the_same(
    mode: Any, net: tuple[QuantizedModel, MemorySamples], tmp_path: Path
) -> None:
    settings, path = replace(SETTINGS, mode=mode), tmp_path / "journal"
    with pytest.raises(ZeroDivisionError):
        analyze_sensitivity(*net, settings, journal=path, on_result=interrupting(7, ZeroDivisionError))
    resumed = analyze_sensitivity(*net, settings, journal=path)
    assert 0 < resumed.effort.resumed < resumed.effort.planned
    whole = analyze_sensitivity(*net, settings)
    assert flat(resumed) == flat(whole)
    third = analyze_sensitivity(*net, settings, journal=path)
    assert third.effort.resumed == third.effort.planned
    assert flat(third) == flat(whole)


def test_other_numbers_are_not_taken_from_the_journal(
    net: tuple[QuantizedModel, MemorySamples], tmp_path: Path
) -> None:
    quantized, samples = net
    path = tmp_path / "journal"
    analyze_sensitivity(*net, SETTINGS, journal=path)
    other = with_scale_times(quantized, ["c"], 2.0)
    found = analyze_sensitivity(other, samples, SETTINGS, journal=path)
    assert flat(found) == flat(analyze_sensitivity(other, samples, SETTINGS))
    changed = MemorySamples([{**feed, "image": feed["image"] * np.float32(2)} for feed in samples.feeds])
    found = analyze_sensitivity(quantized, changed, SETTINGS, journal=path)
    assert found.effort.resumed == 0
    # Sums serve any metric that they offer, but for those that count what is near.
    by_mse = replace(SETTINGS, metrics=("mse",))
    found = analyze_sensitivity(quantized, samples, by_mse, journal=path)
    assert found.effort.resumed == found.effort.measured
    assert flat(found) == flat(analyze_sensitivity(quantized, samples, by_mse))
    found = analyze_sensitivity(quantized, samples, replace(SETTINGS, metrics=("within_1e3",)), journal=path)
    assert found.effort.resumed == 0


def test_a_budget_ends_the_analysis(
    net: tuple[QuantizedModel, MemorySamples], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = analyze_sensitivity(*net, replace(SETTINGS, budget_s=1e-9))
    assert not found.complete
    assert found.effort.measured == 0
    assert "0 of" in str(found.notes[-1])
    # With time enough nothing is left out.
    assert analyze_sensitivity(*net, replace(SETTINGS, budget_s=1000)).complete

    class Clock:
        """Time that stands still but for the subjects, which take one second each."""

        now = 0.0

    measure = ExactEngine._measure

    def slow(engine: ExactEngine, subject: SwitchedSubject, deadline: float | None) -> Any:
        Clock.now += 1.0
        return measure(engine, subject, deadline)

    monkeypatch.setattr(ExactEngine, "_measure", slow)
    monkeypatch.setattr(time, "monotonic", lambda: Clock.now)
    settings = replace(SETTINGS, kinds=("node",), budget_s=6.5, threads=1)
    first = analyze_sensitivity(*net, settings)
    assert first.effort.measured == 6
    Clock.now = 0.0
    assert flat(analyze_sensitivity(*net, settings)) == flat(first)


def test_too_little_time_takes_fewer_samples(
    net: tuple[QuantizedModel, MemorySamples], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        """Loading takes one second per sample."""

        now = 0.0

    load = ExactEngine.load

    def slow(
        engine: ExactEngine, samples: Sequence[int], subjects: Sequence[SwitchedSubject], **options: Any
    ) -> None:
        Clock.now += len(samples)
        load(engine, samples, subjects, **options)

    monkeypatch.setattr(ExactEngine, "load", slow)
    monkeypatch.setattr(time, "monotonic", lambda: Clock.now)
    found = analyze_sensitivity(*net, replace(SETTINGS, budget_s=30))
    assert 1 <= found.effort.first_samples < 4
    assert any("to stay within the time" in str(note) for note in found.notes)


def test_threads_and_memory_change_nothing(net: tuple[QuantizedModel, MemorySamples], tmp_path: Path) -> None:
    reference = flat(analyze_sensitivity(*net, replace(SETTINGS, threads=1)))
    assert flat(analyze_sensitivity(*net, replace(SETTINGS, threads=3))) == reference
    model = net[0].float_model
    least = 128 * 2**20 + 3 * model.file_bytes + model.weight_bytes + 3 * 4 * 400 * 3
    small = analyze_sensitivity(*net, replace(SETTINGS, threads=1, max_memory=least + 20_000))
    for one, other in zip(flat(small), reference, strict=True):
        np.testing.assert_allclose(one[-1], other[-1], rtol=1e-3)
    with pytest.raises(BadInput, match=r"takes about .* of memory; the budget is 1.0 MB") as caught:
        analyze_sensitivity(*net, replace(SETTINGS, max_memory=10**6))
    assert "--max-memory" in caught.value.fix


def test_one_sample_ranks_without_intervals(net: tuple[QuantizedModel, MemorySamples]) -> None:
    quantized, samples = net
    found = analyze_sensitivity(quantized, MemorySamples(samples.feeds[:1]), SETTINGS)
    row = found.rankings["node"][0]
    assert row.score.interval["sqnr_db"] is None
    assert row.differs_from_next is None
    assert row.told_apart is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": 0}, "--samples 0 is not a number of things"),
        ({"first_samples": -1}, "--first-samples -1"),
        ({"budget_s": 0.0}, "A budget of 0.0 seconds leaves no time"),
        ({"metrics": ("nope",)}, "There is no metric 'nope'"),
        ({"outputs": ("nope",)}, "has no tensor or node 'nope'"),
        ({"nodes": ("nope",)}, "'nope' is no quantized node"),
        ({"outputs": ("gains",)}, "is the same whatever the model is fed"),
    ],
)
def test_settings_that_make_no_sense(
    change: dict[str, Any], message: str, net: tuple[QuantizedModel, MemorySamples]
) -> None:
    with pytest.raises(BadInput, match=message):
        analyze_sensitivity(*net, replace(SETTINGS, **change))


def test_a_model_that_fails_says_so(net: tuple[QuantizedModel, MemorySamples]) -> None:
    quantized, samples = net
    feeds = [
        {name: array[:, :, :5] for name, array in feed.items()} if at == 9 else feed
        for at, feed in enumerate(samples.feeds)
    ]
    feeds[9] = {**feeds[9], "other": samples.feeds[9]["other"]}
    with pytest.raises((ModelFailed, BadInput), match="s9"):
        analyze_sensitivity(quantized, MemorySamples(feeds), replace(SETTINGS, exact=True))


def test_the_engine_measures_in_the_order_it_is_given(net: tuple[QuantizedModel, MemorySamples]) -> None:
    quantized, samples = net
    subject = SwitchedSubject("stem", "node", ("q:image",))
    engine = ExactEngine(quantized, samples, SETTINGS, subjects=[subject], outputs=("gate",), indices=range(3))
    engine.load([2, 0], [subject])
    assert engine.loaded == (2, 0)
    ((found, values),) = engine.measure([subject])
    assert found is subject
    assert values.shape == (2, 1, ROW_NUMBERS)
    engine.close()
