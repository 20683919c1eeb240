"""The command ``roundoff amct``."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from roundoff.cli import main
from roundoff.vendors.amct.records import read_records
from tests.models import save
from tests.vendors.amct.caffe_nets import batches as caffe_batches
from tests.vendors.amct.caffe_nets import branched_net
from tests.vendors.amct.support import SHAPE, batches, mixed_net

Run = Callable[..., tuple[int, str, str]]

EVALUATOR = """
import numpy as np
import onnxruntime as ort
from roundoff.vendors.amct.common.auto_calibration import AutoCalibrationEvaluatorBase

FEEDS = np.random.default_rng(0).normal(0.3, 1, (2, 2, 4, 8, 8)).astype(np.float32)


class Evaluator(AutoCalibrationEvaluatorBase):
    def calibration(self, model_file):
        session = ort.InferenceSession(model_file)
        for feed in FEEDS:
            session.run(None, {"image": feed})

    def evaluate(self, model_file):
        session = ort.InferenceSession(model_file)
        return np.stack([session.run(None, {"image": feed})[0] for feed in FEEDS])

    def metric_eval(self, original_metric, new_metric):
        loss = np.abs(original_metric - new_metric).max()
        return loss < LIMIT, loss
"""


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a sub-command in a folder with a model, raw batches and an evaluator."""
    monkeypatch.chdir(tmp_path)
    save(mixed_net(), tmp_path / "net.onnx")
    Path("bins").mkdir()
    for name, batch in zip(("10.bin", "02.bin", "x.txt"), batches(3), strict=True):
        batch.tofile(Path("bins") / name)
    Path("good.py").write_text(EVALUATOR.replace("LIMIT", "10"), encoding="utf-8")
    Path("hard.py").write_text(EVALUATOR.replace("LIMIT", "1e-9"), encoding="utf-8")

    def call(*words: str) -> tuple[int, str, str]:
        try:
            code = main(["amct", *words])
        except SystemExit as left:
            code = int(left.code or 0)
        return (code, *capsys.readouterr())

    return call


MODEL = ("--model", "net.onnx", "--save_path", "out/net")
DATA = ("--input_shape", f"image:{','.join(map(str, SHAPE))}", "--data_dir", "bins", "--data_types", "float32")
FILES = ["net_deploy_model.onnx", "net_fake_quant_model.onnx", "net_quant.json", "net_record.txt"]


def test_calibration_on_raw_batches(run: Run) -> None:
    code, out, err = run("calibration", *MODEL, *DATA, "--batch_num=1")
    assert (code, out) == (0, "")
    assert err.count("written: ") == 4
    assert sorted(path.name for path in Path("out").iterdir()) == FILES
    # Files are read in ascending order of their names.
    scale = read_records(Path("out/net_record.txt"))["conv1"].scale_d
    second = batches(3)[1]
    assert scale == pytest.approx((second.max() - second.min()) / 255, rel=0.35)
    run("calibration", *MODEL, *DATA, "--batch_num=2")
    assert read_records(Path("out/net_record.txt"))["conv1"].scale_d != scale


def test_a_run_that_fails_leaves_the_record_of_an_earlier_one(run: Run) -> None:
    assert run("calibration", *MODEL, *DATA)[0] == 0
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    assert run("calibration", *MODEL, *DATA, "--batch_num", "3")[0] == 2
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before


def test_calibration_with_prefixes_and_a_simplified_configuration(run: Run) -> None:
    text = "batch_num: 2 common_config { dmq_balancer { } hfmg_quantize { } }"
    Path("x.cfg").write_text(text, encoding="utf-8")
    words = ("--input_shape=" + DATA[1], "--data_dir=bins", "--data_type", "float32")
    code, _, err = run("calibration", *MODEL, *words, "--calibration_config", "x.cfg")
    assert (code, "error" in err) == (0, False)
    assert len(read_records(Path("out/net_record.txt"))["conv1"].tensor_balance_factor) == SHAPE[1]


def test_calibration_by_an_evaluator(run: Run) -> None:
    assert run("calibration", *MODEL, "--evaluator", "good.py", "--batch_num", "2")[0] == 0
    assert sorted(path.name for path in Path("out").iterdir()) == FILES


def test_auto_calibration(run: Run) -> None:
    code, out, _ = run("auto-calibration", *MODEL, "--evaluator", "good.py", "--batch_num", "2")
    assert code == 0
    assert out.splitlines()[0].split() == ["trial", "in", "float", "good", "enough", "loss"]
    assert out.splitlines()[-1].startswith("good enough: 6 of 6 layers quantized, loss ")


