"""The commands ``roundoff diff`` and ``roundoff gate``."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from roundoff.cli import main
from roundoff.core.document import load_document
from roundoff.demo import load_split, model_path
from roundoff.graph.insertion import insert_quantizers
from tests.quantized import with_scale_times
from tests.studies.layers.support import demo_network

Run = Callable[..., tuple[int, str, str]]
MODEL = str(model_path())
FAULT = "block3/relu"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs of every kind, of a healthy quantized model and of one with a planted fault."""
    folder = tmp_path_factory.mktemp("runs")
    images = load_split("calibration")[0]
    np.save(folder / "images.npy", images[:8])
    np.save(folder / "turned.npy", images[:8][::-1])
    np.save(folder / "other.npy", images[8:16])
    np.save(folder / "one.npy", images[:1])
    quantized, _ = demo_network()
    spoilt = with_scale_times(quantized, [FAULT], 0.2)
    for name, each in (("good", quantized), ("bad", spoilt)):
        onnx.save(insert_quantizers(each.float_model, each.quantizers).proto, folder / f"{name}.onnx")

    def made(name: str, command: str, model: str, data: str = "images", code: int = 0) -> None:
        quantized = str(folder / f"{model}.onnx")
        sides = [MODEL, quantized] if command == "compare" else [MODEL, "--quantized", quantized]
        assert main([command, *sides, "--data", str(folder / f"{data}.npy"), "-o", str(folder / name)]) == code

    for command in ("layers", "compare", "accumulate", "sensitivity"):
        made(f"{command}-good", command, "good")
        made(f"{command}-bad", command, "bad", code=1 if command in ("layers", "compare") else 0)
    for data in ("turned", "other"):
        made(f"layers-{data}", "layers", "good", data)
    made("layers-one", "layers", "good", "one", code=1)
    made("layers-again", "layers", "good")
    made("layers-bad-one", "layers", "bad", "one", code=1)
    return folder


@pytest.fixture
def run(runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(runs)
    monkeypatch.setenv("COLUMNS", "80")

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*words])
        return (code, *capsys.readouterr())

    return call


def test_the_verdict_comes_first_and_names_the_node(run: Run) -> None:
    code, out, err = run("diff", "layers-good", "layers-bad")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("WORSE: of 32 nodes ")
    assert lines[1].startswith(f"  first   {FAULT} (Relu), local: ")
    assert "quantized: good.onnx" not in out
    assert any(line.startswith("  differ  quantized: ") for line in lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("command", ["layers", "compare", "accumulate", "sensitivity"])
def test_runs_of_every_kind_are_tested_in_pairs(run: Run, command: str) -> None:
    _, out, _ = run("diff", f"{command}-good", f"{command}-bad", "--json")
    found = json.loads(out)["diff"]
    assert (found["kind"], found["pairing"]) == ("worse", "paired")
    assert all(row["probability"] <= 0.05 for row in found["rows"] if row["change"] == "worse")
    code, out, _ = run("diff", f"{command}-good", f"{command}-good")
    assert (code, out.split(":")[0]) == (0, "SAME")


def test_a_planted_fault_fails_the_gate_and_a_second_run_passes(run: Run) -> None:
    code, out, _ = run("gate", "layers-bad", "--baseline", "layers-good")
    assert code == 1
    assert out.startswith("FAIL: ")
    assert f"  first     {FAULT}, local: lost " in out
    for same in ("layers-good", "layers-again"):
        code, out, _ = run("gate", same, "--baseline", "layers-good")
        assert (code, out.split(":")[0]) == (0, "PASS")
    # Of another file nobody knows that it holds the same samples.
    for other in ("layers-turned", "layers-other"):
        code, out, _ = run("gate", other, "--baseline", "layers-good")
        assert (code, out.split(":")[0]) == (1, "NOT ENOUGH EVIDENCE")
        assert re.search(r"doubt +0 of \d+ samples of the baseline are in the run", out)


def test_one_sample_is_judged_but_not_tested(run: Run) -> None:
    _, out, _ = run("diff", "layers-one", "layers-bad-one")
    assert out.startswith("NOT TESTABLE: ")
    assert run("gate", "layers-bad-one", "--baseline", "layers-one")[0] == 1
    code, out, _ = run("gate", "layers-one", "--baseline", "layers-one")
    assert (code, out.split(":")[0]) == (1, "NOT ENOUGH EVIDENCE")
    assert "the run itself: one sample is very little" in out


def test_a_run_that_lost_samples_of_its_baseline_does_not_pass(run: Run) -> None:
    code, out, _ = run("gate", "layers-one", "--baseline", "layers-good")
    assert (code, out.split(":")[0]) == (1, "NOT ENOUGH EVIDENCE")
    assert "the same samples" not in out


def test_results_go_where_ci_reads_them(run: Run, tmp_path: Path) -> None:
    junit, page = tmp_path / "gate.xml", tmp_path / "gate.html"
    words = ["gate", "layers-bad", "--baseline", "layers-good", "--junit", str(junit), "--html", str(page)]
    code, out, err = run(*words, "--annotate", "-o", str(tmp_path / "run"), "--csv", str(tmp_path / "gate.csv"))
    assert code == 1
    assert f"::error title={FAULT}::local: lost " in out
    assert err.startswith("written:\n  ")
    suite = ET.parse(junit).getroot()  # noqa: S314 - our own file
    found = load_document(tmp_path / "run").diff
    assert found is not None
    assert found.gate is not None
    assert int(suite.get("failures", "0")) == found.gate.failed > 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    again = tmp_path / "again.xml"
    assert run("report", str(tmp_path / "run"), "-o", str(again))[0] == 0
    assert again.read_text(encoding="utf-8") == junit.read_text(encoding="utf-8")
    assert run(*words)[0] == 2
    assert run(*words, "--force")[0] == 1


def test_budgets_decide(run: Run, tmp_path: Path) -> None:
    budget = tmp_path / "budget.toml"
    budget.write_text('[nodes]\n"*" = "ignore"\n', encoding="utf-8")
    words = ["gate", "layers-bad", "--baseline", "layers-good"]
    assert run(*words, "--budget", str(budget))[0] == 0
    assert run(*words, "--max-regression", "100dB")[0] == 0
    budget.write_text('[nodes]\n"logits" = { at_least = 79 }\n"never" = 1\n', encoding="utf-8")
    code, out, _ = run("gate", "layers-good", "--baseline", "layers-good", "--budget", str(budget))
    assert code == 1
    assert "must reach 79 dB" in out
    assert "budgets that fit nothing: never" in out


def test_what_cannot_be_compared_is_refused(run: Run) -> None:
    code, _, err = run("diff", "layers-good", "compare-good")
    assert code == 2
    assert "fix: give two runs of the same command" in err
    assert run("gate", "layers-good", "--baseline", "nowhere")[0] == 2
    with pytest.raises(SystemExit, match="2"):
        run("gate", "layers-good", "--baseline", "layers-good", "--max-regression", "-1")


def test_force_replaces_only_reports_of_tests(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "pom.xml"
    file.write_text("<?xml version='1.0'?><project/>", encoding="utf-8")
    code, _, error = run("gate", "layers-good", "--baseline", "layers-good", "--junit", str(file), "--force")
    assert code == 2
    assert "does not look like a file that roundoff wrote" in error
    assert "<project/>" in file.read_text(encoding="utf-8")
    report = tmp_path / "junit.xml"
    for more in ((), ("--force",)):
        code, _, error = run("gate", "layers-good", "--baseline", "layers-good", "--junit", str(report), *more)
        assert code == 0, error
