"""A repair goes on from what the diagnosis loaded, prepared and observed: nothing of it is done twice."""

import json
import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roundoff.cli import main
from roundoff.demo import load_split, model_path
from roundoff.diagnosis import study, subject
from roundoff.graph import load
from roundoff.graph.preparation import steps
from roundoff.quantize import recipes
from roundoff.quantize.calibration.calibration import calibrate
from roundoff.search import repair
from tests.diagnosis.deep import CHIP, deep_inputs, save_deep

COUNTED: tuple[Callable[..., Any], ...] = (load.load_model, steps.prepare, calibrate, subject.open_case)
Calls = dict[str, list[Any]]
# Beside the network itself the equalized one is opened, of each half of the samples, for what is expected at no
# cost, and what was repaired, for the margin of its ranges.
ONCE = {"load_model": 1, "prepare": 1, "open_case": 4}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Calls:
    """The first two that each of them was given, under whatever module's name it was called."""
    found: Calls = defaultdict(list)

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(first: Any, *args: Any, **options: Any) -> Any:
            found[real.__name__].append((first, *args[:1]))
            return real(first, *args, **options)

        return counted

    # Loaded before names are replaced: these take part.
    assert all(module.__name__ in sys.modules for module in (recipes, repair, study))
    for real in COUNTED:
        for module in [each for name, each in sys.modules.items() if name.startswith("roundoff")]:
            if getattr(module, real.__name__, None) is real:
                monkeypatch.setattr(module, real.__name__, counting(real))
    monkeypatch.chdir(tmp_path)
    return found


def observed_once(given: list[Any]) -> None:
    """Each network is observed once on all samples, and once on those that are not held out."""
    assert len({(id(model), id(samples)) for model, samples in given}) == len(given)
    assert len({id(samples) for _, samples in given}) == 2


def test_remedies_start_where_the_diagnosis_ended(calls: Calls) -> None:
    shutil.copyfile(Path(str(resources.files("roundoff.demo"))) / "tiny-chip.toml", "tiny-chip.toml")
    images, labels = load_split("calibration")
    np.save("images.npy", images)
    np.save("labels.npy", labels)
    words = "--target tiny-chip.toml --data images.npy --labels labels.npy --fix -o out"
    assert main(["diagnose", str(model_path()), *words.split()]) == 1  # better; 33 samples do not show how good
    observed_once(calls.pop("calibrate"))
    assert {name: len(given) for name, given in calls.items()} == ONCE


def test_a_search_starts_there_too(calls: Calls) -> None:
    save_deep(Path("deep.onnx"))
    Path("chip.toml").write_text(CHIP)
    np.save("inputs.npy", deep_inputs())
    words = "deep.onnx --data inputs.npy --target chip.toml --fix -o out"
    assert main(["diagnose", *words.split()]) == 1  # better, yet short of what is good
    # Transforms that the search tries make other networks; each of them is observed once.
    observed_once(calls.pop("calibrate"))
    assert {name: len(given) for name, given in calls.items()} == ONCE


def test_the_next_command_finds_what_the_repair_says_of_other_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(Path(str(resources.files("roundoff.demo"))) / "tiny-chip.toml", "tiny-chip.toml")
    for name, split in (("some", "calibration"), ("other", "test")):
        images, labels = load_split(split)  # type: ignore[arg-type]
        np.save(f"{name}.npy", images[:200])
        np.save(f"{name}_labels.npy", labels[:200])
    words = "--target tiny-chip.toml --data some.npy --labels some_labels.npy --fix -o out --json"
    assert main(["diagnose", str(model_path()), *words.split()]) == 1
    found = json.loads(capsys.readouterr().out)["diagnosis"]
    command = shlex.split(next(each for each in found["next_steps"] if each.startswith("roundoff diagnose")))
    names = {"HELD_OUT": "other.npy", "HELD_OUT_LABELS": "other_labels.npy"}
    assert main([*(names.get(word, word) for word in command[1:]), "--json"]) == 1
    again = json.loads(capsys.readouterr().out)["diagnosis"]
    assert not found["repair"]["reached"]
    low, high = found["repair"]["interval"]
    assert low <= next(each["before"] for each in again["measures"] if "accuracy" in str(each["what"])) <= high
