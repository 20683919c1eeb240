"""The search: AMCT's algorithm and files, without its defects."""

import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.errors import BadInput
from roundoff.vendors.amct.common.auto_calibration import (
    AccuracyBasedAutoCalibrationBase,
    AutoCalibrationEvaluatorBase,
    AutoCalibrationStrategyBase,
    BinarySearchStrategy,
    CosineSimilaritySensitivity,
    MseSensitivity,
    SearchOptions,
    SensitivityBase,
    SqnrSensitivity,
    Trial,
    read_history,
    read_ranking,
)
from roundoff.vendors.amct.config import read_config, with_enabled
from tests.vendors.amct.support import VECTORS, vectors

RANKING = {f"layer{place}": 0.9 + place / 100 for place in range(8)}


class Evaluator(AutoCalibrationEvaluatorBase):
    """Judges by a function of how many layers are in float; measures are what the stub hands over."""

    def __init__(self, losses: Any, limit: float = 0.5, kind: type = bool) -> None:
        self.losses, self.limit, self.kind = losses, limit, kind
        self.evaluated: list[int] = []
        self.calibrated = 0

    def calibration(self, *_: str) -> None:
        self.calibrated += 1

    def evaluate(self, *model_files: str) -> float:
        floats = int(model_files[0])
        self.evaluated.append(floats)
        return float(self.losses(floats))

    def metric_eval(self, original_metric: Any, new_metric: Any) -> tuple[bool, float]:
        loss = new_metric - original_metric
        return self.kind(loss <= self.limit), loss


class Stub(AccuracyBasedAutoCalibrationBase):
    """A search over layers that do not exist; a model is the number of its layers in float."""

    def __init__(
        self, evaluator: Any, folder: Path, *, ranking: Mapping[str, float] | None = None, **options: Any
    ) -> None:
        strategy = options.pop("strategy", "BinarySearch")
        sensitivity = options.pop("sensitivity", "CosineSimilarity")
        super().__init__(evaluator, strategy, sensitivity, folder=folder, options=SearchOptions(**options))
        self.values = dict(RANKING if ranking is None else ranking)
        self.document: dict[str, Any] = {name: {"quant_enable": True} for name in sorted(self.values)}
        self.delivered: list[int] = []
        self.built = -1

    def layers(self) -> Iterable[str]:
        return sorted(self.values)

    def evaluate_original(self) -> Any:
        return 0.0

    def calibrate(self) -> None:
        self.evaluator.calibration("modified")

    def rank(self, sensitivity: SensitivityBase) -> Mapping[str, float]:
        return self.values

    def build(self, enabled: Mapping[str, bool], algorithm: str) -> None:
        self.built = sum(not stays for stays in enabled.values()) + (100 if algorithm else 0)

    def evaluate_built(self) -> Any:
        return self.evaluator.evaluate(str(self.built))

    def deliver(self) -> tuple[Path, ...]:
        self.delivered.append(self.built)
        return ()

    def configuration(self, trial: Trial) -> Mapping[str, Any]:
        return with_enabled(self.document, trial.roll_back_config)


def needs(count: int) -> Any:
    return lambda floats: 0.0 if floats >= count else 1.0 - floats / 1000


def search(folder: Path, count: int, layers: int = 8, **options: Any) -> tuple[Stub, Any]:
    ranking = {f"layer{place:03}": place / layers for place in range(layers)}
    stub = Stub(Evaluator(needs(count)), folder, ranking=ranking, **options)
    return stub, stub.run()


def proposed(result: Any) -> list[int]:
    """How many layers were in float in each trial after the first that needed a measure."""
    total = len(result.ranking)
    return [trial.floats for trial in result.trials[1:] if trial.floats < total]


@vectors
def test_traces_are_the_vendors(tmp_path: Path) -> None:
    traces = json.loads((VECTORS / "binary_search_traces.json").read_text(encoding="utf-8"))["traces"]
    assert len(traces) > 20
    for index, trace in enumerate(traces):
        stub, result = search(tmp_path / str(index), trace["min_rollback_needed"], trace["n_layers"])
        assert proposed(result) == trace["evaluated_rollback_counts"], trace
        assert result.status == trace["status"]
        if trace["status"] == "PARTIAL_ROLL_BACK":
            assert result.best.floats == trace["final_rollback_count"]
            assert stub.delivered[-1] == trace["final_rollback_count"]
        assert result.met == (trace["status"] == "PARTIAL_ROLL_BACK")


