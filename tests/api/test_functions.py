"""Every command is a function: on the same inputs both find the same."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import roundoff
from roundoff.api.tensors import TensorConversion
from roundoff.cli import COMMANDS, main
from roundoff.core.document import RunDocument, load_document
from roundoff.demo import load_split, model_path

FEW = 4
BOARD = model_path().parent / "board_dump"
SAMPLES = model_path().parent / "samples.npy"
CHIP = "generic-int8"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with samples and labels."""
    folder = tmp_path_factory.mktemp("api")
    images, labels = load_split("test")
    np.save(folder / "images.npy", images[:FEW])
    np.save(folder / "labels.npy", labels[:FEW])
    np.save(folder / "other.npy", images[:FEW] * np.float32(0.5))
    return folder


def body(document: RunDocument) -> RunDocument:
    """What two runs are compared by: all but the words, the host and the time."""
    return replace(document, command=(), environment=None)  # type: ignore[arg-type]


CASES: dict[str, tuple[list[str], Callable[..., Any]]] = {
    "layers": (["--target", CHIP], lambda m, d: roundoff.layers(m, data=d, target=CHIP)),
    "accumulate": (
        ["--target", CHIP, "--only", "weight", "--except", "op:Gemm"],
        lambda m, d: roundoff.accumulate(m, data=d, target=CHIP, only=["weight"], leave_out=[["op:Gemm"]]),
    ),
    "sensitivity": (
        ["--target", CHIP, "--kind", "weight", "--metric", "sqnr_db,cosine"],
        lambda m, d: roundoff.sensitivity(m, data=d, target=CHIP, kind="weight", metric=["sqnr_db", "cosine"]),
    ),
    "partial": (
        ["--target", CHIP, "--top", "2", "--goal", "99%"],
        lambda m, d: roundoff.partial(m, data=d, target=CHIP, top=2, goal="99%"),
    ),
    "distribution": (
        ["logits", "--target", CHIP, "--bins", "8"],
        lambda m, d: roundoff.distribution(m, "logits", data=d, target=CHIP, bins=8),
    ),
    "channels": (["*relu", "--target", CHIP], lambda m, d: roundoff.channels(m, ["*relu"], data=d, target=CHIP)),
    "outliers": (["--log-base", "4"], lambda m, d: roundoff.outliers(m, data=d, log_base=4.0)),
    "samples": (["--target", CHIP], lambda m, d: roundoff.samples(m, data=d, target=CHIP)),
    "check-calibration": (["--share", "0.25"], lambda m, d: roundoff.check_calibration(m, data=d, share=0.25)),
    "diagnose": (
        ["--target", CHIP, "--set", "logits=float"],
        lambda m, d: roundoff.diagnose(m, data=d, target=CHIP, set={"logits": "float"}),
    ),
}


