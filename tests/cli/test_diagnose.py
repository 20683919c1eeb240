"""The command ``roundoff diagnose``."""

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
from roundoff.graph.insertion import insert_quantizers
from tests.quantized import with_scale_times
from tests.studies.layers.support import demo_network

Run = Callable[..., tuple[int, str, str]]
MODEL = str(model_path())


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``roundoff diagnose`` in a folder with images, their labels, and models with and without a fault."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    images, labels = load_split("calibration")
    np.save("images.npy", images[:24])
    np.save("labels.npy", labels[:24])
    np.save("others.npy", load_split("test")[0][:64])
    quantized, _ = demo_network()
    spoilt = with_scale_times(quantized, ["block3/relu"], 0.1)
    for name, each in {"good": quantized, "bad": spoilt}.items():
        onnx.save(insert_quantizers(each.float_model, each.quantizers).proto, f"{name}.onnx")

    def call(*words: str, quantized: str | None = "bad.onnx") -> tuple[int, str, str]:
        source = [] if quantized is None else ["--quantized", quantized]
        code = main(["diagnose", MODEL, *source, "--data", "images.npy", *words])
        return (code, *capsys.readouterr())

    return call


def test_the_verdict_fits_a_screen_and_names_node_cause_proof_and_remedy(run: Run) -> None:
    code, out, err = run()
    lines = out.splitlines()
    assert code == 1
    assert lines[0] == "CULPRITS: Values are clipped, at block3/relu; output SQNR 2.8 dB"
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    text = " ".join(out.split())
    assert "1 block3/relu (100 % of the loss): clipping" in text
    assert "proof the range of 'block3/relu' (Relu) widened from " in text
    assert "SQNR of 'logits'" in text
    assert "remedy set the range of 'block3/relu' to " in text
    assert "victims" in text
    assert "--fix -o repaired" in text
    first = err.splitlines()[0]
    assert first.startswith("numbers in the file: ")


def test_a_good_model_is_healthy(run: Run) -> None:
    code, out, _ = run(quantized="good.onnx")
    assert code == 0
    assert out.startswith("HEALTHY: no fault found: output SQNR ")


def test_a_model_quantized_for_a_target(run: Run) -> None:
    code, out, _ = run("--target", "generic-int8", quantized=None)
    assert (code, out.split(":")[0]) == (0, "HEALTHY")


def test_the_document_holds_everything(run: Run) -> None:
    code, out, _ = run("--json")
    found = json.loads(out)["diagnosis"]
    assert (code, found["kind"], found["side"]) == (1, "culprits", "quantization")
    (finding,) = found["findings"]
    assert (finding["cause"], finding["proven"], finding["tensors"]) == ("clipping", True, ["block3/relu"])
    measure = finding["measures"][0]
    assert measure["after"] > measure["before"] + 10
    assert [each["name"]["text"] for each in found["checks"]] == [
        "numbers in the file",
        "outputs",
        "the file itself",
        "at no cost",
    ]


def test_a_run_can_be_written_and_read_again(run: Run) -> None:
    code, _, err = run("-o", "found")
    assert code == 1
    assert "written: found/run.json, found/findings.csv" in err
    read = load_document("found").diagnosis
    assert read is not None
    assert read.accused[0].cause == "clipping"
    assert "block3/relu" in Path("found/findings.csv").read_text(encoding="utf-8")