def test_an_unreachable_goal_ends_with_one(run: Run) -> None:
    words = ("--evaluator", "hard.py", "--batch_num", "2", "--sensitivity", "Mse", "--alternatives", "hfmg")
    code, out, _ = run("auto_calibration", *MODEL, *words, "--max_trials", "3", "--history", "amct")
    assert code == 1
    assert out.splitlines()[-1].startswith("NOT good enough, the best found: ")
    assert max(map(len, out.splitlines())) <= 80
    assert "}{" in Path("out/accuracy_based_auto_calibration_record.json").read_text(encoding="utf-8")
    assert Path("out/net_fake_quant_model.onnx").is_file()


def test_a_full_configuration_is_only_read(run: Run) -> None:
    import roundoff.vendors.amct.onnx as amct

    amct.create_quant_config("c.json", "net.onnx", batch_num=1)
    before = Path("c.json").read_bytes()
    assert run("auto-calibration", *MODEL, "--evaluator", "hard.py", "--config_file", "c.json")[0] == 1
    assert Path("c.json").read_bytes() == before
    code, _, err = run(
        "auto-calibration", *MODEL, "--evaluator", "hard.py", "--config_file", "c.json", "--batch_num", "2"
    )
    assert (code, "--config_file decides alone" in err) == (2, True)


def test_convert(run: Run) -> None:
    run("calibration", *MODEL, *DATA)
    words = ("--save_path", "out/qat", "--record_file", "out/qat.txt")
    assert run("convert", "--model", "out/net_fake_quant_model.onnx", *words)[0] == 0
    assert read_records(Path("out/qat.txt")) == read_records(Path("out/net_record.txt"))
    given = ("--scale_offset_record_file", "out/net_record.txt")
    assert run("convert", "--model", "net.onnx", "--save_path", "out/two", *given)[0] == 0
    assert Path("out/two_deploy_model.onnx").is_file()
    assert run("convert", *MODEL, *given, "--record_file", "x.txt")[0] == 2
    info = json.loads(Path("out/two_quant.json").read_text(encoding="utf-8"))
    assert info["graph"][0]["op"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("calibrate", *MODEL), "There is no sub-command 'calibrate'"),
        (("calibration", *MODEL), "Neither --evaluator nor data was given"),
        (("calibration", *MODEL, *DATA, "--evaluator", "good.py"), "Both --evaluator and data were given"),
        (("calibration", *MODEL, *DATA[:4]), "--data_types is missing"),
        (("calibration", *MODEL, *DATA, "--batch_num", "3"), "bins has 2 .bin files for 'image'"),
        (("calibration", *MODEL, *DATA, "--batch_num", "0"), "batch_num is 0"),
        (("calibration", *MODEL, *DATA[:5], "float128"), "There is no type 'float128'"),
        (("calibration", *MODEL, *DATA[:5], "float64"), "takes 4096"),
        (("calibration", *MODEL, *DATA[:5], "float32;int8"), "1 shapes, 1 folders and 2 types"),
        (("calibration", *MODEL, "--input_shape", "image", *DATA[2:]), "'image' is no name and shape"),
        (
            ("calibration", *MODEL, "--input_shape", "x:2,4,8,8", *DATA[2:]),
            "has a value for 'x', which is not an input",
        ),
        (("calibration", *MODEL, "--data_dir", "nowhere", *DATA[:2], *DATA[4:]), "nowhere"),
        (("calibration", *MODEL, "--evaluator", "none.py"), "none.py"),
        (("calibration", *MODEL, "--weights", "x.caffemodel", *DATA), "--weights is for Caffe models"),
        (
            ("calibration", *MODEL, *DATA, "--calibration_config", "x", "--batch_num", "1"),
            "Both --calibration_config",
        ),
        (("calibration", "--save_path", "x"), "required: --model"),
        (("convert", *MODEL), "No layer of net.onnx has both"),
    ],
)
def test_what_is_wrong_is_said(run: Run, words: tuple[str, ...], message: str) -> None:
    code, _, err = run(*words)
    assert code in (2, 4)
    assert message in err
    assert "fix: " in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1", "holds 0 evaluators with calibration(), evaluate(), metric_eval()"),
        ("1 / 0", "The evaluator bad.py failed in line 1: ZeroDivisionError"),
        ("def (", "failed in line 1: SyntaxError"),
        (EVALUATOR.replace("LIMIT", "None"), "metric_eval() in the evaluator bad.py failed in line 21: TypeError"),
        (EVALUATOR.replace("return loss < LIMIT, loss", "return 3"), "metric_eval returned 3"),
        (
            EVALUATOR.replace('"image"', '"img"'),
            "evaluate() in the evaluator bad.py failed in line 17: ValueError",
        ),
    ],
)
def test_evaluators_that_fail_are_named_with_their_line(run: Run, source: str, message: str) -> None:
    Path("bad.py").write_text(source, encoding="utf-8")
    code, _, err = run("auto-calibration", *MODEL, "--evaluator", "bad.py", "--batch_num", "2")
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_batches_of_other_types(run: Run, tmp_path: Path) -> None:
    for name in ("02.bin", "10.bin"):
        np.zeros(SHAPE, np.float64).tofile(Path("bins") / name)
    code, _, err = run("calibration", *MODEL, *DATA[:5], "float64")
    assert code == 2
    assert "input 'image' must be float32" in err