@pytest.mark.parametrize("command", CASES)
def test_a_function_finds_what_its_command_finds(
    command: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    words, function = CASES[command]
    code = main([command, str(model_path()), *words, "--data", "images.npy", "-o", str(tmp_path / "run")])
    typed = load_document(tmp_path / "run")
    outcome = function(model_path(), "images.npy")
    assert outcome.exit_code == code
    assert outcome.good == (code == 0)
    # What follows from options is told to whoever types them.
    found = outcome.document
    if typed.diagnosis is not None:
        found = outcome.telling(next_steps=typed.diagnosis.next_steps).document
        seconds = [replace(each, seconds=0.0) for each in typed.diagnosis.checks]
        assert [replace(each, seconds=0.0) for each in found.diagnosis.checks] == seconds
        found = replace(found, diagnosis=replace(found.diagnosis, checks=typed.diagnosis.checks))
    assert body(found) == body(typed)
    assert typed.command[:2] == ("roundoff", command)
    call = command in ("accumulate", "check-calibration")  # lists of lists are not typed; no case is made of it
    assert found.command[0] == (f"roundoff.{command.replace('-', '_')}" if call else "roundoff")
    assert call or found.command[:3] == typed.command[:3]
    outcome.save(tmp_path / "saved")
    names = {path.name for path in (tmp_path / "run").iterdir() if path.suffix in (".json", ".csv")}
    assert {path.name for path in (tmp_path / "saved").iterdir() if not path.name.startswith(".")} == names


def test_compare_of_a_model_with_a_dump(tmp_path: Path) -> None:
    words = ["compare", str(model_path()), str(BOARD), "--data", str(SAMPLES), "-o", str(tmp_path / "run")]
    code = main(words)
    outcome = roundoff.compare(model_path(), BOARD, data=SAMPLES)
    assert body(outcome.document) == body(load_document(tmp_path / "run"))
    assert outcome.exit_code == code
    judged = roundoff.compare(model_path(), BOARD, data=SAMPLES, threshold={"cosine": 0.99})
    assert not judged.good
    assert judged.result.state == "fail"


def test_as_many_samples_as_a_dump_has_are_asked_for(place: Path, tmp_path: Path) -> None:
    for index in range(2):
        (tmp_path / f"frame_{index}").mkdir()
        np.save(tmp_path / f"frame_{index}" / "odd.npy", np.ones((1, 3, index + 2), np.float32))
    with pytest.raises(roundoff.CannotAlign, match="'frame_0', 'frame_1' in") as caught:
        roundoff.compare(model_path(), tmp_path, data=place / "images.npy")
    assert caught.value.fix.startswith("add samples= 2 if these are the first ones")


def test_transform_and_tune(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    more = ["--data", "images.npy", "--target", CHIP]
    code = main(["transform", "equalize", str(model_path()), *more, "-o", str(tmp_path / "t")])
    outcome = roundoff.transform(model_path(), "equalize", data="images.npy", target=CHIP)
    assert (outcome.exit_code, body(outcome.document)) == (code, body(load_document(tmp_path / "t")))
    outcome.save(tmp_path / "saved")
    assert {path.name for path in (tmp_path / "saved").iterdir()} == {
        path.name for path in (tmp_path / "t").iterdir()
    }
    goal = ["--max-trials", "2", "--labels", "labels.npy"]
    code = main(["tune", str(model_path()), *more, *goal, "-o", str(tmp_path / "u")])
    found = roundoff.tune(model_path(), data="images.npy", target=CHIP, max_trials=2, labels="labels.npy")
    typed = load_document(tmp_path / "u").tuning
    assert typed is not None
    assert found.exit_code == code
    assert [trial.score for trial in found.result.trials] == [trial.score for trial in typed.trials]
    found.save(tmp_path / "tuned")
    assert (tmp_path / "tuned" / "plan.json").is_file()


def test_quantize_targets_audit_and_settings(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    main(["quantize", str(model_path()), "--data", "images.npy", "--target", CHIP, "-o", str(tmp_path / "run")])
    outcome = roundoff.quantize(model_path(), data="images.npy", target=CHIP)
    assert outcome.verdict.startswith("FINE: digits.onnx quantized for generic-int8")
    assert len(outcome.rows()) == len(outcome.result.best.plan.nodes)
    outcome.save(tmp_path / "saved")
    for name in ("plan.json", "digits_fake_quant_model.onnx", "digits_deploy_model.onnx"):
        assert (tmp_path / "saved" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    audit = roundoff.audit(tmp_path / "saved")
    assert audit.good
    assert roundoff.audit(outcome.quantized).result.passed
    names = [row["name"] for row in roundoff.targets().rows()]
    assert CHIP in names
    settings = roundoff.export_settings(tmp_path / "saved", dialect="onnxruntime")
    assert settings.save(tmp_path / "settings")


def test_dump_and_convert(place: Path, tmp_path: Path) -> None:
    found = roundoff.dump(model_path(), tmp_path / "dump", data=place / "images.npy", tensors="*relu")
    assert found.result.tensors == 5
    converted = roundoff.convert(tmp_path / "dump", tmp_path / "bin", to="bin")
    assert isinstance(converted.result, TensorConversion)
    assert converted.result.tensors == found.result.tensors * FEW
    assert roundoff.compare(tmp_path / "dump", tmp_path / "bin").result.state == "pass"


def test_compare_of_a_network_with_its_quantized_form(tmp_path: Path) -> None:
    """Where a batch normalization was folded, the convolution in front of it has no tensor that it could be."""
    images = load_split("test")[0][:FEW]
    roundoff.quantize(model_path(), data=images, target=CHIP).save(tmp_path / "int8")
    path = tmp_path / "int8" / "digits_fake_quant_model.onnx"
    found = roundoff.compare(model_path(), path, data=images)
    assert str(found).startswith("PASS: 24 of 24 tensors pass")
    paired = {row["reference"]: row["candidate"] for row in found.rows() if row["reference"] and row["candidate"]}
    assert "stem/conv" not in paired
    assert paired["stem/norm"] == "stem/norm"
    assert paired["block2/pointwise_norm"] == "block2/pointwise_norm_dequantized"
    # Filters of one layer are out of order: it is seen at the tensor behind the normalization.
    model = onnx.load(path)
    (weight,) = (each for each in model.graph.initializer if each.name == "block3/pointwise/weight")
    weight.CopyFrom(numpy_helper.from_array(np.roll(numpy_helper.to_array(weight), 1, axis=0), weight.name))
    onnx.save(model, path)
    wrong = roundoff.compare(model_path(), path, data=images)
    assert str(wrong).startswith("FAIL: ")
    first = next(row["reference"] for row in wrong.rows() if row["passed"] in ("no", False))
    assert first == "block3/pointwise_norm"


def test_runs_are_compared_gated_reported_and_explained(place: Path, tmp_path: Path) -> None:
    before = roundoff.layers(model_path(), data=place / "images.npy", target=CHIP)
    after = roundoff.layers(model_path(), data=place / "images.npy", target="generic-int8-per-tensor")
    before.save(tmp_path / "a")
    after.save(tmp_path / "b")
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(tmp_path / "d")]) == 0
    typed = load_document(tmp_path / "d").diff
    assert typed is not None
    assert roundoff.diff(tmp_path / "a", tmp_path / "b").result == typed
    # What was never written is compared, too.
    assert roundoff.diff(before, after).result.rows == typed.rows
    gate = roundoff.gate(after, before, max_regression="0dB", strict=True)
    words = ["--baseline", str(tmp_path / "a"), "--max-regression", "0", "--strict"]
    assert gate.exit_code == main(["gate", str(tmp_path / "b"), *words])
    (page,) = roundoff.report(before, tmp_path / "page.html")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "logits" in roundoff.explain("logits", before)


def test_check_io(tmp_path: Path) -> None:
    image = np.arange(48, dtype=np.float32).reshape(1, 3, 4, 4)
    np.save(tmp_path / "train.npy", image)
    np.save(tmp_path / "board.npy", image[:, ::-1])
    paths = [str(tmp_path / name) for name in ("train.npy", "board.npy")]
    code = main(["check-io", "--preprocessed", *paths, "-o", str(tmp_path / "run")])
    by_path = roundoff.check_io(preprocessed=paths)
    assert by_path.exit_code == code == 1
    assert body(by_path.document) == body(load_document(tmp_path / "run"))
    by_value = roundoff.check_io(preprocessed=(image, image[:, ::-1]))
    explained = [each.result.stages[0].explanation for each in (by_value, by_path)]
    kinds = [[change.kind for change in each.changes] for each in explained if each is not None]
    assert kinds[0] == kinds[1] != []


def test_every_command_that_finds_something_is_a_function() -> None:
    # Servers, demos, this machine and the vendors' own command lines are none of ours to call; and what passes a
    # fault on stands apart.
    apart = {"serve", "self-check", "demo", "ascend", "horizon", "amct", "pulsar2", "reproduce", "bundle"}
    apart |= {"completion", "suite"}
    names = {command.replace("-", "_") for command in COMMANDS if command not in apart}
    assert names <= set(roundoff.__all__)
