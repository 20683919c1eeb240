"""The command ``roundoff export-settings``, and --dialect of others."""

import json
import shutil
from pathlib import Path

import pytest

from roundoff.cli import main
from roundoff.demo import model_path
from tests.cli.clipped import CLIPPED, write_clipped
from tests.cli.inspecting import Run, runner

DATA = str(model_path().parent / "samples.npy")


@pytest.fixture
def export(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs export-settings in a folder with a quantized model, ``q``."""
    call = runner("export-settings", tmp_path, capsys, monkeypatch)
    shutil.copy(model_path(), "digits.onnx")
    words = ["--data", DATA, "--target", "generic-int8", "--set", "block1/depthwise=u16", "--set", "logits=float"]
    assert main(["quantize", "digits.onnx", *words, "-o", "q"]) == 0

    def fresh(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return call(*words)

    return fresh


def test_all_dialects_are_written_and_told(export: Run) -> None:
    code, out, error = export("q", "--dialect", "all", "-o", "s")
    assert code == 0, error
    assert out.startswith("WRITTEN: settings for 9 tools in s")
    assert "not expressible in rknn: 16-bit integers (float16 instead)" in out
    record = json.loads(Path("s/settings.json").read_text())
    files = {file for each in record.values() for file in each["files"]}
    assert files | {"settings.json", "digits_float_model.onnx"} == {
        path.name for path in Path("s").iterdir() if not path.name.startswith(".")
    }


def test_encodings_serve_as_a_quantized_model(export: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert export("q", "--dialect", "aimet", "-o", "s")[0] == 0
    code = main(["layers", "s/digits_float_model.onnx", "--quantized", "s/digits.encodings", "--data", DATA])
    assert code == 0
    assert "s/digits.encodings" in capsys.readouterr().out
    assert main(["layers", "--quantized", "s/digits.encodings", "--data", DATA]) == 2
    assert "holds scales only" in capsys.readouterr().err


def test_a_quantized_model_of_any_tool_will_do(export: Run) -> None:
    code, out, error = export("q/digits_fake_quant_model.onnx", "--dialect", "nncf", "-o", "s", "--json")
    assert code == 0, error
    assert json.loads(out)["nncf"]["files"] == [
        "digits_fake_quant_model_nncf.json",
        "digits_fake_quant_model_nncf.py",
    ]
    code, _, error = export("digits.onnx", "--dialect", "nncf", "-o", "t")
    assert code == 2
    assert "Nothing in digits.onnx is quantized." in error


def test_the_float_model_may_have_moved(export: Run) -> None:
    Path("digits.onnx").rename("moved.onnx")
    code, _, error = export("q", "--dialect", "pulsar2", "-o", "s")
    assert code == 0
    assert "digits.onnx is not there" in error
    assert export("q", "--dialect", "pulsar2", "-o", "t", "--model", "moved.onnx")[0] == 0


def test_what_cannot_be_used_is_refused(export: Run) -> None:
    code, _, error = export("q", "--dialect", "rkn", "-o", "s")
    assert code == 2
    assert "There is no dialect 'rkn'" in error
    Path("empty").mkdir()
    code, _, error = export("empty", "--dialect", "rknn", "-o", "s")
    assert code == 2
    assert "empty has no plan.json" in error
    assert export("q", "--dialect", "rknn", "-o", "s")[0] == 0
    code, _, error = export("q", "--dialect", "rknn", "-o", "s")
    assert code == 2
    assert "already holds a result" in error
    assert export("q", "--dialect", "rknn", "-o", "s", "--force")[0] == 0


def test_a_repair_is_written_in_dialects(export: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert export("q", "--dialect", "amct", "-o", "s")[0] == 0
    write_clipped(Path())
    words = ["diagnose", "float.onnx", "--quantized", "bad.onnx", "--data", "data.npz"]
    assert main([*words, "--dialect", "onnxruntime"]) == 2
    assert "--dialect has no effect without --fix." in capsys.readouterr().err
    assert main([*words, "--fix", "-o", "fixed", "--dialect", "onnxruntime,aimet"]) == 0
    settings = json.loads(Path("fixed/float_onnxruntime.json").read_text())
    entry = settings["extra_options"]["TensorQuantOverrides"][CLIPPED][0]
    assert entry["scale"] * 255 == pytest.approx(6, rel=0.02)
    again = ["layers", "float.onnx", "--quantized", "fixed/float.encodings", "--data", "data.npz"]
    assert main(again) == 0
    assert "FINE" in capsys.readouterr().out


def test_a_search_is_written_in_dialects(export: Run) -> None:
    assert export("q", "--dialect", "amct", "-o", "s")[0] == 0
    words = ["tune", "digits.onnx", "--data", DATA, "--target", "generic-int8", "--max-trials", "1"]
    assert main([*words, "-o", "tuned", "--dialect", "rknn"]) == 0
    assert Path("tuned/digits.quantization.cfg").read_text() == "custom_quantize_layers: {}\n"
