"""Whatever a command judges: on evidence that can show nothing it says nothing good, and does not end with 0."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from roundoff import demo
from roundoff.cli import main

SAMPLES = 24
TARGET = ("--target", "generic-int8")
GOOD = ("FINE", "HEALTHY", "PASS", "MET", "NOTHING TO DO", "REPAIRED", "TOP ", "NOT WORSE", "KEPT")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's network and samples, and all that may be wrong with them."""
    folder = tmp_path_factory.mktemp("bad")
    with np.load(demo.model_path().parent / "digits.npz") as data:
        images = (data["images"][data["test"]][:SAMPLES, None] / 16).astype(np.float32)
        labels = data["labels"][data["test"]][:SAMPLES].astype(np.int64)
    np.save(folder / "good.npy", images)
    np.save(folder / "zero.npy", np.zeros_like(images))
    np.save(folder / "nan.npy", np.full_like(images, np.nan))
    some = images.copy()
    some[::3] = np.nan
    np.save(folder / "some_nan.npy", some)
    np.save(folder / "same.npy", np.repeat(images[:1], 8, axis=0))
    np.save(folder / "labels.npy", labels)
    np.save(folder / "beyond.npy", labels + 100)
    model = onnx.load(demo.model_path())
    onnx.save(model, folder / "digits.onnx")
    for each in model.graph.initializer:
        if list(each.dims) == [10]:
            bias = np.where(np.arange(10) == 3, 1e4, 0).astype(np.float32)
            each.CopyFrom(numpy_helper.from_array(bias, each.name))
    onnx.save(model, folder / "one_class.onnx")
    # The last MatMul of all samples overflows: nothing finite comes out.
    for each in model.graph.initializer:
        if list(each.dims) == [10]:
            each.CopyFrom(numpy_helper.from_array(np.full(10, np.inf, np.float32), each.name))
    onnx.save(model, folder / "infinite.onnx")
    # The only class always has a probability of 1.
    weight = next(each for each in model.graph.initializer if list(each.dims) == [10])
    weight.CopyFrom(numpy_helper.from_array(np.zeros(10, np.float32), weight.name))
    last = model.graph.output[0].name
    model.graph.node.append(helper.make_node("ReduceMax", [last], ["most"], name="most", axes=[1], keepdims=1))
    model.graph.node.append(helper.make_node("Softmax", ["most"], ["flat"], name="flat", axis=1))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("flat", onnx.TensorProto.FLOAT, None))
    onnx.save(model, folder / "flat.onnx")
    np.save(folder / "wrong.npy", (labels + 5) % 10)
    (folder / "nothing.py").write_text("def evaluate(run, samples):\n    return 0.0\n")
    (folder / "fickle.py").write_text(
        "import itertools\n\ncount = itertools.count()\n\n\ndef evaluate(run, samples):\n"
        "    return 0.5 + next(count) / 100\n"
    )
    return folder


Words = Callable[[str, str], list[str]]
COMMANDS: dict[str, Words] = {
    "quantize": lambda model, data: ["quantize", model, "--data", data, *TARGET, "-o", "quantized", "--force"],
    "layers": lambda model, data: ["layers", model, "--data", data, *TARGET],
    "diagnose": lambda model, data: ["diagnose", model, "--data", data, *TARGET],
    "diagnose-dumps": lambda model, data: ["diagnose", model, "--data", data, "--dumps", "dump"],
    "tune": lambda model, data: [
        *("tune", model, "--data", data, *TARGET, "--max-trials", "8", "-o", "tuned", "--force")
    ],
    "transform": lambda model, data: [
        "transform",
        "equalize",
        model,
        "--data",
        data,
        *TARGET,
        "-o",
        "t",
        "--force",
    ],
    "partial": lambda model, data: ["partial", model, "--data", data, *TARGET, "--top", "2"],
    "accumulate": lambda model, data: ["accumulate", model, "--data", data, *TARGET],
    "sensitivity": lambda model, data: ["sensitivity", model, "--data", data, *TARGET, "--kind", "node"],
    "samples": lambda model, data: ["samples", model, "--data", data, *TARGET],
    "compare": lambda model, data: ["compare", model, model, "--data", data],
}
CONDITIONS = {
    "zero": ("digits.onnx", "zero.npy", "the same number all over"),
    "nan": ("digits.onnx", "nan.npy", ""),
    "some nan": ("digits.onnx", "some_nan.npy", "NaN"),
    "one class": ("one_class.onnx", "good.npy", "class 3 for all"),
    "same": ("digits.onnx", "same.npy", "are the same one"),
    "flat": ("flat.onnx", "good.npy", "the same numbers for all"),
    "nothing finite": ("infinite.onnx", "good.npy", ""),
}


