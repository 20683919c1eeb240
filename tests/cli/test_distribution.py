"""The command ``roundoff distribution``."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from roundoff.core.document import load_document
from tests.cli.inspecting import MODEL, Run, runner

DATA = ("--quantized", "quantized.onnx", "--data", "images.npy")


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner("distribution", tmp_path, capsys, monkeypatch)


def test_a_node_and_a_weight(run: Run) -> None:
    code, out, err = run(MODEL, "block3/relu", "block3/pointwise/weight", *DATA)
    assert (code, err) == (0, "")
    assert out.startswith("1 of 2 distributions suits quantization (12 samples)")
    text = " ".join(out.split())
    assert "% of the values are clipped: calibrate on data like this" in text
    assert "block3/pointwise/weight weight, Conv, 48x24x1x1" in text
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize("name", ["block3/relu_HzCalibration", "block3/relu_QuantizeLinear"])
def test_names_of_other_tools_are_understood_wherever_they_stand(run: Run, name: str) -> None:
    code, out, _ = run(MODEL, *DATA, "--samples", "3", name)
    assert code == 0
    assert "block3/relu  activation, Relu" in out


def test_weights_need_neither_samples_nor_the_float_model(run: Run) -> None:
    code, out, err = run("*weight*", "--quantized", "quantized.onnx", "--kind", "weight")
    assert (code, err) == (0, "")
    assert out.startswith("10 of 10 distributions suit quantization\n")
    assert run("--quantized", "quantized.onnx", "logits/weight")[0] == 0


def test_a_float_model_alone_will_do(run: Run) -> None:
    code, out, _ = run(MODEL, "stem/relu", "--data", "images.npy")
    assert code == 0
    assert "quantizer" not in out


def test_a_model_can_be_quantized_first(run: Run) -> None:
    code, out, _ = run(MODEL, "block1/relu", "--target", "generic-int8", "--data", "images.npy")
    assert code == 0
    assert "levels" in out


def test_everything_can_be_written_and_read_again(run: Run) -> None:
    code, out, err = run(MODEL, "block3/relu", "logits", *DATA, "-o", "run", "--csv", "t.csv", "--json")
    assert code == 0
    printed, stored = json.loads(out), load_document(Path("run"))
    assert stored.distributions is not None
    assert [each["name"] for each in printed["distributions"]["distributions"]] == ["block3/relu", "logits"]
    assert [each.name for each in stored.distributions.distributions] == ["block3/relu", "logits"]
    assert [entry["role"] for entry in printed["inputs"]] == ["model", "quantized", "data"]
    rows = list(csv.DictReader(io.StringIO(Path("t.csv").read_text(encoding="utf-8"))))
    assert [row["name"] for row in rows] == ["block3/relu", "logits"]
    pictures = ["block3_relu_node.png", "logits_node.png"]
    assert sorted(path.name for path in Path("run").glob("*.png")) == pictures
    assert "run/histograms.csv" in err


def test_one_picture_goes_into_the_file_named(run: Run) -> None:
    assert run(MODEL, "logits", *DATA, "--plot", "p.svg")[0] == 0
    assert Path("p.svg").read_bytes().startswith(b"<?xml")
    code, _, err = run(MODEL, "logits", *DATA, "--plot", "p.svg")
    assert (code, "p.svg exists" in err) == (2, True)


def test_several_pictures_share_the_name_of_the_file(run: Run) -> None:
    code, _, err = run("logits/weight", "stem/conv/weight", "--quantized", "quantized.onnx", "--plot", "p.png")
    assert code == 0
    assert "written: p_stem_conv_weight_weight.png, p_logits_weight_weight.png" in err


def test_a_folder_that_is_not_empty_is_not_used_unasked(run: Run) -> None:
    Path("pictures").mkdir()
    Path("pictures/mine.txt").write_text("mine", encoding="utf-8")
    words = ("logits/weight", "--quantized", "quantized.onnx", "--plot", "pictures")
    code, _, err = run(*words)
    assert (code, "pictures is not empty" in err) == (2, True)
    Path("pictures/logits_weight_weight.png").write_text("mine", encoding="utf-8")
    code, _, err = run(*words, "stem/conv/weight", "--force")
    assert Path("pictures/stem_conv_weight_weight.png").read_bytes().startswith(b"\x89PNG")
    assert "logits_weight_weight.png exists and was not replaced" in err
    assert Path("pictures/logits_weight_weight.png").read_text(encoding="utf-8") == "mine"


def test_without_matplotlib(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    words = ("logits/weight", "--quantized", "quantized.onnx")
    code, _, err = run(*words, "--plot", "p.png")
    assert (code, "pip install 'roundoff[plots]'" in err) == (2, True)
    code, _, err = run(*words, "-o", "run")
    assert code == 0
    assert "no pictures in the folder; pip install 'roundoff[plots]' to have them" in err
    assert Path("run/distribution.csv").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((MODEL, "--data", "images.npy"), "No node, tensor or quantizer was named"),
        (("x",), "is not an ONNX model|does not exist|No node"),
        ((MODEL, "nosuch", "--data", "images.npy"), "'nosuch' names no node, tensor or quantizer"),
        ((MODEL, "logits"), "values of 'logits' are computed, and no samples were given"),
        ((MODEL, "logits", "--data", "images.npy", "--set", "a=u8"), "--set says how to quantize, but nothing is"),
        ((MODEL, "logits", "--data", "images.npy", "--bins", "1"), "'1' is not a number of bins"),
        ((MODEL, "logits", "--data", "images.npy", "--nosuch"), "unrecognized arguments: --nosuch"),
    ],
)
def test_bad_input(run: Run, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code, _, err = run(*words)
    except SystemExit as leaving:
        code, err = int(str(leaving.code)), capsys.readouterr().err
    assert code == 2
    assert any(part in err for part in message.split("|")), err
    assert "Traceback" not in err
