"""The command ``roundoff pulsar2``: its flags, exit codes and streams."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roundoff.cli import main
from tests.vendors.pulsar2.nets import imbalanced, mixed, write_all

Run = Callable[..., tuple[int, str, str]]
BUILD = ("build", "--input", "net.onnx", "--output_dir", "out", "--config", "config.json")


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a sub-command beside a model, samples and a configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    write_all(tmp_path, mixed())

    def run_command(*words: str) -> tuple[int, str, str]:
        try:
            code = main(["pulsar2", *words])
        except SystemExit as left:
            code = int(left.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run_command


def test_tables_go_to_stdout_and_the_log_to_stderr(run: Run) -> None:
    code, out, err = run(*BUILD, "--quant.precision_analysis", "1", "--quant.precision_analysis_method=EndToEnd")
    assert code == 0
    assert "Quant Config Table" in out
    assert "Quant Precision Table【EndToEnd Reference】" in out
    assert "save optimized onnx to [out/frontend/optimized.onnx]" in err
    assert "written: out" in err
    assert max(map(len, out.splitlines())) <= 80


def test_flags_count_more_than_the_file(run: Run) -> None:
    code, _, _ = run(*BUILD, "--quant.calibration_method", "MSE", "--quant.precision_analysis", "--force")
    assert code == 0
    config = json.loads(Path("out/build_context.json").read_text())["config"]
    assert (config["quant"]["calibration_method"], config["quant"]["precision_analysis"]) == ("MSE", True)


def test_a_switch_may_stand_in_front_of_another_flag(run: Run) -> None:
    assert run("build", "--quant.precision_analysis", *BUILD[1:])[0] == 0
    assert Path("out/quant/debug/precision_analysis_table.txt").is_file()


def test_an_existing_build_needs_force(run: Run) -> None:
    assert run(*BUILD)[0] == 0
    code, _, err = run(*BUILD)
    assert (code, "add --force to replace it" in err) == (2, True)
    assert run(*BUILD, "--force")[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--quant.calibration_methd", "MSE"), "did you mean '--quant.calibration_method'?"),
        (("--quant.calibration_method", "Mse"), "MSE"),
        (("stray",), "'stray' belongs to no flag"),
        (("--quant.input_configs", "x"), "There is no flag '--quant.input_configs'"),
    ],
)
def test_flags_that_do_not_exist(run: Run, words: tuple[str, ...], message: str) -> None:
    code, _, err = run(*BUILD, *words)
    assert code == 2
    assert message in err


def test_sub_commands(run: Run) -> None:
    code, _, err = run("biuld")
    assert (code, "did you mean 'build'?" in err) == (2, True)
    for name in ("build", "tune"):
        code, out, _ = run(name, "--help")
        assert code == 0
        assert "--config FILE" in out
        assert "Every single setting of the configuration is a flag too" in out
        assert max(map(len, out.splitlines())) <= 80


def test_an_unknown_layer_is_refused_after_the_table_that_says_why(run: Run, tmp_path: Path) -> None:
    write_all(tmp_path, mixed(), layer_configs=[{"layer_name": "conv9", "data_type": "U16"}])
    code, out, err = run(*BUILD)
    assert code == 2
    assert "'conv9' names nothing" in out
    assert "layer_configs[0]: 'conv9': did you mean 'conv" in err
    assert not Path("out").exists()


def test_everything_that_is_wrong_is_told_at_once(run: Run, tmp_path: Path) -> None:
    config = {
        "input_shapes": "imag:1x3x8x8",
        "npu_mode": "NPU9",
        "const_processors": [{"name": "nosuch", "data": [1]}],
        "op_processors": [{"op_name": "nosuch", "attrs": {"axis": 1}}],
        "output_processors": [{"tensor_name": "nosuch"}],
        "input_processors": [{"tensor_name": "nosuch"}],
        "quant": {
            "input_sample_dir": "nosuch",
            "calibration_metod": "MSE",
            "input_configs": [{"tensor_name": "DEFAULT", "calibration_dataset": "nosuch.tar"}],
            "layer_configs": [
                {"layer_name": "nosuch", "data_type": "U16"},
                {"start_tensor_names": ["nosuch"], "end_tensor_names": ["DEFAULT"], "data_type": "U16"},
            ],
        },
    }
    (tmp_path / "wrong.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    model = BUILD[BUILD.index("--input") + 1]
    code, _, err = run("build", "--input", model, "--output_dir", "out", "--config", "wrong.json")
    assert code == 2
    assert err.startswith("error: wrong.json has 11 errors:")
    for text in (
        "quant.calibration_metod: ",
        "npu_mode: ",
        "line 2: input_shapes: the model has no input 'imag'",
        "const_processors[0].name: the model has no constant 'nosuch'",
        "op_processors[0].op_name: the model has no operation 'nosuch'",
        "input_processors[0].tensor_name: the model has no input 'nosuch'",
        "output_processors[0].tensor_name: the model has no output 'nosuch'",
        "quant.input_sample_dir: nosuch is not a folder",
        "does not exist: nosuch.tar",
        "quant.layer_configs[0]: 'nosuch' names nothing",
        "quant.layer_configs[1]: 'nosuch' names nothing",
    ):
        assert text in err, text


def test_a_budget_that_is_too_small_says_what_would_do(run: Run) -> None:
    code, _, err = run(*BUILD, "--max-memory", "1kB")
    assert (code, "give --max-memory '" in err) == (2, True)
    assert run(*BUILD, "--max-memory", "2GB")[0] == 0


def test_a_model_that_is_missing_is_one_of_many(run: Run, tmp_path: Path) -> None:
    (tmp_path / "wrong.json").write_text('{"input": "no.onnx", "npu_mod": "NPU1"}', encoding="utf-8")
    code, _, err = run("build", "--output_dir", "out", "--config", "wrong.json")
    assert (code, err.count("\n  ")) == (2, 2)
    assert "input: The model no.onnx does not exist" in err


def test_the_check_of_types_decides_the_exit_code(run: Run, tmp_path: Path) -> None:
    write_all(tmp_path, mixed(), layer_configs=[{"op_type": "MatMul", "data_type": "FP32"}])
    assert run(*BUILD)[0] == 0
    code, _, err = run(*BUILD, "--force", "--quant.check", "1")
    assert (code, "not every layer has the type" in err) == (1, True)
    assert run(*BUILD, "--force", "--quant.check", "1", "--quant.calibration_method", "MSE")[0] == 1


def test_tune(run: Run, tmp_path: Path) -> None:
    write_all(tmp_path, imbalanced())
    code, out, err = run("tune", *BUILD[1:], "--methods", "MinMax,KL")
    assert code == 0
    assert "Tuning Steps" in out
    assert "chart A, EndToEnd, MinMax, 0 layers of 16 bits" in err
    assert json.loads(Path("out/config.json").read_text())["quant"]["layer_configs"]
    code, _, err = run("tune", *BUILD[1:], "--force", "--min_cosine", "0.9999999")
    assert code == 1
    told = [line.split()[1:] for line in err.splitlines() if line.startswith("  roundoff ")]
    assert [words[0] for words in told] == ["bundle"]
    for words in told:
        assert main(words) == 0, words
    assert zipfile.is_zipfile("case.zip")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--methods", "MinMax,Maximum"), "'Maximum' is no calibration method"),
        (("--min_cosine", "2"), "'2' is not a number between 0 and 1"),
        (("--min_layer_cosine", "x"), "'x' is not a number between 0 and 1"),
    ],
)
def test_flags_of_tune(run: Run, words: tuple[str, ...], message: str) -> None:
    code, _, err = run("tune", *BUILD[1:], *words)
    assert code == 2
    assert message in err


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"quant": {"calibration_mean": [1, 2]}}, "quant.input_configs: calibration_mean has 2 numbers"),
        ({"input_processors": [{"tensor_name": "DEFAULT", "std": [1, 2]}]}, "input_processors: std has 2 numbers"),
    ],
)
def test_means_that_fit_no_channels_are_refused(run: Run, tmp_path: Path, config: Any, text: str) -> None:
    whole = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    whole["quant"]["input_configs"][0] |= config.pop("quant", {})
    (tmp_path / "wrong.json").write_text(json.dumps(whole | config), encoding="utf-8")
    model = BUILD[BUILD.index("--input") + 1]
    code, _, err = run("build", "--input", model, "--output_dir", "out", "--config", "wrong.json")
    assert code == 2
    assert text in err
    assert "has 3 channels; give one for each, or one for all" in err
    assert not (tmp_path / "out").exists()