@vectors
@pytest.mark.parametrize("run", ["need3_of_8", "all_fail_8_of_8"])
def test_files_have_the_vendors_bytes(tmp_path: Path, run: str) -> None:
    known = VECTORS / "auto_calibration_runs" / run
    ranking = dict(read_ranking(known / "accuracy_based_auto_calibration_ranking_information.json"))
    trials = read_history(known / "accuracy_based_auto_calibration_record.json")
    verdicts = {trial.floats: (trial.satisfied, trial.loss) for trial in trials}

    class Vendor(Stub):
        def layers(self) -> Iterable[str]:
            return read_config(known / "config_before.json", None).enabled

        def evaluate_original(self) -> Any:
            return "original"

        def evaluate_built(self) -> Any:
            return self.built

    evaluator = Evaluator(needs(3))
    evaluator.metric_eval = (  # type: ignore[method-assign]
        lambda original_metric, new_metric: (True, 0.0) if new_metric == "original" else verdicts[new_metric]
    )
    stub = Vendor(evaluator, tmp_path, ranking=ranking, history_form="amct")
    stub.document = dict(read_config(known / "config_before.json", None).document)
    stub.run()
    for path in known.iterdir():
        if path.name.startswith("accuracy"):
            assert (tmp_path / path.name).read_bytes() == path.read_bytes()
    assert (tmp_path / "accuracy_based_auto_calibration_final_config.json").exists() == (run == "need3_of_8")


@given(st.integers(1, 120), st.data())
def test_bisection_finds_the_answer_in_few_trials(layers: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, layers))
    strategy = BinarySearchStrategy()
    strategy.initialize({str(place): float(place) for place in range(layers)})
    answer, trials = strategy.update_quant_config((False, 1.0)), 0
    while not answer["stop_flag"]:
        floats = sum(not stays for stays in answer["roll_back_config"].values())
        trials += 1
        answer = strategy.update_quant_config((floats >= count, 0.0))
    assert sum(not stays for stays in answer["roll_back_config"].values()) == count
    assert trials <= int(np.log2(layers)) + 1
    assert next(iter(answer["roll_back_config"])) == "0"


# One test for each defect of the original -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.bool_, int, bool])
def test_verdicts_in_types_of_numpy(tmp_path: Path, kind: type) -> None:
    evaluator = Evaluator(lambda floats: np.float32(needs(3)(floats)), kind=kind)
    result = Stub(evaluator, tmp_path).run()
    assert proposed(result) == [4, 2, 3]
    history = json.loads(result.history.read_text(encoding="utf-8"))
    assert history[-1]["metric_eval"] == [True, 0.0]


def test_a_loss_that_does_not_shrink_evenly_is_looked_at_again(tmp_path: Path) -> None:
    losses = {0: 0.8, 1: 0.7, 2: 0.1, 3: 0.6, 4: 0.9, 5: 0.9, 6: 0.9, 7: 0.9}
    result = Stub(Evaluator(lambda floats: losses.get(floats, 0.0)), tmp_path).run()
    assert result.met
    assert result.best.floats == 2
    assert result.status == "PARTIAL_ROLL_BACK"
    assert len(result.trials) <= 1 + 4 + 4


def test_a_gain_that_all_elements_share_is_seen() -> None:
    data = np.random.default_rng(0).normal(size=500)
    gain, noise = data * 1.5, data + np.random.default_rng(1).normal(size=500) * 0.05
    cosine, ratio = CosineSimilaritySensitivity(), SqnrSensitivity()
    assert cosine.compare(data, gain) > cosine.compare(data, noise)
    assert ratio.compare(data, gain) < ratio.compare(data, noise)


def test_the_best_that_is_not_good_enough_is_delivered(tmp_path: Path) -> None:
    losses = {0: 0.9, 4: 0.8, 6: 0.55, 7: 0.54}
    stub = Stub(Evaluator(lambda floats: losses.get(floats, 1.0)), tmp_path)
    result = stub.run()
    assert (result.status, result.met, result.best.floats) == ("ALL_ROLL_BACK", False, 7)
    assert stub.delivered[-1] == 7
    names = {path.name for path in tmp_path.iterdir()}
    assert "accuracy_based_auto_calibration_final_config.json" not in names
    best = json.loads((tmp_path / "accuracy_based_auto_calibration_best_effort_config.json").read_text("utf-8"))
    assert [name for name, each in best.items() if each["quant_enable"]] == ["layer7"]


