"""Headline numbers next to what numpy makes of the same tensors: goldens keep numbers, these prove them."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from roundoff.cli import main
from tests.goldens.scene import Array, make_scene, ran

# Samples that the proof of a device's fault is measured on.
_PROVEN_ON = 4


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_scene(tmp_path_factory.mktemp("numbers") / "scene")


@pytest.fixture
def here(scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(scene)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("ROUNDOFF_LANG", "en")
    return tmp_path


def both(float_name: str, quantized_name: str, data: str, outputs: list[str]) -> list[tuple[Array, Array]]:
    """Each output in float and quantized, samples first."""
    samples = np.load(data)
    sides = [ran(onnx.load(name), samples, outputs) for name in (float_name, quantized_name)]
    return [
        (np.stack([row[name] for row in sides[0]]), np.stack([row[name] for row in sides[1]])) for name in outputs
    ]


def decibels(exact: Array, found: Array) -> float:
    """Energy of the signal over that of the difference, all elements together."""
    exact, found = exact.astype(np.float64), found.astype(np.float64)
    return float(10 * np.log10((exact**2).sum() / ((exact - found) ** 2).sum()))


def document(folder: Path) -> Any:
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


def findings(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "findings.csv").read_text(encoding="utf-8").splitlines()))


def test_the_decibels_of_a_diagnosis_are_those_of_the_worst_output(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["forked.onnx", "--quantized", "forked_quantized.onnx", "--data", "forked.npy"]
    assert main(["diagnose", *words, "-o", str(here / "out")]) == 1
    text = " ".join(capsys.readouterr().out.split())
    pairs = both("forked.onnx", "forked_quantized.onnx", "forked.npy", ["boxes", "scores"])
    worst, name = min((decibels(*pair), name) for pair, name in zip(pairs, ("boxes", "scores"), strict=True))
    found = next(each for each in document(here / "out")["diagnosis"]["measures"] if each["unit"] == "dB")
    assert found["what"]["text"] == f"SQNR of '{name}'"
    assert found["before"] == pytest.approx(worst, rel=1e-5)
    assert f"loss SQNR of '{name}' {worst:.1f} dB" in text
    assert f"output SQNR {worst:.1f} dB" in text


def test_findings_hold_what_was_before_the_change_and_after(here: Path) -> None:
    words = ["forked.onnx", "--quantized", "forked_quantized.onnx", "--data", "forked.npy"]
    main(["diagnose", *words, "-o", str(here / "out")])
    row = next(each for each in findings(here / "out") if each["unit"] == "dB")
    name = row["measure"].split("'")[1]
    (pair,) = both("forked.onnx", "forked_quantized.onnx", "forked.npy", [name])
    assert float(row["before"]) == pytest.approx(decibels(*pair), rel=1e-5)
    # The planted range, put right, gives what the same quantization without it does, or nearly so.
    assert float(row["after"]) > float(row["before"]) + 10


def test_the_decibels_of_a_device_are_those_of_what_it_wrote(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plain.onnx", "--dumps", "swapped_dump", "--data", "plain.npy"]
    assert main(["diagnose", *words, "-o", str(here / "out")]) == 1
    exact, found = dumps("logits")
    expected = decibels(exact, found)
    assert f"output SQNR {expected:.1f} dB" in " ".join(capsys.readouterr().out.split())
    measure = next(each for each in document(here / "out")["diagnosis"]["measures"] if each["unit"] == "dB")
    assert measure["before"] == pytest.approx(expected, rel=1e-5)


def test_the_proof_of_a_fault_of_a_device_is_told_in_decibels_of_its_tensor(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plain.onnx", "--dumps", "turned_dump", "--data", "plain.npy"]
    assert main(["diagnose", *words, "-o", str(here / "out")]) == 1
    exact, found = dumps("conv2", "turned_dump")
    expected = decibels(exact[:_PROVEN_ON], found[:_PROVEN_ON])
    (row,) = findings(here / "out")
    assert (row["measure"], row["unit"], row["samples"]) == (
        "SQNR of 'conv2' on the device",
        "dB",
        str(_PROVEN_ON),
    )
    assert float(row["before"]) == pytest.approx(expected, rel=1e-4)
    assert float(row["after"]) == math.inf
    assert f"SQNR of 'conv2' on the device {expected:.1f} dB -> exact" in " ".join(capsys.readouterr().out.split())


def dumps(tensor: str, name: str = "swapped_dump") -> tuple[Array, Array]:
    sides = []
    for folder in ("right_dump", name):
        rows = []
        for path in sorted(Path(folder).glob("*.npz")):
            with np.load(path) as archive:
                rows.append(archive[tensor])
        sides.append(np.stack(rows))
    return sides[0], sides[1]


def test_partial_quantization_pools_samples_and_averages_outputs(here: Path) -> None:
    words = ["forked.onnx", "--quantized", "forked_quantized.onnx", "--data", "forked.npy"]
    main(["partial", *words, "-o", str(here / "out")])
    first = document(here / "out")["partial"]["steps"][0]
    pairs = both("forked.onnx", "forked_quantized.onnx", "forked.npy", ["boxes", "scores"])
    pooled = [[np.concatenate([np.ravel(each) for each in side]) for side in pair] for pair in pairs]
    levels = [decibels(*pair) for pair in pooled]
    assert abs(levels[0] - levels[1]) > 3
    assert first["scores"]["sqnr_db"] == pytest.approx(np.mean(levels), rel=1e-5)
    assert first["score"] == pytest.approx(np.mean([cosine(*pair) for pair in pooled]), rel=1e-6)


def cosine(exact: Array, found: Array) -> float:
    exact, found = exact.astype(np.float64).ravel(), found.astype(np.float64).ravel()
    return float(exact @ found / np.linalg.norm(exact) / np.linalg.norm(found))