CAFFE_EVALUATOR = """
import numpy as np
import roundoff.vendors.amct.caffe as amct
from roundoff.vendors.amct.common.auto_calibration import AutoCalibrationEvaluatorBase

FEEDS = [{"data": feed} for feed in np.random.default_rng(0).normal(0.3, 1, (2, 2, 4, 9, 9)).astype(np.float32)]


class Evaluator(AutoCalibrationEvaluatorBase):
    def calibration(self, model_file, weights_file):
        amct.run_model(model_file, weights_file, FEEDS)

    def evaluate(self, model_file, weights_file):
        return np.stack([each["prob"] for each in amct.run_model(model_file, weights_file, FEEDS)])

    def metric_eval(self, original_metric, new_metric):
        loss = np.abs(original_metric - new_metric).max()
        return loss < 0.5, loss
"""
NET = ("--model", "net.prototxt", "--weights", "net.caffemodel", "--save_path", "out/net")
CAFFE_DATA = ("--input_shape", "data:2,4,9,9", "--data_dir", "bins", "--data_types", "float32")
CAFFE_FILES = [
    "net_deploy_model.prototxt", "net_deploy_weights.caffemodel", "net_fake_quant_model.prototxt",
    "net_fake_quant_weights.caffemodel", "net_quant.json", "net_record.txt",
]  # fmt: skip


@pytest.fixture
def caffe(run: Run) -> Run:
    """The same in a folder with a Caffe net that has a loss, raw batches of it and an evaluator."""
    net = branched_net()
    net.add("Input", "label", (), "label", "input_param { shape { dim: 2 } }")
    net.add("SoftmaxWithLoss", "loss", ["score", "label"])
    net.write(Path())
    for path in Path("bins").iterdir():
        path.unlink()
    for index, feed in enumerate(caffe_batches(2)):
        feed["data"].tofile(f"bins/{index}.bin")
    Path("eval.py").write_text(CAFFE_EVALUATOR, encoding="utf-8")
    return run


def test_calibration_of_a_caffe_net(caffe: Run) -> None:
    code, out, err = caffe("calibration", *NET, *CAFFE_DATA, "--batch_num=2", "--gpu_id", "0")
    assert (code, out) == (0, "")
    # However often the net is read.
    assert err.count("net.prototxt: 2 layers are left out: loss (SoftmaxWithLoss)") == 1
    assert sorted(path.name for path in Path("out").iterdir()) == CAFFE_FILES
    assert all(f"written: out/{name}" in err for name in CAFFE_FILES)
    given = read_records(Path("out/net_record.txt"))
    # The .caffemodel beside the net is found, and an evaluator that runs the same batches finds the same.
    words = ("--model=net.prototxt", "--save_path=two/net", "--evaluator", "eval.py", "--batch_num", "2")
    assert caffe("calibration", *words)[0] == 0
    assert read_records(Path("two/net_record.txt")) == given


def test_auto_calibration_and_conversion_of_a_caffe_net(caffe: Run) -> None:
    code, out, _ = caffe("auto-calibration", *NET, "--evaluator", "eval.py", "--batch_num", "2")
    assert code == 0
    assert out.splitlines()[-1].startswith("good enough: 7 of 7 layers quantized, loss ")
    given = ("--scale_offset_record_file", "out/net_record.txt")
    assert caffe("convert", *NET[:4], "--save_path", "again/net", *given)[0] == 0
    for name in CAFFE_FILES[:5]:
        assert Path("again", name).read_bytes() == Path("out", name).read_bytes()
    code, _, err = caffe("convert", *NET)
    assert (code, "A Caffe net says nothing of its training" in err) == (2, True)


def test_too_few_runs_of_a_caffe_net(caffe: Run) -> None:
    code, _, err = caffe("calibration", *NET, "--evaluator", "eval.py", "--batch_num", "3")
    assert code == 2
    assert "2 of 3 batches were run" in err
    assert "roundoff.vendors.amct.caffe.run_model" in err