def test_history_is_json_and_written_after_each_trial(tmp_path: Path) -> None:
    class Dying(Evaluator):
        def evaluate(self, *model_files: str) -> float:
            if len(self.evaluated) == 2:
                raise KeyboardInterrupt
            return super().evaluate(*model_files)

    with pytest.raises(KeyboardInterrupt):
        Stub(Dying(needs(3)), tmp_path).run()
    path = tmp_path / "accuracy_based_auto_calibration_record.json"
    assert len(json.loads(path.read_text(encoding="utf-8"))) == 2
    assert [trial.floats for trial in read_history(path)] == [0, 4]


@pytest.mark.parametrize("layers", [2, 3, 8, 17, 54, 100])
def test_few_measures_are_taken(tmp_path: Path, layers: int) -> None:
    for count in range(1, layers + 1, max(1, layers // 9)):
        stub, _ = search(tmp_path, count, layers)
        # And one of the float model.
        assert len(stub.evaluator.evaluated) + 1 <= np.log2(layers) + 3


def test_nothing_is_measured_twice_and_measures_can_be_resumed(tmp_path: Path) -> None:
    stub, result = search(tmp_path, 4)
    assert proposed(result) == [4, 2, 3, 4]
    assert stub.evaluator.evaluated == [0, 4, 2, 3]
    again, result = search(tmp_path, 4, resume=True)
    assert again.evaluator.evaluated == []
    assert result.best.floats == 4
    assert again.delivered[-1] == 4


def test_a_search_that_is_interrupted_again_forgets_nothing(tmp_path: Path) -> None:
    class Interrupted(Stub):
        def deliver(self) -> tuple[Path, ...]:
            raise KeyboardInterrupt

    search(tmp_path, 4)
    ranking = {f"layer{place:03}": place / 8 for place in range(8)}
    stub = Interrupted(Evaluator(needs(4)), tmp_path, ranking=ranking, resume=True)
    with pytest.raises(KeyboardInterrupt):
        stub.run()
    assert [trial.floats for trial in stub.trials] == [0]
    assert sorted(trial.floats for trial in read_history(stub.history_path)) == [0, 2, 3, 4]


@pytest.mark.parametrize(("options", "trials"), [({"max_trials": 2}, 2), ({"time_limit": 1e-9}, 1)])
def test_budgets(tmp_path: Path, options: dict[str, Any], trials: int) -> None:
    stub, result = search(tmp_path, 7, **options)
    assert len(result.trials) == trials
    assert (result.status, result.met) == ("STOPPED", False)
    assert stub.delivered
    with pytest.raises(ValueError, match="max_trials is 0"):
        search(tmp_path, 7, max_trials=0)


def test_other_algorithms_are_tried_before_float(tmp_path: Path) -> None:
    losses = {0: 0.9, 100: 0.4}
    result = Stub(Evaluator(lambda floats: losses.get(floats, 0.0)), tmp_path, alternatives=("hfmg",)).run()
    assert (result.status, result.best.algorithm, result.best.floats) == ("ALL_QUANTIZED", "hfmg", 0)
    losses[100] = 0.8
    result = Stub(Evaluator(lambda floats: losses.get(floats, 0.9)), tmp_path, alternatives=("hfmg",)).run()
    assert {trial.algorithm for trial in result.trials[1:] if trial.floats < 8} == {"hfmg"}
    with pytest.raises(ValueError, match="no calibration algorithm 'kl'"):
        Stub(Evaluator(needs(1)), tmp_path, alternatives=("kl",))


def test_comparing_prints_nothing(capsys: Any) -> None:
    CosineSimilaritySensitivity().compare(np.ones(3), np.ones(3))
    assert capsys.readouterr() == ("", "")


def test_a_single_layer(tmp_path: Path) -> None:
    stub = Stub(Evaluator(needs(1)), tmp_path, ranking={"only": 0.5})
    result = stub.run()
    assert (result.status, result.met, stub.delivered) == ("ALL_ROLL_BACK", False, [0])
    assert [trial.floats for trial in result.trials] == [0, 1]


def test_a_measure_of_which_less_is_better_ranks_the_right_way_round(tmp_path: Path) -> None:
    values = {"hurt": 0.9, "fine": 0.1, "middle": 0.5}
    result = Stub(Evaluator(needs(1)), tmp_path, ranking=values, sensitivity=MseSensitivity()).run()
    assert [name for name, _ in result.ranking] == ["hurt", "middle", "fine"]
    assert [name for name, stays in result.best.roll_back_config.items() if not stays] == ["hurt"]


# The rest -------------------------------------------------------------------------------------------------------


def test_calibrated_once(tmp_path: Path) -> None:
    stub, _ = search(tmp_path, 5)
    assert stub.evaluator.calibrated == 1


def test_all_quantized_is_good_enough(tmp_path: Path) -> None:
    stub, result = search(tmp_path, 0)
    assert (result.status, len(result.trials), stub.delivered) == ("ALL_QUANTIZED", 1, [0])
    assert (tmp_path / "accuracy_based_auto_calibration_ranking_information.json").is_file()


def test_a_float_model_that_is_not_good_enough(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="The float model itself"):
        Stub(Evaluator(needs(1), limit=-1), tmp_path).run()


@pytest.mark.parametrize("answer", [None, True, (True,), (True, "much")])
def test_verdicts_that_mean_nothing(tmp_path: Path, answer: Any) -> None:
    evaluator = Evaluator(needs(1))
    evaluator.metric_eval = lambda *_: answer  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="not whether it is good enough"):
        Stub(evaluator, tmp_path).run()


def test_an_evaluator_that_answers_another_thing_when_asked_twice_is_refused(tmp_path: Path) -> None:
    evaluator, asked = Evaluator(needs(1)), itertools.count()
    evaluator.metric_eval = lambda *_: (next(asked) % 2 == 0, 0.0)  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=r"says \(True, 0.0\), and asked again \(False, 0.0\)"):
        Stub(evaluator, tmp_path).run()
    assert (evaluator.calibrated, evaluator.evaluated) == (0, [])