# These say what they measure on what was given: sides that agree, or an order of nodes; and inner tensors tell
# more than outputs that never change.
NO_GOAL = {
    "same": ("diagnose-dumps", "accumulate", "sensitivity", "samples", "compare"),
    "flat": ("compare",),
}


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_good_is_said(
    command: str, condition: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    model, data, said = CONDITIONS[condition]
    if command in NO_GOAL.get(condition, ()):
        pytest.skip("it judges no goal, or more than outputs")
    if command == "diagnose-dumps":
        assert main(["dump", model, "--data", data, "-o", "dump", "--force"]) == 0
        capsys.readouterr()
    code = main(COMMANDS[command](model, data))
    out, err = capsys.readouterr()
    assert code != 0, out
    assert "Traceback" not in err
    first = out.partition("\n")[0]
    assert not first.startswith(GOOD), out
    if code == 1:
        assert said in out, out
    else:
        assert err.splitlines()[-2].startswith("error: ") or "error: " in err


MEASURED = {
    "diagnose": COMMANDS["diagnose"],
    "tune": COMMANDS["tune"],
    "partial": COMMANDS["partial"],
}


@pytest.mark.parametrize("measure", [["--labels", "beyond.npy"], ["--evaluator", "fickle.py"]])
@pytest.mark.parametrize("command", MEASURED)
def test_nothing_good_is_said_by_a_measure_that_cannot_be_trusted(
    command: str,
    measure: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    code = main([*MEASURED[command]("digits.onnx", "good.npy"), *measure])
    out, err = capsys.readouterr()
    assert code != 0, out
    assert "Traceback" not in err
    assert not out.startswith(GOOD), out
    if code == 1:
        assert ("no class" if measure[0] == "--labels" else "asked again") in out, out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--evaluator", "nothing.py"], "which is 0, means nothing"),
        (["--max-drop", "200%"], "allows to lose all"),
        (["--max-drop", "1e9"], "asks for nothing"),
        (["--min-metric", "-99"], "asks for nothing"),
        (["--min-metric", "5"], "cannot be reached"),
    ],
)
def test_goals_that_ask_for_nothing_are_refused(
    words: list[str],
    said: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    assert main([*COMMANDS["tune"]("digits.onnx", "good.npy"), *words]) == 2
    err = capsys.readouterr().err
    assert said in " ".join(err.split())
    assert "fix: " in err


@pytest.mark.parametrize("command", COMMANDS)
def test_fewer_samples_than_asked_for_are_noted(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if command == "diagnose-dumps":
        pytest.skip("all samples that were dumped are judged")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    main([*COMMANDS[command]("digits.onnx", "good.npy"), "--samples", "50"])
    out, err = capsys.readouterr()
    assert f"--samples 50 was asked for, and there are only {SAMPLES}" in " ".join((out + err).split()), out + err


def test_a_gate_passes_nothing_that_proves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own run on such evidence, a metric over its budget by chance, samples that are lacking."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    for data in ("good", "zero", "some_nan"):
        main(["layers", "digits.onnx", "--data", f"{data}.npy", *TARGET, "-o", f"run_{data}", "--force"])
    rows = [f"s{at},{int(at >= 3)}" for at in range(40)]
    (folder / "all_right.csv").write_text("\n".join(["sample,accuracy", *(f"s{at},1" for at in range(40))]))
    (folder / "three_wrong.csv").write_text("\n".join(["sample,accuracy", *rows]))
    (folder / "few.csv").write_text("\n".join(["sample,accuracy", *(f"s{at},1" for at in range(9))]))
    capsys.readouterr()

    def gated(run: str, *words: str) -> tuple[int, str]:
        code = main(["gate", run, "--baseline", run, *words])
        return code, capsys.readouterr().out

    code, out = gated("run_good", "--scores", "all_right.csv", "--baseline-scores", "all_right.csv")
    assert (code, out.split(":")[0]) == (0, "PASS")
    assert f"{SAMPLES} of {SAMPLES} samples" in out.split("coverage  judged: 1 of 1 output")[1].partition("\n")[0]
    for run, words in (
        ("run_zero", ()),
        ("run_some_nan", ()),
        ("run_good", ("--scores", "three_wrong.csv", "--baseline-scores", "all_right.csv")),
        ("run_good", ("--scores", "few.csv", "--baseline-scores", "all_right.csv")),
    ):
        code, out = gated(run, *words)
        assert (code, out.split(":")[0]) == (1, "NOT ENOUGH EVIDENCE"), out


TIMED: dict[str, Words] = {
    "diagnose": COMMANDS["diagnose"],
    "diagnose-dumps": COMMANDS["diagnose-dumps"],
    "tune": lambda model, data: [*COMMANDS["tune"](model, data), "--strategy", "pareto", "--max-drop", "50%"],
}


@pytest.mark.parametrize("command", TIMED)
def test_nothing_good_is_said_when_the_time_ran_out(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    if command == "diagnose-dumps":
        # A fault to look into, for which there is no time.
        assert main(["dump", "one_class.onnx", "--data", "good.npy", "-o", "dump", "--force"]) == 0
    capsys.readouterr()
    code = main([*TIMED[command]("digits.onnx", "good.npy"), "--time", "0.001s"])
    out = capsys.readouterr().out
    assert code == 1
    assert not out.startswith(GOOD), out
