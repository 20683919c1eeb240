"""The command ``roundoff quantize``."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from roundoff.cli import main
from roundoff.core.tensors import Array
from roundoff.demo import load_split, model_path
from roundoff.graph.load import load_model
from roundoff.graph.readers.reader import read_quantized
from roundoff.quantize.plan_file import load_plan

Run = Callable[..., tuple[int, str, str]]
MODEL = str(model_path())


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``roundoff quantize`` on the demo's network, in a folder with images."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    np.save("images.npy", load_split("calibration")[0][:12])

    def call(*words: str, target: str = "generic-int8", out: str = "out") -> tuple[int, str, str]:
        code = main(["quantize", MODEL, "--data", "images.npy", "--target", target, "-o", out, *words])
        return (code, *capsys.readouterr())

    return call


def _outputs(path: str, images: Array) -> Array:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"image": images})[0])


def test_it_writes_models_that_stock_onnxruntime_runs(run: Run) -> None:
    code, out, _ = run()
    assert code == 0
    assert out.splitlines()[0] == "FINE: digits.onnx quantized for generic-int8, minmax on 12 samples"
    assert "logits: cosine 0.999" in out
    assert "the prepared model's outputs equal the original's" in " ".join(out.split())
    images, labels = load_split("test")
    fake = _outputs("out/digits_fake_quant_model.onnx", images)
    deploy = _outputs("out/digits_deploy_model.onnx", images)
    assert np.mean(fake.argmax(axis=1) == labels) > 0.98
    assert np.mean(deploy.argmax(axis=1) == labels) > 0.98


def test_outputs_that_do_not_agree_are_called_lossy_with_what_to_type_next(run: Run) -> None:
    code, out, _ = run("--set", "*=weight=s4")
    assert code == 1
    assert out.startswith("LOSSY: digits.onnx")
    assert "next roundoff layers" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80


def test_the_deploy_model_holds_integers_only(run: Run) -> None:
    run()
    graph = load_model(Path("out/digits_deploy_model.onnx")).proto.graph
    large = [tensor for tensor in graph.initializer if np.prod(tensor.dims) > 64]
    assert {tensor.data_type for tensor in large} == {3}  # int8
    assert 6 in {tensor.data_type for tensor in graph.initializer}  # int32 biases


def test_the_plan_says_what_the_model_holds(run: Run) -> None:
    run()
    saved = load_plan(Path("out"))
    read = {
        each.name: each for each in read_quantized(load_model(Path("out/digits_fake_quant_model.onnx"))).quantizers
    }
    assert saved.samples == 12
    for quantizer in saved.quantizers():
        np.testing.assert_array_equal(read[quantizer.name].params.scale, quantizer.params.scale)
        np.testing.assert_array_equal(read[quantizer.name].params.zero_point, quantizer.params.zero_point)


def test_statistics_serve_another_plan(run: Run) -> None:
    run("--calibration", "mse", out="first")
    again = run("--calibration", "mse", "--statistics", "first/calibration.npz", out="again")
    assert again[0] == 0
    assert load_plan(Path("again")).numbers == load_plan(Path("first")).numbers
    other = run("--calibration", "percentile", "--statistics", "first/calibration.npz", out="other")
    assert other[0] == 0
    assert load_plan(Path("other")).numbers != load_plan(Path("first")).numbers


def test_with_statistics_samples_are_not_needed(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run("--calibration", "mse", out="first")
    words = ["quantize", MODEL, "--target", "generic-int8", "--statistics", "first/calibration.npz", "-o", "again"]
    assert main([*words, "--calibration", "mse"]) == 0
    assert capsys.readouterr().out.startswith("NOT JUDGED: digits.onnx quantized for generic-int8")
    assert load_plan(Path("again")).numbers == load_plan(Path("first")).numbers
    assert main([*words, "--calibration", "mse,minmax", "--force"]) == 2
    assert "none were given" in capsys.readouterr().err


def test_statistics_of_ranges_only_are_not_enough_for_a_histogram_method(run: Run) -> None:
    run(out="first")
    code, _, err = run("--calibration", "mse", "--statistics", "first/calibration.npz", out="again")
    assert code == 2
    assert "fix:" in err
    assert not Path("again").exists()


def test_several_methods_are_tried_and_the_best_is_taken(run: Run) -> None:
    code, out, _ = run("--calibration", "minmax,mse,entropy")
    assert code == 0
    table = [line for line in out.splitlines() if line.startswith(("minmax", "mse", "entropy"))]
    assert len(table) == 3
    assert sum("taken" in line for line in table) == 1


def test_rules_are_resolved_and_reported(run: Run) -> None:
    code, out, _ = run("--set", "stem/norm=u16", "--set", "op:Gemm=float")
    assert code == 0
    assert "stem/norm=" in out
    nodes = {node.node: node for node in load_plan(Path("out")).plan.nodes}
    [gemm] = [node for node in nodes.values() if node.op_type == "Gemm"]
    assert (gemm.effective.activation, gemm.effective.weight) == ("float", "float")
    assert nodes["stem/conv"].effective.activation == "u16"


def test_json_has_everything(run: Run) -> None:
    code, out, _ = run("--json", "--calibration", "minmax,mse")
    content = json.loads(out)
    assert code == 0
    assert set(content["outputs"]) == {"minmax", "mse"}
    assert content["outputs"]["mse"][0]["score"]["values"]["sqnr_db"] > 20
    assert len(content["nodes"]) == 23
    assert content["judgement"]["grade"] == "fine"
    assert content["notes"]
    assert all(isinstance(note, str) for note in content["notes"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--calibration", "maxmin"), "no calibration method 'maxmin'"),
        (("--calibration-option", "percentile=0.999"), "has no effect with minmax"),
        (("--calibration-option", "percentile"), "is not of the form KEY=NUMBER"),
        (("--calibration", "percentile", "--calibration-option", "percentil=1"), "has an option 'percentil'"),
        (("--set", "nowhere=u16"), "nowhere"),
        (("--set", "stem/conv"), "stem/conv"),
        (("--prefix", "a/b"), "not the start of a file name"),
        (("--statistics", "images.npy"), "images.npy"),
        (("--rules", "none.toml"), "none.toml does not exist"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_runs(run: Run, words: tuple[str, ...], said: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert said in err
    assert "fix:" in err
    assert not Path("out").exists()


def test_an_unknown_target_suggests_the_nearest(run: Run) -> None:
    code, _, err = run(target="generic-in8")
    assert code == 2
    assert "generic-int8" in err


def test_an_earlier_result_is_replaced_only_with_force(run: Run) -> None:
    run()
    assert run()[0] == 2
    assert run("--force", "--prefix", "other")[0] == 0
    assert Path("out/other_deploy_model.onnx").exists()
    assert not Path("out/digits_deploy_model.onnx").exists()


def test_the_same_twice_gives_the_same_files(run: Run) -> None:
    run(out="first")
    run(out="second")
    for name in ("digits_fake_quant_model.onnx", "digits_deploy_model.onnx", "plan.json", "calibration.npz"):
        assert Path("first", name).read_bytes() == Path("second", name).read_bytes()
