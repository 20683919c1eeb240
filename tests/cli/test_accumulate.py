"""The command ``roundoff accumulate``."""

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from roundoff.cli import main
from roundoff.core.document import load_document
from roundoff.demo import load_split
from tests.cli.inspecting import MODEL, Run, save_quantized


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in a folder with images and a quantized model in which an activation is clipped."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    np.save("images.npy", load_split("calibration")[0][:6])
    save_quantized(Path("quantized.onnx"), factor=0.1)

    def call(*words: str) -> tuple[int, str, str]:
        code = main(["accumulate", MODEL, "--quantized", "quantized.onnx", "--data", "images.npy", *words])
        return (code, *capsys.readouterr())

    return call


def curve_names(out: str) -> list[str]:
    return [curve["name"] for curve in json.loads(out)["accumulation"]["curves"]]


def test_the_verdict_comes_first(run: Run) -> None:
    code, out, err = run("--top", "3")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "ACTIVATIONS dominate (6 samples)"
    assert lines[1].startswith("  coverage   judged: 1 of 1 output, ")
    assert lines[2].startswith("  output     logits: weights ")
    assert any(line.startswith("  jumps at   block4/depthwise (Conv): ") for line in lines)
    assert max(map(len, lines)) <= 80
    assert "11 rows that matter less are left out; --top all shows them" in out
    shown = next(line.split() for line in lines if line.startswith("weight "))
    assert shown[0] == "weight"


def test_everything_can_be_written_and_read_again(run: Run) -> None:
    pytest.importorskip("matplotlib")
    code, out, err = run(
        "-o", "run", "--csv", "c.csv", "--plot", "c.svg", "--json", "--metric", "sqnr_db", "--average"
    )
    assert code == 0
    assert "written: run/run.json, run/curves.csv, run/curves.png, c.csv, c.svg" in err
    found = load_document(Path("run")).accumulation
    assert found is not None
    assert (found.metric, found.average) == ("sqnr_db", True)
    assert json.loads(out)["accumulation"]["verdict"]["dominance"] == found.verdict.dominance == "activations"
    rows = list(csv.DictReader(io.StringIO(Path("c.csv").read_text(encoding="utf-8"))))
    assert [row["node"] for row in rows] == [node.node for node in found.nodes]
    assert Path("run/curves.csv").read_bytes() == Path("c.csv").read_bytes()
    assert Path("c.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_curves_that_are_asked_for(run: Run) -> None:
    words = ("--only", "stem/conv", "[logits,head/pool]", "--except", "op:Gemm", "stem/conv", "--except", "weight")
    code, out, _ = run(
        "--json", *words, "--nested", "[[stem/conv],[stem/conv,logits]]", "--nested-except", "[[logits]]"
    )
    assert code == 0
    assert curve_names(out) == [
        "all",
        "stem/conv",
        "partial_qmodel_0",
        "partial_qmodel_1",
        "partial_qmodel_2",
        "all but op:Gemm, stem/conv",
        "all but weight",
        "partial_qmodel_3",
    ]
    curves = {curve["name"]: curve for curve in json.loads(out)["accumulation"]["curves"]}
    everything = set(curves["all"]["quantizers"])
    assert set(curves["partial_qmodel_2"]["quantizers"]) == everything - set(
        curves["all but op:Gemm, stem/conv"]["quantizers"]
    )
    assert len(curves["all but weight"]["quantizers"]) < len(everything)
    assert json.loads(out)["accumulation"]["verdict"]["dominance"] is None


def test_the_model_may_come_behind_the_names(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--quantized", "quantized.onnx", "--data", "images.npy", "--json", "--samples", "1"]
    for option in ("--only", "--except"):
        assert main(["accumulate", *words, option, "stem/conv", MODEL]) == 0
        document = json.loads(capsys.readouterr().out)
        assert [entry["role"] for entry in document["inputs"]] == ["model", "quantized", "data"]
        assert len(document["accumulation"]["curves"]) == 2


def test_what_is_misspelt_is_told_before_the_work(run: Run) -> None:
    for words, what, fix in (
        (("--only", "stem/con"), "'stem/con' is no quantized node", "did you mean 'stem/conv'?"),
        (("--metric", "cosin"), "There is no metric 'cosin'", "did you mean 'cosine'?"),
        (("--nested", "[[a]"), "'[[a]' is not a list of names", "[[a],[a,b]]"),
        (("--plot", "x.pdf"), "--plot x.pdf is neither .png nor .svg", "one of these endings"),
    ):
        code, out, err = run(*words)
        assert (code, out) == (2, "")
        assert what in err
        assert fix in err


def test_nothing_is_replaced_unasked(run: Run) -> None:
    pytest.importorskip("matplotlib")
    quick = ["--samples", "1", "--only", "weight", "--csv", "c.csv", "--plot", "c.png"]
    assert run(*quick)[0] == 0
    code, _, err = run(*quick)
    assert code == 2
    assert "c.csv exists" in err
    assert run(*quick, "--force")[0] == 0
    Path("c.png").write_text("mine", encoding="utf-8")
    code, _, err = run(*quick, "--force")
    assert code == 2
    assert "c.png exists" in err


def test_a_model_is_quantized_first(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["accumulate", MODEL, "--target", "generic-int8", "--data", "images.npy"])
    out = capsys.readouterr().out
    assert code == 0
    assert out.splitlines()[0].startswith("BOTH weights and activations matter")
    assert "base line  never falls below 20 dB" in out


def test_terminals_that_know_ascii_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    page = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace")
    monkeypatch.setattr(sys, "stdout", page)
    assert run()[0] == 0
    page.flush()
    text = page.buffer.getvalue().decode()
    assert "\\u25" not in text
    assert "#" in text


@pytest.mark.parametrize("option", ["--nested", "--nested-except"])
def test_a_list_of_nothing_is_refused(run: Run, option: str) -> None:
    code, out, err = run(option, "[]")
    assert (code, out) == (2, "")
    assert f"{option} '[]' names nothing" in err
