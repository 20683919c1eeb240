"""The command ``roundoff check-calibration``."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from roundoff.core.document import load_document
from roundoff.demo import load_split
from tests.cli.inspecting import MODEL, Run, runner


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    call = runner("check-calibration", tmp_path, capsys, monkeypatch)
    values, labels = load_split("calibration")
    np.save("images.npy", values[:60])
    np.save("labels.npy", labels[:60])
    return call


def test_a_clean_set(run: Run) -> None:
    code, out, err = run(MODEL, "--data", "images.npy", "--labels", "labels.npy")
    assert (code, err) == (0, ""), out
    assert out.startswith("OK: no fault in 60 samples of images.npy")
    assert "held out  12 samples, of the set itself, chosen at random" in out
    assert "width by number of samples" in out


def test_a_spoilt_set(run: Run) -> None:
    values = np.load("images.npy")
    values[3], values[5, 0, 0, 0], values[10:20] = 0, np.nan, values[20:30]
    np.save("images.npy", values)
    code, out, _ = run(MODEL, "--data", "images.npy", "--top", "2")
    assert code == 1
    assert out.startswith("UNSUITABLE: ")
    places = [out.index(word) for word in ("  broken ", "  blank ", "  duplicates ")]
    assert places == sorted(places)
    assert "1 sample is all zero: 3" in out
    assert "-> remove them" in out
    assert "rows that matter less are left out; --top all shows them" in out


def test_everything_can_be_written_and_read_again(run: Run) -> None:
    values = load_split("test")[0][:30]
    np.save("others.npy", values)
    words = (
        "--held-out",
        "others.npy",
        "--calibration",
        "percentile",
        "-o",
        "run",
        "--csv",
        "t.csv",
        "--plot",
        "c.png",
    )
    code, _, err = run(MODEL, "--data", "images.npy", *words)
    assert code in (0, 1)
    assert "run/run.json, run/calibration.csv, t.csv, c.png" in err
    document = load_document(Path("run"))
    found = document.calibration_check
    assert found is not None
    assert found.method == "percentile"
    assert found.held_out_samples == 30
    assert [each.role for each in document.inputs] == ["model", "held_out", "data"]
    rows = list(csv.DictReader(io.StringIO(Path("t.csv").read_text(encoding="utf-8"))))
    assert [row["tensor"] for row in rows] == [row.tensor for row in found.ranges]
    code, out, _ = run(MODEL, "--data", "images.npy", "--json", "--seed", "3")
    assert json.loads(out)["calibration_check"]["samples"] == 60


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--calibration", "minimax"), "There is no calibration method 'minimax'"),
        (("--target", "nosuch"), "There is no target 'nosuch'"),
        (("--seed", "-3"), "--seed -3 is negative"),
        (("--labels", "nosuch.npy"), "nosuch.npy"),
        (("--held-out", "nosuch.npy"), "nosuch.npy"),
    ],
)
def test_bad_input(run: Run, words: tuple[str, ...], message: str) -> None:
    code, _, err = run(MODEL, "--data", "images.npy", *words)
    assert (code, message in err) == (2, True), err


def test_a_share_is_at_most_a_half(run: Run) -> None:
    with pytest.raises(SystemExit):
        run(MODEL, "--data", "images.npy", "--share", "0.9")


def test_labels_may_be_any_numbers_from_0_on(run: Run) -> None:
    labels = np.arange(60) % 3
    np.save("labels.npy", labels + 10**8)
    code, out, _ = run(MODEL, "--data", "images.npy", "--labels", "labels.npy")
    assert code in (0, 1)
    assert f"no sample of {10**8} classes of {10**8 + 3}" in " ".join(out.split())
    np.save("labels.npy", labels - 1)
    code, _, err = run(MODEL, "--data", "images.npy", "--labels", "labels.npy")
    assert (code, "holds -1, which is not a class number" in err) == (2, True)


def test_a_model_that_computes_no_numbers_is_refused(run: Run) -> None:
    model = onnx.load(MODEL)
    weight = next(each for each in model.graph.initializer if len(each.dims) == 4)
    values = numpy_helper.to_array(weight).copy()
    values.flat[0] = np.nan
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    onnx.save(model, "broken.onnx")
    code, out, err = run("broken.onnx", "--data", "images.npy")
    assert (code, out) == (2, "")
    assert f"The weight '{weight.name}' holds 1 value that is NaN or infinite." in err


def test_broken_samples_that_are_held_out_are_told(run: Run) -> None:
    np.save("broken.npy", np.load("images.npy")[:4] * np.nan)
    code, out, _ = run(MODEL, "--data", "images.npy", "--held-out", "broken.npy")
    assert (code, "held out: 4 samples with NaN or infinite values" in " ".join(out.split())) == (1, True)
