"""The command ``roundoff export-settings``, and --dialect of others."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.numpy_helper import from_array, to_array

from roundoff.cli import main
from roundoff.demo import model_path
from roundoff.graph.load import load_model
from roundoff.graph.readers.reader import read_quantized
from tests.cli.clipped import CLIPPED, write_clipped
from tests.cli.inspecting import Run, runner
from tests.graph.quantized_nets import run_model
from tests.quantize.transforms.test_equalize import unbalanced

FIXED = "fixed/net_fake_quant_model.onnx"
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
    code = main(
        ["layers", "s/digits_float_model.onnx", "--quantized", "s/digits.encodings", "--data", DATA, "--json"]
    )
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
    # 460 other digits have 32.3 dB.
    said = re.search(r"REPAIRED: SQNR of 'logits' 4\.1 -> at least ([\d.]+) dB", capsys.readouterr().out)
    assert said is not None
    assert 30 < float(said[1]) <= 32.3
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


@pytest.fixture
def equalized(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with ``net.onnx``, and ``fixed``, where it was repaired by another graph; what was printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    onnx.save(unbalanced(relu6=True).proto, "net.onnx")
    np.save("data.npy", np.random.default_rng(0).normal(size=(8, 3, 8, 8)).astype(np.float32))
    words = [
        "--data",
        "data.npy",
        "--target",
        "generic-int8-per-tensor",
        "--fix",
        "--dialect",
        "all",
        "-o",
        "fixed",
    ]
    main(["diagnose", "net.onnx", *words])
    out = capsys.readouterr().out
    assert "equalize" in out
    return out


def _quantized(folder: str, model: str, out: str) -> "subprocess.CompletedProcess[str]":
    np.savez("samples.npz", x=np.load("data.npy"))
    command = [sys.executable, f"{folder}/net_onnxruntime.py", model, out, "samples.npz"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _noise(model: str) -> float:
    """Power of what a model gives on the samples, less what the user's gives."""
    data = np.load("data.npy")
    found, wanted = (
        np.concatenate([run_model(load_model(path), {"x": each[None]})[0] for each in data])
        for path in (model, "net.onnx")
    )
    return float(np.square(found - wanted).mean())


def _with_plain_biases() -> str:
    """The repaired model with biases as rounding gives them."""
    given, proto = (onnx.load(path) for path in ("fixed/net_float_model.onnx", FIXED))
    biases = {each.name: to_array(each) for each in given.graph.initializer}
    stored = {each.name: each for each in proto.graph.initializer}
    for name in ("b0", "b1", "out_bias"):
        codes = np.rint(biases[name] / to_array(stored[f"{name}_scale"])).astype(np.int32)
        assert not np.array_equal(codes, to_array(stored[f"{name}_codes"]))
        stored[f"{name}_codes"].CopyFrom(from_array(codes, f"{name}_codes"))
    onnx.save(proto, "plain.onnx")
    return "plain.onnx"


@pytest.mark.usefixtures("equalized")
def test_settings_of_a_changed_graph_go_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export-settings", "fixed", "--dialect", "all", "-o", "s"]) == 0
    out = capsys.readouterr().out
    assert "net_float_model.onnx: the float model that names and scales belong to" in " ".join(out.split())
    record = json.loads(Path("s/settings.json").read_text())
    assert all("net_float_model.onnx" in each["use"] for each in record.values())
    for folder in ("s", "fixed"):
        refused = _quantized(folder, "net.onnx", f"{folder}_1.onnx")
        assert refused.returncode == 1
        assert "net.onnx is not the model that these settings are for" in refused.stderr
        assert f"{folder}/net_float_model.onnx {folder}_1.onnx samples.npz" in refused.stderr
        assert not Path(f"{folder}_1.onnx").exists()
        done = _quantized(folder, f"{folder}/net_float_model.onnx", f"{folder}_2.onnx")
        assert done.returncode == 0, done.stderr
        theirs = read_quantized(load_model(f"{folder}_2.onnx"))
        ours = {each.tensor: each.params for each in read_quantized(load_model(FIXED)).quantizers}
        assert {"w0", "w1", "w2", "act0", "act1"} <= {each.tensor for each in theirs.quantizers}
        assert all(np.array_equal(each.params.scale, ours[each.tensor].scale) for each in theirs.quantizers)
        # Constants of Min stay in float there, which can only be better; biases are not corrected, which is said.
        assert _noise(f"{folder}_2.onnx") < 1.05 * _noise(_with_plain_biases())
        told = json.loads(Path(f"{folder}/settings.json").read_text())["onnxruntime"]["not_expressible"]
        assert any("biases that were corrected: 'b0', 'b1', 'out_bias'" in text for text in told)


def test_what_a_repair_cannot_say_is_printed(equalized: str) -> None:
    told = " ".join(equalized.split())
    assert "SETTINGS: for 8 tools; how to use them is in fixed/settings.json" in told
    assert "model net_float_model.onnx: give the tools this one" in told
    assert "not expressible in roundoff, pulsar2, horizon, amct, nncf: the scales and zero points" in told
    assert max(map(len, equalized.splitlines())) <= 80
    theirs = {name for node in load_model("net.onnx").proto.graph.node for name in (*node.input, *node.output)}
    record = json.loads(Path("fixed/settings.json").read_text())
    lost = [text for each in record.values() for text in each["not_expressible"] if "'" in text]
    strange = [text for text in lost if "_Min'" in text]
    assert strange
    assert "act0_Min" not in theirs
    assert all("(names in net_float_model.onnx)" in text for text in strange)


@pytest.mark.usefixtures("equalized")
def test_settings_that_say_nothing_are_said_to(capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(Path("fixed/settings.json").read_text())["pulsar2"]
    assert record["files"] == []
    assert record["said"].endswith("no file: nothing that it can be told differs from its default")
    assert not Path("fixed/net_pulsar2.json").exists()
    assert main(["export-settings", "fixed", "--dialect", "pulsar2", "-o", "s"]) == 0
    assert capsys.readouterr().out.startswith("NO SETTINGS: nothing that can be told differs from defaults")


def test_nodes_without_names_are_found_in_a_model_with_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    proto = unbalanced().proto
    for node in proto.graph.node:
        node.name = ""
    onnx.save(proto, "net.onnx")
    np.save("data.npy", np.random.default_rng(0).normal(size=(8, 3, 8, 8)).astype(np.float32))
    words = ["--data", "data.npy", "--target", "generic-int8", "--set", "Conv_4=float", "-o", "q"]
    assert main(["quantize", "net.onnx", *words]) == 1
    assert main(["export-settings", "q", "--dialect", "onnxruntime", "-o", "s"]) == 0
    capsys.readouterr()
    excluded = json.loads(Path("s/net_onnxruntime.json").read_text())["nodes_to_exclude"]
    # What the Clip writes only the convolution reads, so it is not rounded either.
    assert excluded == ["Clip_3", "Conv_4"]
    refused = _quantized("s", "net.onnx", "o.onnx")
    assert refused.returncode == 1
    assert "fix: python s/net_onnxruntime.py" in refused.stderr
    assert _quantized("s", "s/net_float_model.onnx", "o.onnx").returncode == 0
    kinds = {node.op_type for node in onnx.load("o.onnx").graph.node if "out" in node.output}
    assert kinds == {"Conv"}
