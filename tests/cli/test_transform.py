"""The command ``roundoff transform``."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from roundoff.cli import main
from roundoff.core.document import load_document
from roundoff.demo import load_split, model_path
from roundoff.graph.load import load_model
from roundoff.graph.readers.reader import read_quantized
from roundoff.quantize.plan_file import load_plan
from roundoff.run.evaluators import split_samples
from tests.graph.quantized_nets import run_model
from tests.quantize.transforms.test_equalize import unbalanced

Run = Callable[..., tuple[int, str, str]]
BASE = ("net.onnx", "--data", "calibration.npy", "--target", "generic-int8-per-tensor", "-o", "out")


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in a folder with a network that one scale per weight does not suit."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    rng = np.random.default_rng(0)
    onnx.save(unbalanced(relu6=True).proto, "net.onnx")
    np.save("calibration.npy", rng.normal(size=(8, 3, 8, 8)).astype(np.float32))
    np.save("test.npy", rng.normal(size=(6, 3, 8, 8)).astype(np.float32))

    def call(*words: str) -> tuple[int, str, str]:
        return (main(["transform", *words]), *capsys.readouterr())

    return call


def test_steps_are_kept_when_they_help(run: Run) -> None:
    code, out, err = run("equalize,bias-correct", *BASE, "--test", "test.npy")
    assert (code, err) == (0, "written: out\n")
    assert out.startswith("KEPT: explicit_bias, equalize, bias_correct: SQNR ")
    assert max(map(len, out.splitlines())) <= 80
    assert "on 6 samples, which nothing else was decided on" in out
    assert sorted(path.name for path in Path("out").iterdir() if not path.name.startswith(".")) == [
        "net_deploy_model.onnx",
        "net_fake_quant_model.onnx",
        "net_float_model.onnx",
        "plan.json",
        "run.json",
        "transform.csv",
    ]
    feed = {"x": np.load("test.npy")[:1]}
    before, after = (
        run_model(load_model(Path(name)), feed)[0] for name in ("net.onnx", "out/net_float_model.onnx")
    )
    np.testing.assert_allclose(before, after, atol=1e-4 * np.abs(before).max())
    fake, deployed = (
        run_model(load_model(Path(f"out/net_{name}_model.onnx")), feed)[0] for name in ("fake_quant", "deploy")
    )
    np.testing.assert_array_equal(fake, deployed)
    report = load_document(Path("out/run.json")).transform
    assert report is not None
    assert report.kept
    assert report.sqnr_db[1] > report.sqnr_db[0] + 10
    assert Path("out/transform.csv").read_text().startswith("step,kind,node,role,what\n")


def test_a_third_of_the_samples_judges_what_the_others_made(run: Run) -> None:
    given = np.random.default_rng(1).normal(size=(48, 3, 8, 8)).astype(np.float32)
    np.save("calibration.npy", given)
    code, out, _ = run("equalize,bias-correct", *BASE)
    assert code == 0
    assert "on 16 samples, which nothing else was decided on" in out
    report = load_document(Path("out/run.json")).transform
    assert report is not None
    assert report.unseen
    # The figure is that of the file that was written, on the samples that were held out.
    held = given[list(split_samples(48).held_out)]
    exact, found = (
        np.concatenate([run_model(load_model(Path(name)), {"x": row[None]})[0] for row in held])
        for name in ("net.onnx", "out/net_fake_quant_model.onnx")
    )
    assert report.sqnr_db[1] == pytest.approx(
        10 * np.log10((exact**2).sum() / ((exact - found) ** 2).sum()), abs=1e-3
    )
    assert report.gain is not None
    assert 0 < report.gain[0] < report.sqnr_db[1] - report.sqnr_db[0] < report.gain[1]


def test_what_costs_something_is_not_kept_for_a_gain_that_may_be_chance(run: Run) -> None:
    """Of 16 digits 8 calibrate: equalization harms the others and would help 400 more, by chance."""
    np.save("images.npy", load_split("calibration")[0][:16])
    words = ("--data", "images.npy", "--target", "generic-int8-per-tensor", "-o", "out")
    code, out, _ = run("equalize,bias-correct", str(model_path()), *words)
    assert code == 1
    assert out.startswith("REVERTED: what equalize, bias_correct changes may be chance: SQNR ")
    assert not any(node.op_type == "Min" for node in onnx.load("out/digits_float_model.onnx").graph.node)


def test_what_makes_it_worse_is_undone(run: Run) -> None:
    Path("eval.py").write_text(
        "COUNT = []\ndef evaluate(run, samples):\n    COUNT.append(1)\n    return -len(COUNT)\nNAME = 'calls'\n"
    )
    code, out, _ = run("equalize", *BASE, "--evaluator", "eval.py")
    assert code == 1
    first = " ".join(out.split())
    assert first.startswith("REVERTED: equalize made the quantized model worse: calls -2 -> -3 (float -1), SQNR ")
    # The models written are those without it.
    assert not any(node.op_type == "Min" for node in onnx.load("out/net_float_model.onnx").graph.node)


def test_labels_measure_accuracy(run: Run) -> None:
    images, labels = load_split("test")
    np.save("images.npy", images[:40])
    np.save("labels.npy", labels[:40])
    words = ("--data", "images.npy", "--target", "generic-int8", "-o", "out", "--samples", "40")
    code, out, _ = run("bias-correct", str(model_path()), *words, "--labels", "labels.npy")
    assert code in (0, 1)
    headline = " ".join(out.split("  before")[0].split())
    assert re.match(r"(KEPT|REVERTED): .*accuracy [\d.]+ % -> [\d.]+ % \(float [\d.]+ %\), SQNR", headline)
    np.save("few.npy", labels[:3])
    code, _, err = run("bias-correct", str(model_path()), *words, "--force", "--labels", "few.npy")
    assert code == 2
    assert "There are 3 labels for 40 rows of samples." in err


def test_labels_need_rows_of_scores(run: Run) -> None:
    np.save("labels.npy", np.arange(8))
    code, _, err = run("equalize", *BASE, "--labels", "labels.npy")
    assert code == 2
    assert "No output of the model has a row of scores" in err


def test_nothing_to_do_is_fine(run: Run) -> None:
    code, out, _ = run("equalize", *BASE, "--option", "clip=keep")
    assert code == 0
    assert out.startswith("NOTHING TO DO: equalize changed nothing")
    assert "note: equalize: no two layers share channels to scale" in out


def test_json_is_the_document(run: Run) -> None:
    code, out, _ = run("round", *BASE, "--json", "--option", "iterations=2", "--option", "round.samples=3")
    assert code in (0, 1)
    content = json.loads(out)["transform"]
    assert content["steps"][0]["name"] == "round_weights"
    assert content["steps"][0]["options"] == {"iterations": "2", "samples": "3"}


@pytest.mark.parametrize(
    ("words", "what", "fix"),
    [
        (["smoth"], "There is no step 'smoth'.", "did you mean 'smooth'?"),
        (
            ["bias-correct,smooth"],
            "smooth changes the float model and cannot come behind bias_correct",
            "transforms first",
        ),
        (["smooth", "--option", "alpha"], "--option 'alpha' is not of the form KEY=VALUE.", "--option alpha=0.7"),
        (["smooth", "--option", "alfa=1"], "none of the steps has an option 'alfa'", "did you mean 'alpha'?"),
        (["smooth", "--option", "equalize.clip=keep"], "'equalize' is none of the steps", "choose one of: smooth"),
        (["smooth", "--option", "alpha=3"], "The option alpha is '3'", "give a number from 0 to 1, or auto"),
        (["smooth", "--nodes", "nowhere"], "has no node 'nowhere'", "choose one of"),
        (["smooth", "--evaluator", "none.py"], "The evaluator none.py does not exist", "check the path"),
    ],
)
def test_mistakes_are_named(run: Run, words: list[str], what: str, fix: str) -> None:
    code, _, err = run(words[0], *BASE, *words[1:])
    text = " ".join(err.split())
    assert code == 2
    assert what in text
    assert fix in text


def test_an_earlier_result_is_not_overwritten(run: Run) -> None:
    assert run("explicit-bias", *BASE)[0] == 0
    assert run("explicit-bias", *BASE)[0] == 2
    assert run("explicit-bias", *BASE, "--force")[0] == 0


def test_rules_may_name_nodes_that_were_folded(run: Run) -> None:
    images, _ = load_split("test")
    np.save("images.npy", images[:10])
    folded = [node.name for node in onnx.load(model_path()).graph.node if node.op_type == "BatchNormalization"]
    assert folded
    words = ("--data", "images.npy", "--target", "generic-int8", "-o", "out", "--set", f"{folded[0]}=float")
    code, out, err = run("smooth", str(model_path()), *words, "--option", "threshold=1")
    assert code in (0, 1), err
    assert "took part" in out


def test_the_result_has_a_plan_that_other_commands_take(run: Run) -> None:
    """What was written is quantized by a plan, as what quantize writes: its scales are those of the file."""
    code, out, _ = run("equalize,bias-correct", *BASE, "--test", "test.npy")
    assert code == 0
    saved = load_plan(Path("out"))
    assert saved.method == "minmax"
    assert saved.model == saved.files["float"] == "net_float_model.onnx"
    written = read_quantized(load_model(Path("out", saved.files["fake_quant"]))).quantizers
    scales = {(each.tensor, each.kind): each.params.scale.tolist() for each in written}
    planned = {(each.tensor, each.kind): each.params.scale.tolist() for each in saved.quantizers()}
    assert scales == {key: pytest.approx(planned[key]) for key in scales}
    assert main(["audit", "out"]) == 0
    assert main(["export-settings", "out", "--dialect", "all", "-o", "settings"]) == 0
    assert Path("settings").is_dir()
    # What equalizing a network with ReLU6 costs on the chip is told: a Min for each of them.
    assert re.search(r"adds +\d+ more node", out)
