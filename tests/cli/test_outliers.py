"""The command ``roundoff outliers``."""

import csv
import io
import json
from pathlib import Path

import pytest

from roundoff.core.document import load_document
from tests.cli.inspecting import MODEL, Run, runner


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner("outliers", tmp_path, capsys, monkeypatch)


def test_a_float_model_is_enough(run: Run) -> None:
    code, out, err = run(MODEL, "--data", "images.npy", "--top", "3", "--sort", "order")
    assert (code, err) == (0, "")
    assert "level = log2(largest of the tensor / largest of the channel)" in " ".join(out.split())
    assert "rows that matter less are left out; --top all shows them" in out


def test_everything_can_be_written_and_read_again(run: Run) -> None:
    words = (MODEL, "--quantized", "quantized.onnx", "--data", "images.npy", "--nodes", "block3/*", "logits")
    code, out, _ = run(*words, "-o", "run", "--csv", "t.csv", "--plot", "o.svg", "--json", "--log-base", "1.5")
    assert code == 0
    printed = json.loads(out)["outliers"]
    stored = load_document(Path("run")).outliers
    assert stored is not None
    assert printed["log_base"] == stored.log_base == 1.5
    names = [row["tensor"] for row in printed["rows"]]
    assert names[-1] == "logits"
    assert all(name.startswith("block3/") for name in names[:-1])
    rows = list(csv.DictReader(io.StringIO(Path("t.csv").read_text(encoding="utf-8"))))
    assert [row["tensor"] for row in rows] == names
    assert Path("o.svg").read_bytes().startswith(b"<?xml")
    assert Path("run/outliers.png").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--log-base", "1"), "A logarithm to the base 1.0 has no levels"),
        (("--nodes", "nosuch*"), "'nosuch*' names no node and no computed tensor"),
    ],
)
def test_bad_input(run: Run, words: tuple[str, ...], message: str) -> None:
    code, _, err = run(MODEL, "--data", "images.npy", *words)
    assert (code, message in err) == (2, True)
    assert run(MODEL)[0] == 2
    assert "No model was given" in run()[2]
