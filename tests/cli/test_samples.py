"""The command ``roundoff samples``."""

import csv
import io
import json
from pathlib import Path

import pytest

from roundoff.cli import main
from roundoff.core.document import load_document
from tests.cli.inspecting import MODEL, Run, runner

WORDS = (MODEL, "--quantized", "quantized.onnx")


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner("samples", tmp_path, capsys, monkeypatch)


def test_the_worst_samples_come_first(run: Run) -> None:
    code, out, err = run(*WORDS, "--data", "images.npy", "--top", "3")
    assert (code, err) == (0, "")
    assert out.startswith("The worst of 12 samples is ")
    assert "top-1 changes in" in out
    rows = [line.split() for line in out.splitlines() if line[:1].isdigit()]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    scores = [float(row[2]) for row in rows]
    assert scores == sorted(scores)


def test_the_worst_can_be_used_as_data(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(*WORDS, "--data", "images.npy", "--top", "3", "--copy-to", "worst", "--json")
    assert code == 0
    assert "use them with --data worst/worst.txt" in err
    ranked = json.loads(out)["worst_samples"]["samples"]
    _, again, _ = run(*WORDS, "--data", "worst/worst.txt", "--json")
    copied = json.loads(again)["worst_samples"]["samples"]
    assert [each["score"] for each in copied] == [each["score"] for each in ranked[:3]]
    assert [each["index"] for each in copied] == [0, 1, 2]
    assert main(["outliers", MODEL, "--data", "worst/worst.txt"]) == 0
    assert "(3 samples)" in capsys.readouterr().out
    code, _, err = run(*WORDS, "--data", "images.npy", "--copy-to", "worst")
    assert (code, "worst already holds a result" in err) == (2, True)
    assert "choose another --copy-to" in err
    assert run(*WORDS, "--data", "images.npy", "--copy-to", "worst", "--force", "--top", "all")[0] == 0
    assert len(Path("worst/worst.txt").read_text(encoding="utf-8").splitlines()) == 13


def test_everything_can_be_written_and_read_again(run: Run) -> None:
    words = (*WORDS, "--data", "images.npy", "--metric", "cosine,mse", "--output-node", "block4/relu")
    code, _, err = run(*words, "-o", "run", "--csv", "t.csv", "--plot", "s.png")
    assert code == 0
    stored = load_document(Path("run")).worst_samples
    assert stored is not None
    assert stored.metrics == ("cosine", "mse")
    assert [output.output for output in stored.samples[0].outputs] == ["block4/relu"]
    rows = list(csv.DictReader(io.StringIO(Path("t.csv").read_text(encoding="utf-8"))))
    assert [float(row["score"]) for row in rows] == [each.score for each in stored.samples]
    assert "run/samples.csv, run/samples.png, t.csv, s.png" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--metric", "sqnr"), "There is no metric 'sqnr'"),
        (("--metric", ","), "No metric was given"),
        (("--output-node", "nosuch"), "has no tensor or node 'nosuch' to compare at"),
        (("-o", "same", "--copy-to", "same"), "-o and --copy-to both name same"),
    ],
)
def test_bad_input(run: Run, words: tuple[str, ...], message: str) -> None:
    code, _, err = run(*WORDS, "--data", "images.npy", *words)
    assert (code, message in err) == (2, True), err
