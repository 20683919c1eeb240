"""Levers that fail: each costs a line, never the command, and never what was found before."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from roundoff.cli import main
from roundoff.core.document import load_document
from roundoff.demo import load_split, model_path
from roundoff.quantize import steps as corrections
from roundoff.quantize import steps as transforms
from roundoff.quantize.steps import StepKind, StepTable
from tests.cli.test_tune import plant
from tests.diagnosis.deep import CHIP, deep_inputs, save_deep

Call = Callable[..., tuple[int, str, str]]
BROKEN = "this lever is broken"
COMMON = ("--data", "calibration.npy", "--target", "generic-int8-per-tensor")


@pytest.fixture
def call(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs commands in a folder with the demo model, with channels of very different size, and its images."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    images, labels = load_split("test")
    np.save("calibration.npy", images[:24])
    np.save("images.npy", images[100:260])
    np.save("labels.npy", labels[100:260])
    onnx.save(plant(onnx.load(model_path())), "ill.onnx")

    def run(*words: str) -> tuple[int, str, str]:
        return (main(list(words)), *capsys.readouterr())

    return run


def break_steps(monkeypatch: pytest.MonkeyPatch, *names: str, error: type[Exception] = ValueError) -> list[str]:
    """Make transforms and corrections raise; gives a list that names those that were begun."""
    begun: list[str] = []

    def broken(name: str) -> Callable[[Any], Any]:
        def work(job: Any) -> Any:
            begun.append(name)
            raise error(BROKEN)

        return work

    tables: tuple[StepTable[Any], ...] = (transforms.TRANSFORMS, corrections.CORRECTIONS)
    for table in tables:
        kinds: Mapping[str, StepKind[Any]] = dict(table)
        for name, kind in kinds.items():
            if name in names:
                monkeypatch.setitem(table, name, StepKind(name, kind.summary, kind.options, broken(name)))
    return begun


@pytest.mark.parametrize("error", [ValueError, MemoryError])
def test_a_failing_lever_is_a_row_of_the_history(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    begun = break_steps(monkeypatch, "equalize", "smooth", "bias_correct", error=error)
    words = ("--eval-data", "images.npy", "--labels", "labels.npy", "--max-cost", "1.5", "-o", "out")
    code, out, err = call("tune", "ill.onnx", *COMMON, *words)
    found = load_document(Path("out")).tuning
    assert found is not None
    assert (code, found.best.met) == (1, True), out + err
    assert {"equalize", "smooth"} <= set(begun)
    failed = [trial for trial in found.trials if "failed, " in str(trial.change)]
    assert not any(trial.met or trial.samples for trial in failed)
    for words_of in ("equalize", "smooth", "bias correct"):
        ending = f"{words_of}: failed, {error.__name__}: {BROKEN}"
        assert any(str(trial.change).endswith(ending) for trial in failed), [trial.change for trial in failed]
    assert found.best.met
    assert "failed, " not in str(found.best.change)
    assert "failed" in Path("out/trials.csv").read_text()
    # A search that goes on knows of it, and tries nothing twice.
    begun.clear()
    assert call("tune", "ill.onnx", *COMMON, *words, "--resume")[0] == code
    again = load_document(Path("out")).tuning
    assert again is not None
    assert [trial.change for trial in again.trials] == [trial.change for trial in found.trials]


def test_a_lever_whose_model_cannot_be_measured_is_a_row(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from roundoff.search.engine import TrialModels

    right = TrialModels.measure

    def measure(bench: TrialModels, recipe: Any, indices: list[int]) -> Any:
        if recipe.transforms:
            raise RuntimeError(BROKEN)
        return right(bench, recipe, indices)

    monkeypatch.setattr(TrialModels, "measure", measure)
    words = ("--eval-data", "images.npy", "--labels", "labels.npy", "-o", "out")
    code, out, err = call("tune", "ill.onnx", *COMMON, *words)
    found = load_document(Path("out")).tuning
    assert found is not None
    assert (code, found.best.met) == (1, True), out + err
    assert any(str(trial.change).endswith(f"failed, RuntimeError: {BROKEN}") for trial in found.trials)


def test_the_plain_recipe_failing_is_the_end(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from roundoff.errors import ModelFailed
    from roundoff.search.engine import TrialModels

    def measure(bench: TrialModels, recipe: Any, indices: list[int]) -> Any:
        raise ModelFailed("It cannot be run.", fix="none")

    monkeypatch.setattr(TrialModels, "measure", measure)
    words = ("--eval-data", "images.npy", "--labels", "labels.npy", "-o", "out")
    assert call("tune", "ill.onnx", *COMMON, *words)[0] == 4


def test_transform_ends_with_an_error_that_says_how_to_go_on(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    break_steps(monkeypatch, "equalize", "round_weights")
    for step, name in (("equalize", "equalize"), ("round", "round_weights")):
        code, out, err = call("transform", step, "ill.onnx", *COMMON, "-o", "out")
        text = " ".join(err.split())
        assert (code, out) == (4, "")
        assert f"error: {name} failed on this model: ValueError: {BROKEN}." in text
        assert "fix: leave that step out, or limit it to other nodes with --nodes" in text
        assert not Path("out").exists()


@pytest.mark.parametrize("as_json", [False, True])
def test_a_failing_remedy_is_listed_and_the_next_is_tried(
    call: Call, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    begun = break_steps(monkeypatch, "equalize", "smooth")
    words = ("--fix", "-o", "out", *(["--json"] if as_json else []))
    _, out, _ = call("diagnose", "ill.onnx", *COMMON, *words)
    found = load_document(Path("out")).diagnosis
    assert found is not None
    assert found.repair is not None
    assert "equalize" in begun
    steps = found.repair.steps
    first = next(index for index, step in enumerate(steps) if str(step.why) == f"failed: ValueError: {BROKEN}")
    assert not steps[first].kept
    assert any(step.kept for step in steps[first + 1 :])
    if as_json:
        assert json.loads(out)["diagnosis"]["verdict"]["text"] == str(found.verdict)
    else:
        assert out.startswith("CULPRITS: ")
        assert 0 == out.index("CULPRITS: ") < out.index("REPAIRED: ") < out.rindex("roundoff "), out
        assert "failed:" in out


def test_the_diagnosis_is_told_and_written_before_repair_begins(
    call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from roundoff.search import repair

    seen: list[str] = []

    def repaired(*_: Any) -> Any:
        seen.append(capsys.readouterr().err)
        stored = load_document(Path("out")).diagnosis
        assert stored is not None
        assert stored.repair is None
        assert any("--fix -o out --force" in step for step in stored.next_steps)
        assert Path("out/findings.csv").read_text().count("\n") > 1
        assert Path("page.html").is_file()
        raise KeyboardInterrupt

    monkeypatch.setattr(repair, "repair_diagnosis", repaired)
    code, out, _ = call("diagnose", "ill.onnx", *COMMON, "--fix", "-o", "out", "--html", "page.html")
    assert "CULPRITS: " in seen[0]
    # Interrupted, it tells what it knows.
    assert (code, out[:10]) == (130, "CULPRITS: ")
    assert "proof" in out
    assert load_document(Path("out")).diagnosis is not None


def test_a_search_that_fails_is_a_step(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from roundoff.search import tune as search

    def tune(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError(BROKEN)

    monkeypatch.setattr(search, "tune", tune)
    save_deep(Path("deep.onnx"))
    Path("chip.toml").write_text(CHIP)
    np.save("inputs.npy", deep_inputs())
    code, out, _ = call(
        "diagnose", "deep.onnx", "--data", "inputs.npy", "--target", "chip.toml", "--fix", "-o", "out"
    )
    found = load_document(Path("out")).diagnosis
    assert found is not None
    assert found.repair is not None
    assert code == 1
    assert [str(step.why) for step in found.repair.steps] == [f"failed: ZeroDivisionError: {BROKEN}"]
    assert out.startswith("DISTRIBUTED: ")


def test_remedies_that_cannot_even_begin_are_listed(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from roundoff.diagnosis import repair

    def opened(*_: Any, **__: Any) -> Any:
        raise RuntimeError(BROKEN)

    monkeypatch.setattr(repair, "RecipeModel", opened)
    call("diagnose", "ill.onnx", *COMMON, "--fix", "-o", "out")
    found = load_document(Path("out")).diagnosis
    assert found is not None
    assert found.repair is not None
    assert str(found.repair.steps[0].why) == f"failed: RuntimeError: {BROKEN}"
    # The search goes on where remedies of single places came to nothing.
    assert any(str(step.title).startswith("search, ") for step in found.repair.steps)


def test_a_margin_that_fails_costs_a_line_and_not_the_repair(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from roundoff.diagnosis.margins import RangeMargins

    def broken(_: Any) -> Any:
        raise RuntimeError(BROKEN)

    monkeypatch.setattr(RangeMargins, "best", broken)
    call("diagnose", "ill.onnx", *COMMON, "--fix", "-o", "out")
    found = load_document(Path("out")).diagnosis
    assert found is not None
    assert found.repair is not None
    assert str(found.repair.steps[-1].why) == f"failed: RuntimeError: {BROKEN}"
    assert any(step.kept for step in found.repair.steps)
    assert found.repair.measures[0].improved
