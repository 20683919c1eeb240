"""The vendor's example of auto-calibration for Caffe: only imports and two functions of the user are filled in."""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import roundoff.vendors.amct.caffe as amct
from roundoff.core.tensors import Array
from roundoff.graph.caffe.net import read_net
from roundoff.vendors.amct.common.auto_calibration import AutoCalibrationEvaluatorBase, SearchOptions
from roundoff.vendors.amct.records import read_records
from tests.graph.caffe.nets import relative_error
from tests.vendors.amct.caffe_nets import LAYERS, branched_net
from tests.vendors.amct.caffe_nets import batches as random_batches

SHARED = Path(__file__).resolve().parents[4] / "shared"
LENET = SHARED / "models" / "lenet_mnist"
CALIBRATION_BATCH_NUM = 2


@dataclass(frozen=True)
class Args:
    """What the vendor's samples read from the command line."""

    model_file: str
    weights_file: str
    iterations: int
    batches: list[dict[str, Array]]
    labels: list[Array]
    run: Callable[[str, str, Array], Array]


def run_here(model_file: str, weights_file: str, data: Array) -> Array:
    (found,) = amct.run_model(model_file, weights_file, [{"data": data}])
    return found["prob"]


def run_in_opencv(model_file: str, weights_file: str, data: Array) -> Array:
    pytest.importorskip("cv2", reason="opencv-python-headless<5 is not installed")
    net = amct.opencv_net(model_file, weights_file)
    net.setInput(data)
    return np.asarray(net.forward())


def run_caffe_model(args: Args, model_file: str, weights_file: str, batch_num: int) -> None:
    amct.run_model(model_file, weights_file, args.batches[:batch_num])


def do_benchmark_test(args: Args, model_file: str, weights_file: str, iterations: int) -> Any:
    right = [
        args.run(model_file, weights_file, args.batches[index]["data"]).argmax(1) == args.labels[index]
        for index in range(iterations)
    ]
    return np.mean(np.concatenate(right))


class AutoCalibrationEvaluator(AutoCalibrationEvaluatorBase):
    """As in the example."""

    def __init__(self, args: Args, limit: float = 0.2) -> None:
        super().__init__()
        self.args, self.limit = args, limit

    def calibration(self, model_file: str, weights_file: str) -> None:
        run_caffe_model(self.args, model_file, weights_file, CALIBRATION_BATCH_NUM)

    def evaluate(self, model_file: str, weights_file: str) -> Any:
        return do_benchmark_test(self.args, model_file, weights_file, self.args.iterations)

    def metric_eval(self, original_metric: Any, new_metric: Any) -> Any:
        loss = original_metric - new_metric
        if loss * 100 < self.limit:
            return True, loss
        return False, loss


def lenet(_: Path) -> Args:
    if not LENET.is_dir():
        pytest.skip("no LeNet beside this checkout")
    names = ("mnist_t10k-images-idx3-ubyte.gz", "mnist_t10k-labels-idx1-ubyte.gz")
    raw = [np.frombuffer(gzip.decompress((SHARED / "data" / name).read_bytes()), np.uint8) for name in names]
    images = raw[0][16:].reshape(-1, 1, 28, 28)[:640].astype(np.float32) / 256
    labels = raw[1][8:][:640]
    fed = [{"data": images[start : start + 64]} for start in range(0, 640, 64)]
    right = [labels[start : start + 64] for start in range(0, 640, 64)]
    files = str(LENET / "lenet.prototxt"), str(LENET / "lenet_iter_10000.caffemodel")
    return Args(*files, 10, fed, right, run_here)


def generated(folder: Path) -> Args:
    """Classes are what the float net says."""
    model, weights = map(str, branched_net().write(folder))
    fed = random_batches(8)
    return Args(
        model, weights, 8, fed, [run_here(model, weights, each["data"]).argmax(1) for each in fed], run_here
    )


