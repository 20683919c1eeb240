"""The search on real models: the vendor's example, with only imports and arguments of models changed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import roundoff.vendors.amct.onnx as amct
from roundoff.demo import load_split, model_path
from roundoff.graph.load import load_model
from roundoff.graph.readers.reader import read_quantized
from roundoff.vendors.amct.common.auto_calibration import (
    AutoCalibrationEvaluatorBase,
    MseSensitivity,
    SearchOptions,
)
from roundoff.vendors.amct.records import read_records
from tests.models import save
from tests.vendors.amct.support import batches, mixed_net, run_onnx

CALIBRATION_BATCH_NUM = 2


class AutoCalibrationEvaluator(AutoCalibrationEvaluatorBase):
    """Top-1 of handwritten digits; the loss must be less than 0.2 %."""

    def __init__(self) -> None:
        super().__init__()
        self.images, self.labels = load_split("test")
        self.calibrating, _ = load_split("calibration")

    def _run(self, model_file: str, images: Any) -> Any:
        session = ort.InferenceSession(model_file, amct.AMCT_SO)
        return session.run(None, {session.get_inputs()[0].name: images})[0]

    def calibration(self, model_file: str) -> None:
        for index in range(CALIBRATION_BATCH_NUM):
            self._run(model_file, self.calibrating[32 * index : 32 * (index + 1)])

    def evaluate(self, model_file: str) -> float:
        return float(np.mean(self._run(model_file, self.images).argmax(axis=1) == self.labels))

    def metric_eval(self, original_metric: float, new_metric: float) -> tuple[bool, float]:
        loss = original_metric - new_metric
        if loss * 100 < 0.2:
            return True, loss
        return False, loss


def test_the_vendors_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model_file = str(model_path())
    # step 1: create the quant config file
    config_json_file = "./config.json"
    skip_layers: list[str] = []
    batch_num = CALIBRATION_BATCH_NUM
    activation_offset = True
    amct.create_quant_config(config_json_file, model_file, skip_layers, batch_num, activation_offset)

    scale_offset_record_file = str(Path("tmp") / "scale_offset_record.txt")
    result_path = str(Path("result") / "MobileNetV2")
    evaluator = AutoCalibrationEvaluator()

    # step 2: start the accuracy_based_auto_calibration process
    before = Path(config_json_file).read_bytes()
    result = amct.accuracy_based_auto_calibration(
        model_file, evaluator, config_json_file, scale_offset_record_file, result_path
    )
    assert result.met
    assert Path(config_json_file).read_bytes() == before
    names = sorted(path.name for path in Path("result").iterdir())
    assert names == [
        "MobileNetV2_deploy_model.onnx", "MobileNetV2_fake_quant_model.onnx", "MobileNetV2_quant.json",
        "accuracy_based_auto_calibration_final_config.json",
        "accuracy_based_auto_calibration_ranking_information.json", "accuracy_based_auto_calibration_record.json",
    ]  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "result", "tmp"]
    original = evaluator.evaluate(model_file)
    loss = original - evaluator.evaluate("result/MobileNetV2_fake_quant_model.onnx")
    assert loss == pytest.approx(result.best.loss)
    final = json.loads(Path("result/accuracy_based_auto_calibration_final_config.json").read_text("utf-8"))
    kept = [name for name, each in final.items() if isinstance(each, dict) and each["quant_enable"]]
    assert set(read_records(Path(scale_offset_record_file))) == set(kept)
    assert kept == [name for name, stays in sorted(result.best.roll_back_config.items()) if stays]


class Distance(AutoCalibrationEvaluatorBase):
    """How far outputs are from those of the float model."""

    def __init__(self, model: str, limit: float) -> None:
        self.feeds = batches(4, seed=2)
        self.exact = [run_onnx(model, feed) for feed in self.feeds]
        self.limit = limit
        self.files: list[str] = []
        self.calibrations = 0

    def calibration(self, *model_files: str) -> None:
        self.calibrations += 1
        session = ort.InferenceSession(model_files[0], amct.AMCT_SO)
        for feed in self.feeds:
            session.run(None, {"image": feed})

    def evaluate(self, *model_files: str) -> Any:
        self.files.append(model_files[0])
        found = [run_onnx(model_files[0], feed, amct.AMCT_SO) for feed in self.feeds]
        errors = [np.abs(left - right).max() for left, right in zip(found, self.exact, strict=True)]
        return np.max(errors) / np.abs(self.exact).max()

    def metric_eval(self, original_metric: Any, new_metric: Any) -> tuple[bool, float]:
        return new_metric <= self.limit, new_metric


class Search:
    def __init__(self, folder: Path, limit: float, definition: str = "batch_num: 4") -> None:
        self.folder = folder
        self.model = str(save(mixed_net(), folder / "net.onnx"))
        (folder / "x.cfg").write_text(definition, encoding="utf-8")
        self.config = str(folder / "c.json")
        amct.create_quant_config(self.config, self.model, config_defination=str(folder / "x.cfg"))
        self.evaluator = Distance(self.model, limit)

    def run(self, **options: Any) -> Any:
        sensitivity = options.pop("sensitivity", "CosineSimilarity")
        return amct.accuracy_based_auto_calibration(
            self.model, self.evaluator, self.config, str(self.folder / "rec.txt"), str(self.folder / "out/net"),
            sensitivity=sensitivity, options=SearchOptions(**options),
        )  # fmt: skip


def test_only_layers_that_stay_are_quantized(tmp_path: Path) -> None:
    search = Search(tmp_path, 0.004)
    result = search.run()
    assert search.evaluator.calibrations == 1
    assert len(search.evaluator.files) == len({trial.key for trial in result.trials}) + 1 - (
        1 if result.status == "ALL_ROLL_BACK" else 0
    )
    read = read_quantized(load_model(tmp_path / "out/net_fake_quant_model.onnx"))
    quantized = {consumer.node for each in read.quantizers for consumer in each.consumers} - {"plus"}
    assert quantized == {name for name, stays in result.best.roll_back_config.items() if stays}
    assert {name for name, _ in result.ranking} == set(result.best.roll_back_config)
    assert all(0.9 < score <= 1 for _, score in result.ranking)


def test_an_unreachable_goal_still_delivers(tmp_path: Path) -> None:
    result = Search(tmp_path, 1e-9).run()
    assert not result.met
    assert result.best.loss == min(trial.loss for trial in result.trials if not trial.satisfied)
    found = Distance(str(tmp_path / "net.onnx"), 0).evaluate(str(tmp_path / "out/net_fake_quant_model.onnx"))
    assert found == pytest.approx(result.best.loss)


def test_files_of_the_user_stay(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name in ("my_deploy_notes.txt", "other_fake_quant_model.onnx", "old_quantized.pb"):
        (tmp_path / "out" / name).write_text("mine", encoding="utf-8")
    Search(tmp_path, 1e-9).run()
    for name in ("my_deploy_notes.txt", "other_fake_quant_model.onnx", "old_quantized.pb"):
        assert (tmp_path / "out" / name).read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("method", ["calibration", "evaluate", "metric_eval"])
def test_nothing_temporary_is_left_behind(tmp_path: Path, method: str) -> None:
    search = Search(tmp_path, 0.01)
    calls: list[int] = []
    original = getattr(search.evaluator, method)

    def failing(*args: Any) -> Any:
        calls.append(1)
        if len(calls) > 1 or method == "calibration":
            raise OSError("disk on fire")
        return original(*args)

    setattr(search.evaluator, method, failing)
    with pytest.raises(OSError, match="on fire"):
        search.run()
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith("temp")] == []


def test_calibration_that_runs_too_little(tmp_path: Path) -> None:
    search = Search(tmp_path, 0.01, "batch_num: 5")
    with pytest.raises(RuntimeError, match="calibration was not finished"):
        search.run()


def test_balanced_layers_and_other_measures(tmp_path: Path) -> None:
    search = Search(tmp_path, 0.004, "batch_num: 2 common_config { dmq_balancer { } }")
    result = search.run(sensitivity=MseSensitivity(), alternatives=("hfmg",))
    assert search.evaluator.calibrations == 2
    values = [value for _, value in result.ranking]
    assert values == sorted(values, reverse=True)
    assert (tmp_path / "out/net_deploy_model.onnx").is_file()