def test_a_loss_that_is_no_number_is_the_worst(tmp_path: Path) -> None:
    losses = {0: float("nan"), 4: 0.9}
    result = Stub(Evaluator(lambda floats: losses.get(floats, float("nan"))), tmp_path).run()
    assert result.best.floats == 4
    assert json.loads(result.history.read_text(encoding="utf-8"))[0]["metric_eval"] == [False, None]


@pytest.mark.parametrize("name", ["strategy", "sensitivity"])
@pytest.mark.parametrize("given", ["Bisect", None, BinarySearchStrategy, object()])
def test_only_the_default_or_an_instance(tmp_path: Path, name: str, given: Any) -> None:
    with pytest.raises(RuntimeError, match="derived from"):
        Stub(Evaluator(needs(1)), tmp_path, **{name: given})


def test_an_evaluator_needs_its_methods(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="no method calibration"):
        Stub(object(), tmp_path)
    base = AutoCalibrationEvaluatorBase()
    for call in (lambda: base.calibration("m"), lambda: base.evaluate("m"), lambda: base.metric_eval(0, 0)):
        with pytest.raises(NotImplementedError):
            call()


def test_a_strategy_of_the_users_own(tmp_path: Path) -> None:
    class OneByOne(AutoCalibrationStrategyBase):
        def initialize(self, ranking_info: Mapping[str, float]) -> None:
            self.names, self.count = sorted(ranking_info, key=lambda name: ranking_info[name]), 0

        def update_quant_config(self, metric_eval: tuple[bool, float]) -> dict[str, Any]:
            if not metric_eval[0]:
                self.count += 1
            config = {name: place >= self.count for place, name in enumerate(self.names)}
            return {"stop_flag": metric_eval[0], "roll_back_config": config}

    _, result = search(tmp_path, 3, strategy=OneByOne())
    assert proposed(result) == [1, 2, 3]
    assert (result.status, result.best.floats) == ("PARTIAL_ROLL_BACK", 3)


def test_measures_of_sensitivity() -> None:
    cosine, zeros, data = CosineSimilaritySensitivity(), np.zeros(4), np.array([1.0, -2.0, 3.0, 0.5])
    assert cosine.compare(zeros, data) == 1
    assert cosine.compare(data, zeros) == 0
    assert cosine.compare(data, data) == pytest.approx(1)
    assert cosine.compare(data, -data) == pytest.approx(0)
    assert MseSensitivity().compare(data, data + 2) == pytest.approx(4 / 4)
    assert MseSensitivity(do_normalization=True).compare(data, data * 3) == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(SensitivityBase.normalize_data(data), (data + 2) / 5, rtol=1e-5)
    assert SqnrSensitivity().compare(data, data) == 200
    assert SqnrSensitivity().compare(zeros, data) == -200
    assert not MseSensitivity.higher_is_better


def test_histories_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "h.json"
    for text in ("{", "[3]", '{"roll_back_config":{"a":1},"metric_eval":[true,0]}'):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(BadInput):
            read_history(path)
    path.write_text('{"a":1}', encoding="utf-8")
    with pytest.raises(BadInput, match="is no ranking"):
        read_ranking(path)
