"""The command ``roundoff reproduce``."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from roundoff.cli import main
from roundoff.demo import model_path
from tests.cli.clipped import write_clipped
from tests.cli.inspecting import Run, runner

BOARD = model_path().parent / "board_dump"


@pytest.fixture
def reproduce(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs reproduce in a folder that holds a clipped network, its float model and samples."""
    call = runner("reproduce", tmp_path, capsys, monkeypatch)
    write_clipped(tmp_path)

    def fresh(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return call(*words)

    return fresh


def _analyzed(command: str, *words: str) -> None:
    main([command, "float.onnx", "--quantized", "bad.onnx", "--data", "data.npz", "-o", "run", *words])


@pytest.mark.parametrize("command", ["diagnose", "layers"])
def test_a_run_is_cut_down_to_one_node(reproduce: Run, command: str) -> None:
    _analyzed(command)
    code, out, error = reproduce("run", "-o", "case")
    assert code == 0, error
    assert "REPRODUCED: 1 node alone shows finding 1 (clipping)" in out
    assert "exit code 1 on what is observed, 0 on what is expected" in out
    assert "passes" in out
    done = subprocess.run([sys.executable, "case/run.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "written: case" in error


def test_the_figures_are_there_for_programs(reproduce: Run) -> None:
    _analyzed("diagnose")
    code, out, _ = reproduce("run", "-o", "case", "--json", "--anonymous", "--keep-samples", "2")
    assert code == 0
    found = json.loads(out)
    assert [each["op_type"] for each in found["nodes"]] == ["Clip"]
    assert found["shows_alone"]
    assert found["passes_on_expected"]
    assert found["complement_passes"]
    assert found["outputs_of_complement_db"] > found["outputs_as_they_are_db"] + 10
    assert len(found["samples"]) == 2
    assert "block2" not in Path("case/case.json").read_text()


@pytest.mark.parametrize("command", ["diagnose", "compare"])
def test_what_a_board_computed_wrongly_is_cut_out(reproduce: Run, command: str) -> None:
    shutil.copy(model_path(), "digits.onnx")
    data = str(model_path().parent / "samples.npy")
    words = ["--dumps", str(BOARD)] if command == "diagnose" else [str(BOARD)]
    main([command, "digits.onnx", *words, "--data", data, "-o", "run"])
    code, out, error = reproduce("run", "-o", "case")
    assert code == 0, error
    assert "block3/relu (Relu)" in " ".join(out.split())
    assert "fed with the device's own inputs" in " ".join(out.split())
    case = json.loads(Path("case/case.json").read_text())
    assert case["dump"]
    assert len(case["nodes"]) <= 5
    done = subprocess.run([sys.executable, "case/run.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr


def test_a_fault_of_the_dump_alone_leaves_nothing_else_wrong(reproduce: Run) -> None:
    shutil.copy(model_path(), "digits.onnx")
    data = str(model_path().parent / "samples.npy")
    main(["dump", "digits.onnx", "--data", data, "-o", "board"])
    for file in Path("board").glob("*/block3_relu.npy"):
        values = np.load(file)
        values[:, 3] *= np.float32(0.5)
        np.save(file, values)
    main(["diagnose", "digits.onnx", "--dumps", "board", "--data", data, "-o", "run"])
    code, out, error = reproduce("run", "-o", "case")
    assert code == 0, error
    said = " ".join(out.split())
    assert "(wrong-dequantization)" in said
    assert "both are right, the fault does not reach the outputs" in said
    assert "does not pass" not in said


def test_a_healthy_run_has_nothing_to_show(reproduce: Run) -> None:
    main(["diagnose", "float.onnx", "--target", "generic-int8", "--data", "data.npz", "-o", "run"])
    code, _, error = reproduce("run", "-o", "case")
    assert code == 2
    assert "found no fault" in error


def test_what_cannot_be_used_is_refused(reproduce: Run) -> None:
    _analyzed("diagnose")
    code, _, error = reproduce("run", "-o", "case", "--finding", "9")
    assert code == 2
    assert "The run has no finding 9; it has 1." in error
    assert reproduce("run", "-o", "case")[0] == 0
    code, _, error = reproduce("run", "-o", "case")
    assert code == 2
    assert "already holds a result" in error
    assert reproduce("run", "-o", "case", "--force")[0] == 0
    Path("bad.onnx").write_bytes(Path("float.onnx").read_bytes())
    code, _, error = reproduce("run", "-o", "other")
    assert code == 2
    assert "bad.onnx has changed since the run" in error


def test_runs_of_other_commands_are_refused(reproduce: Run) -> None:
    main(["distribution", "float.onnx", "stem/relu", "--data", "data.npz", "-o", "run"])
    code, _, error = reproduce("run", "-o", "case")
    assert code == 2
    assert "is a run of 'distribution', of which no reproducer can be made" in error


def test_two_dumps_say_nothing_of_what_is_right(reproduce: Run) -> None:
    Path("one").mkdir()
    Path("other").mkdir()
    for name, factor in (("one", 1.0), ("other", 2.0)):
        np.save(f"{name}/t.npy", factor * np.arange(24, dtype=np.float32).reshape(1, 4, 6))
    main(["compare", "one", "other", "-o", "run"])
    code, _, error = reproduce("run", "-o", "case")
    assert code == 2
    assert "only known where the reference is a model" in error
