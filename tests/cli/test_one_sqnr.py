"""One model on the same samples has the same scores in every command; a new metric is served or refused."""

import csv
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from roundoff.cli import main
from roundoff.demo import load_split, model_path
from roundoff.graph.insertion import insert_quantizers
from roundoff.measure import metrics as table
from roundoff.measure.metrics import metric
from roundoff.measure.pairs import PairSums
from roundoff.run.session import open_session
from tests.studies.layers.support import demo_network

Run = Callable[..., tuple[int, str, str]]
MODEL = str(model_path())
SAMPLES = 8


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs commands in a folder with images and the demo's network, quantized."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    # Loud and quiet pictures: the mean over samples is far from all samples together.
    loudness = np.geomspace(0.2, 1.0, SAMPLES, dtype=np.float32).reshape(-1, 1, 1, 1)
    np.save("images.npy", load_split("test")[0][:SAMPLES] * loudness)
    quantized, _ = demo_network()
    onnx.save(insert_quantizers(quantized.float_model, quantized.quantizers).proto, "quantized.onnx")

    def call(command: str, *words: str) -> tuple[int, str, str]:
        code = main([command, MODEL, *words, "--data", "images.npy"])
        return (code, *capsys.readouterr())

    return call


def expected() -> tuple[float, float, float]:
    """SQNR and cosine of all samples as one tensor, and the mean of each sample's SQNR, in plain numpy."""
    quantized, _ = demo_network()
    switched = insert_quantizers(quantized.float_model, quantized.quantizers)
    sessions = [open_session(each) for each in (quantized.float_model, switched)]
    feeds = [{"image": image[None]} for image in np.load("images.npy")]
    left, right = (
        np.stack([session.run(feed)[0].ravel() for feed in feeds]).astype(np.float64) for session in sessions
    )
    pooled = 10 * math.log10((left**2).sum() / ((left - right) ** 2).sum())
    cosine = float((left * right).sum() / math.sqrt((left**2).sum() * (right**2).sum()))
    each = 10 * np.log10((left**2).sum(axis=1) / ((left - right) ** 2).sum(axis=1))
    return pooled, cosine, float(each.mean())


def document(name: str) -> Any:
    return json.loads(Path(name, "run.json").read_text(encoding="utf-8"))


def test_seven_commands_print_one_sqnr(run: Run) -> None:
    pooled, cosine, mean = expected()
    db, digits = f"{pooled:.1f}", f"{math.floor(cosine * 1e5) / 1e5:.5f}"
    assert db != f"{mean:.1f}"
    quantized = ("--quantized", "quantized.onnx")

    _, out, _ = run("compare", "quantized.onnx", "--rows", "all")
    (line,) = (line for line in out.splitlines() if re.search(r"^ *\d+ logits", line))
    assert f" {db} " in line
    assert digits in line
    _, out, _ = run("layers", *quantized, "-o", "layers")
    assert re.search(rf"output +logits: {db} dB, cosine {digits}", out)
    _, out, _ = run("accumulate", *quantized, "-o", "curves")
    assert re.search(rf"logits: .*everything {db} dB", out)
    assert re.search(rf"(?m)^all +\d+ +{digits} ", out)
    _, out, _ = run("diagnose", *quantized, "-o", "diagnosis")
    assert f"SQNR of 'logits' {db} dB" in out
    _, out, _ = run("partial", *quantized, "--nodes", "logits", "-o", "partial")
    assert re.search(rf"\(all quantized\) +{digits} +{db} ", out)
    _, out, _ = run("sensitivity", *quantized, "--leave-one-out", "--kind", "weight", "-o", "ranking")
    assert f"SQNR {db} dB with everything" in out
    # Of the network as it is quantized here, not of the file; the others read the file.
    _, out, _ = run("quantize", "--target", "generic-int8", "-o", "files")
    (again,) = re.findall(r"logits: cosine (0\.\d+), SQNR (\S+) dB", out)
    _, out, _ = run("layers", "--quantized", "files/digits_fake_quant_model.onnx")
    assert re.search(rf"logits: {again[1]} dB, cosine {again[0]}", out)

    step = document("partial")["partial"]["steps"][0]
    assert (step["scores"]["sqnr_db"], step["score"]) == pytest.approx((pooled, cosine), rel=1e-5)
    found = document("ranking")["sensitivity"]["quantized"]
    assert (found["sqnr_db"], found["cosine"]) == pytest.approx((pooled, cosine), rel=1e-5)


def test_the_mean_over_samples_is_called_by_its_own_name(run: Run) -> None:
    pooled, _, mean = expected()
    words = ("--quantized", "quantized.onnx", "--nodes", "logits", "--top", "1", "--csv", "steps.csv")
    _, out, _ = run("partial", *words, "--score", "mean_sqnr_db")
    assert re.search(rf"quantized +mean SQNR {mean:.1f} dB", out)
    first = next(csv.DictReader(Path("steps.csv").read_text(encoding="utf-8").splitlines()))
    assert float(first["mean_sqnr_db"]) == pytest.approx(mean, rel=1e-5)
    assert float(first["sqnr_db"]) == pytest.approx(pooled, rel=1e-5)


def half_mse(sums: PairSums) -> float:
    """Half of the mean of the squared errors."""
    return sums.error_energy / sums.count / 2


def span_error(sums: PairSums) -> float:
    """Largest error over the span of the reference."""
    return sums.max_abs_error / (sums.reference.high - sums.reference.low)


@pytest.fixture
def contributed() -> Iterator[None]:
    metric("half_mse", needs=["error_energy"], direction="lower", perfect=0.0)(half_mse)
    metric("span_error", needs=["max_abs_error", "extremes"], direction="lower", perfect=0.0)(span_error)
    yield
    for name in ("half_mse", "span_error"):
        table._METRICS.pop(name)


# Each command with the option that takes a metric, and whether it gathers extremes.
ASKED = {
    "compare": (("quantized.onnx", "--threshold", "{}=100"), True),
    "samples": (("--quantized", "quantized.onnx", "--metric", "{}"), True),
    "accumulate": (("--quantized", "quantized.onnx", "--metric", "{}"), True),
    "partial": (("--quantized", "quantized.onnx", "--nodes", "logits", "--score", "{}", "--goal", "9"), False),
    "sensitivity": (("--quantized", "quantized.onnx", "--kind", "weight", "--metric", "{}"), False),
}


@pytest.mark.usefixtures("contributed")
@pytest.mark.parametrize("command", ASKED)
def test_a_new_metric_is_served_or_refused_by_every_command(run: Run, command: str) -> None:
    words, everything = ASKED[command]
    code, out, err = run(command, *(word.format("half_mse") for word in words))
    assert (code, err) == (0, "")
    assert "half_mse" in out
    assert "NOTHING LOST" not in out
    code, out, err = run(command, *(word.format("span_error") for word in words))
    if everything:
        assert (code, err) == (0, "")
        assert "span_error" in out
        return
    assert (code, out) == (2, "")
    assert f"{command} cannot measure 'span_error': it does not gather extremes." in err
    assert "choose from: cosine, sqnr_db" in err
    assert main(["explain", "span_error"]) == 0