def test_it_can_be_repaired_and_the_written_model_keeps_what_was_measured(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run("--fix", "-o", "repaired", "--test-data", "others.npy")
    assert code == 0
    assert "kept" in out
    assert "repaired with 24 samples; the figure is of 64 others" in " ".join(out.split())
    found = load_document("repaired").diagnosis
    assert found is not None
    assert found.repair is not None
    assert found.repair.reached
    measured = found.repair.measures[0]
    again, text, _ = run("--json", quantized="repaired/digits_fake_quant_model.onnx")
    read = json.loads(text)["diagnosis"]
    assert (again, read["kind"], found.repair.again) == (0, "healthy", "healthy")
    # What was claimed of 64 samples holds for hundreds that nobody looked at: the interval has their figure.
    np.save("images.npy", load_split("test")[0][64:464])
    _, text, _ = run("--json", quantized="repaired/digits_fake_quant_model.onnx")
    low, high = found.repair.interval or (0.0, 0.0)
    assert low <= json.loads(text)["diagnosis"]["measures"][0]["before"] <= high + 1
    assert low <= measured.after <= high <= low + 6
    assert main(["layers", "--quantized", "repaired", "--data", "images.npy"]) == 0
    # Only the float model that was written with the scales belongs to them, and the error names it.
    assert main(["layers", str(model_path()), "--quantized", "repaired", "--data", "images.npy"]) == 2
    assert "give repaired/digits_float_model.onnx, or leave" in " ".join(capsys.readouterr().err.split())


def test_a_recipe_is_repaired_for_its_target(run: Run) -> None:
    code, out, _ = run(
        "--target", "generic-int8", "--set", "block3/relu=float", "--fix", "-o", "x", quantized=None
    )
    assert (code, out.split(":")[0]) == (0, "HEALTHY")
    assert sorted(path.name for path in Path("x").iterdir() if not path.name.startswith(".")) == [
        "findings.csv",
        "run.json",
    ]


def test_the_users_metric_is_told_and_decides(run: Run) -> None:
    code, out, err = run("--labels", "labels.npy")
    assert code == 1
    assert "top-1 accuracy: float " in err
    assert "top-1 accuracy" in out


def test_a_float_model_that_only_guesses_is_not_the_fault_of_quantization(run: Run) -> None:
    np.save("wrong.npy", (np.load("labels.npy") + 1) % 10)
    code, out, _ = run("--labels", "wrong.npy", quantized="good.onnx")
    text = " ".join(out.split())
    assert (code, text.split(":")[0]) == (1, "NOT A QUANTIZATION PROBLEM")
    assert "look at how samples are processed, and at their labels" in text


def test_labels_of_other_classes_lead_the_verdict(run: Run) -> None:
    np.save("beyond.npy", np.load("labels.npy") + 10)
    code, out, _ = run("--labels", "beyond.npy", quantized="good.onnx")
    assert code == 1
    assert out.startswith("NOT ENOUGH EVIDENCE: 24 of 24 labels are no class of the network, first ")


def test_figures_of_fewer_samples_than_the_scores_say_so(run: Run) -> None:
    images, labels = load_split("calibration")
    np.save("images.npy", images[:80])
    np.save("labels.npy", labels[:80])
    _, out, err = run("--labels", "labels.npy", quantized="good.onnx")
    header = next(line for line in out.splitlines() if "top-1 accuracy" in line)
    used = re.search(r"top-1 agreement \S+ % \((\d+) samples\)", " ".join(err.split()))
    assert used is not None
    assert 0 < int(used[1]) < 80
    assert f"output SQNR, n={used[1]} " in header
    assert header.endswith(f"top-1 agreement, n={used[1]}")


def test_an_evaluator_may_measure(run: Run) -> None:
    Path("eval.py").write_text(
        "NAME = 'mean logit'\ndef evaluate(run, samples):\n"
        "    return [float(run(feed)['logits'].max()) for feed in samples]\n",
        encoding="utf-8",
    )
    code, _, err = run("--evaluator", "eval.py", quantized="good.onnx")
    assert code == 0
    assert "mean logit: float " in err


@pytest.mark.parametrize(
    ("words", "said", "fix"),
    [
        (["--fix"], "--fix writes a repaired model, but no folder was given.", "add -o DIR"),
        (["--force"], "--force has no effect without -o or --html.", "add -o DIR"),
        (
            ["--calibration", "mse"],
            "--calibration says how to quantize, but bad.onnx is quantized already.",
            "leave",
        ),
    ],
)
def test_options_without_effect_are_refused(run: Run, words: list[str], said: str, fix: str) -> None:
    code, _, err = run(*words)
    assert code == 2
    assert said in err
    assert fix in err


def test_a_model_without_quantizers_is_refused(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    del run
    code = main(["diagnose", MODEL, "--quantized", MODEL, "--data", "images.npy"])
    assert code == 2
    assert "given with --quantized, holds no quantizers: it is a float model." in capsys.readouterr().err


def test_samples_for_which_the_float_model_gives_no_numbers(run: Run) -> None:
    images = np.load("images.npy")
    images[2] = np.nan
    np.save("images.npy", images)
    code, out, _ = run(quantized="good.onnx")
    assert code == 1
    assert out.startswith("NOT ENOUGH EVIDENCE: ")
    assert "nothing but NaN and infinite values for 1 sample, first 2: left out" in " ".join(out.split())
    np.save("images.npy", images * np.nan)
    code, out, err = run(quantized="good.onnx")
    assert (code, out) == (2, "")
    assert "in float gives nothing but NaN and infinite values, for every sample" in " ".join(err.split())


def joined(text: str) -> str:
    """What a shell makes of lines that end in a backslash."""
    return " ".join(text.replace("\\\n", " ").split())


def test_the_next_command_has_all_that_was_said(run: Run) -> None:
    _, out, _ = run("--labels", "labels.npy", "--samples=20")
    wanted = "--samples 20 --quantized bad.onnx --labels labels.npy --fix -o repaired"
    assert wanted in joined(out)
    chip = str(model_path().with_name("tiny-chip.toml"))
    _, out, _ = run(
        "--target", chip, "--set", "block1/relu=u16", "--weight", "mse", "--time", "0.001s", quantized=None
    )
    assert f"--data images.npy --target {chip} --set block1/relu=u16 --weight mse" in joined(out)


def test_without_time_the_next_command_is_the_same_with_more(run: Run) -> None:
    code, out, _ = run("--time", "0.001s", "--fix", "-o", "found")
    text = joined(out)
    assert (code, "cause not found in the time given" in text) == (1, True), text
    assert f"next roundoff diagnose {MODEL} --data images.npy --quantized bad.onnx --fix -o found --force" in text


def test_two_diagnoses_are_told_apart_over_their_samples(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run("-o", "before")
    run("-o", "after", quantized="good.onnx")
    assert main(["diff", "before", "after", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["diff"]
    assert (found["kind"], found["pairing"]) == ("better", "paired")
    (row,) = found["rows"]
    assert row["samples"] == 24
    assert row["probability"] < 0.01
    assert main(["diff", "before", "before"]) == 0
    assert capsys.readouterr().out.startswith("SAME")


def test_the_commands_behind_a_culprit_can_be_typed(run: Run) -> None:
    _, out, _ = run("-o", "found")
    steps = [line.strip() for line in out.splitlines() if line.strip().startswith("roundoff ")]
    assert steps[-2:] == ["roundoff reproduce found --finding 1 -o case", "roundoff bundle found -o ticket.zip"]
    assert main(steps[-2].split()[1:]) == 0
    assert Path("case/run.py").is_file()


def test_few_samples_are_split_and_what_they_leave_open_is_said(run: Run) -> None:
    code, out, err = run("--fix", "-o", "found")
    text = " ".join(out.split())
    said = "REPAIRED: SQNR of 'logits' 2.8 -> at least 31.0 dB (33.3 expected); up to 33.5 on other samples (95 %)"
    assert (code, said in text) == (0, True), out + err
    assert "figure of all 24 samples, each with ranges found without it" in text
    # What other samples confirmed asks for no more of them.
    assert "HELD_OUT" not in text
    assert "next roundoff export-settings found --dialect all -o settings" in text
    assert "trial" not in err


def test_test_data_go_with_a_repair(run: Run) -> None:
    code, _, error = run("--test-data", "others.npy")
    assert (code, "--test-data has no effect without --fix" in error) == (2, True)


def test_a_repair_that_is_not_needed_is_said(run: Run) -> None:
    code, _, error = run("--fix", "-o", "run", "--dialect", "pulsar2", quantized="good.onnx")
    assert code == 0, error
    told = " ".join(error.split())
    assert "nothing was repaired, so no model and no settings of --dialect had to be written" in told
    assert not Path("run/plan.json").exists()