@pytest.mark.parametrize("runner", [run_here, run_in_opencv])
@pytest.mark.parametrize("source", [lenet, generated])
def test_the_example_runs(
    source: Callable[[Path], Args], runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = source(tmp_path)
    args = Args(given.model_file, given.weights_file, given.iterations, given.batches, given.labels, runner)
    # From here on as in the example.
    config_json_file = "./config.json"
    skip_layers: list[str] = []
    batch_num = CALIBRATION_BATCH_NUM
    activation_offset = True
    amct.create_quant_config(
        config_json_file, args.model_file, args.weights_file, skip_layers, batch_num, activation_offset
    )
    scale_offset_record_file = "tmp/scale_offset_record.txt"
    result_path = "result/MobileNetV2"
    evaluator = AutoCalibrationEvaluator(args, 10.0 if source is generated else 0.2)
    Path("tmp").mkdir()
    result = amct.accuracy_based_auto_calibration(
        args.model_file, args.weights_file, evaluator, config_json_file, scale_offset_record_file, result_path
    )
    assert result.met
    start = "result/MobileNetV2"
    fake = f"{start}_fake_quant_model.prototxt", f"{start}_fake_quant_weights.caffemodel"
    deploy = f"{start}_deploy_model.prototxt", f"{start}_deploy_weights.caffemodel"
    info = json.loads(Path(f"{start}_quant.json").read_text(encoding="utf-8"))
    deployed = read_net(*map(Path, deploy))
    assert [each["name"] for each in info["graph"][0]["op"]] == [layer.name for layer in deployed.layers]
    quantized = {name for name, stays in result.best.roll_back_config.items() if stays}
    assert set(read_records(Path(scale_offset_record_file))) == quantized
    assert {f"{name}_dequant_layer" for name in quantized} <= deployed.layer_names
    # What is delivered is what was measured.
    lost = evaluator.evaluate(args.model_file, args.weights_file) - evaluator.evaluate(*fake)
    assert lost == pytest.approx(result.best.loss)
    data = args.batches[0]["data"]
    assert relative_error(run_here(*deploy, data), run_here(*fake, data)) < 0.02
    ranked = json.loads(Path("result/accuracy_based_auto_calibration_ranking_information.json").read_text())
    assert sorted(name for name, _ in ranked) == (
        LAYERS if source is generated else ["conv1", "conv2", "ip1", "ip2"]
    )
    assert not list(Path("result").glob("temp*"))


def test_layers_go_back_to_float_until_it_is_good_enough(tmp_path: Path) -> None:
    args = generated(tmp_path)
    float_outputs = run_here(args.model_file, args.weights_file, args.batches[0]["data"])

    class Distance(AutoCalibrationEvaluator):
        def evaluate(self, model_file: str, weights_file: str) -> Any:
            return np.abs(run_here(model_file, weights_file, args.batches[0]["data"]) - float_outputs).max()

        def metric_eval(self, original_metric: Any, new_metric: Any) -> Any:
            return new_metric - original_metric < self.limit, new_metric - original_metric

    config, record = str(tmp_path / "c.json"), str(tmp_path / "r.txt")
    amct.create_quant_config(config, args.model_file, args.weights_file, batch_num=CALIBRATION_BATCH_NUM)
    files = args.model_file, args.weights_file
    full = amct.accuracy_based_auto_calibration(*files, Distance(args, 1.0), config, record, str(tmp_path / "a/x"))
    assert full.status == "ALL_QUANTIZED"
    limit = full.best.loss * 0.9
    found = amct.accuracy_based_auto_calibration(
        *files, Distance(args, limit), config, record, str(tmp_path / "b/x")
    )
    assert found.status == "PARTIAL_ROLL_BACK"
    assert 0 < found.best.floats < len(LAYERS)
    assert len(read_records(Path(record))) == len(LAYERS) - found.best.floats
    never = amct.accuracy_based_auto_calibration(
        *files, Distance(args, 1e-9), config, record, str(tmp_path / "c/x"),
        options=SearchOptions(alternatives=("hfmg",)),
    )  # fmt: skip
    assert not never.met
    assert (tmp_path / "c/x_deploy_weights.caffemodel").is_file()


def test_calibration_where_it_cannot_be_seen_is_told(tmp_path: Path) -> None:
    args = generated(tmp_path)

    class Blind(AutoCalibrationEvaluator):
        def calibration(self, model_file: str, weights_file: str) -> None:
            run_in_opencv(model_file, weights_file, args.batches[0]["data"])

    config, record = str(tmp_path / "c.json"), str(tmp_path / "r.txt")
    amct.create_quant_config(config, args.model_file, args.weights_file)
    with pytest.raises(RuntimeError, match=r"0 of 1 batches were run") as told:
        amct.accuracy_based_auto_calibration(
            args.model_file, args.weights_file, Blind(args), config, record, str(tmp_path / "out/x")
        )
    assert "amct.caffe.run_model" in str(told.value)
    assert not list((tmp_path / "out").glob("temp*"))
