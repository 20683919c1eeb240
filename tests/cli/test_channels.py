"""The command ``roundoff channels``."""

import csv
import io
import json
from pathlib import Path

import pytest

from roundoff.core.document import load_document
from tests.cli.inspecting import MODEL, Run, runner

DATA = ("--quantized", "quantized.onnx", "--data", "images.npy")


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner("channels", tmp_path, capsys, monkeypatch)


def test_a_node_and_a_weight(run: Run) -> None:
    code, out, err = run(MODEL, "block3/relu", "stem/conv/weight", *DATA)
    assert (code, err) == (0, "")
    rows = {
        line.split()[0]: line.split() for line in out.splitlines() if line.startswith(("block3/relu ", "stem/"))
    }
    assert rows["block3/relu"][1:3] == ["1", "48"]
    assert "stem/conv/weight: each channel has a scale of its own: no risk" in out
    assert "block3/relu: channels with the fewest levels, and the one with the most" in out


def test_everything_can_be_written_and_read_again(run: Run) -> None:
    code, out, _ = run(MODEL, "block3/relu", *DATA, "-o", "run", "--csv", "t.csv", "--plot", "c.png", "--json")
    assert code == 0
    (printed,) = json.loads(out)["channels"]["spreads"]
    stored = load_document(Path("run")).channels
    assert stored is not None
    assert len(printed["boxes"]) == len(stored.spreads[0].boxes) == 48
    rows = list(csv.DictReader(io.StringIO(Path("t.csv").read_text(encoding="utf-8"))))
    assert [int(row["channel"]) for row in rows] == list(range(48))
    assert Path("c.png").read_bytes().startswith(b"\x89PNG")
    assert Path("run/block3_relu_node.png").is_file()


def test_another_axis(run: Run) -> None:
    code, out, _ = run(MODEL, "block3/relu", *DATA, "--axis", "2", "--json")
    assert code == 0
    assert json.loads(out)["channels"]["spreads"][0]["axis"] == 2
    code, _, err = run(MODEL, "block3/relu", *DATA, "--axis", "4")
    assert (code, "so there is no axis 4" in err) == (2, True)


def test_weights_need_no_samples(run: Run) -> None:
    code, out, _ = run("*/weight", "--quantized", "quantized.onnx")
    assert code == 0
    assert "0 of 10 tensors have channels with few levels" in out
