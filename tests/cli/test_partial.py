"""The command ``roundoff partial``."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

import roundoff.studies.sensitivity.exact
from roundoff.cli import main
from roundoff.core.document import load_document
from roundoff.demo import load_split, model_path
from roundoff.graph.insertion import insert_quantizers
from tests.quantized import with_scale_times
from tests.studies.layers.support import demo_network

Run = Callable[..., tuple[int, str, str]]
MODEL = str(model_path())
EVALUATOR = """
import numpy as np
LABELS = np.load("labels.npy")
NAME = "mine"

def evaluate(run, samples):
    return sum(run(feed)["logits"].argmax() == label for feed, label in zip(samples, LABELS)) / len(samples)
"""


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in a folder with images, labels and a model in which two activations are clipped."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    images, labels = load_split("test")
    np.save("images.npy", images[:50])
    np.save("labels.npy", labels[:50])
    Path("eval.py").write_text(EVALUATOR, encoding="utf-8")
    quantized, _ = demo_network()
    spoilt = with_scale_times(quantized, ["block3/relu", "block1/relu"], 0.15)
    onnx.save(insert_quantizers(spoilt.float_model, spoilt.quantizers).proto, "quantized.onnx")

    def call(*words: str) -> tuple[int, str, str]:
        code = main(["partial", MODEL, "--quantized", "quantized.onnx", "--data", "images.npy", *words])
        return (code, *capsys.readouterr())

    return call


def test_the_knee_is_found_with_labels(run: Run) -> None:
    code, out, err = run("--labels", "labels.npy", "--kind", "activation", "--top", "4")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("TOP 2 in float reach the goal of 99 % of float, accuracy ")
    assert "by SQNR when quantized alone (50 samples)" in out
    assert sum(line.endswith("<- goal") for line in lines) == 1
    assert max(map(len, lines)) <= 80


def test_an_evaluator_says_the_same(run: Run) -> None:
    words = ("--kind", "activation", "--top", "3", "--json")
    ours = json.loads(run("--labels", "labels.npy", *words)[1])["partial"]
    theirs = json.loads(run("--evaluator", "eval.py", *words)[1])["partial"]
    assert theirs["score"] == "mine"
    assert [step["score"] for step in theirs["steps"]] == [step["score"] for step in ours["steps"]]
    assert theirs["knee"] == ours["knee"] == 2


def test_everything_can_be_written_and_read_again(run: Run) -> None:
    pytest.importorskip("matplotlib")
    nodes = ("--nodes", "block4/depthwise", "block2/depthwise")
    code, _, err = run(
        *nodes, "-o", "run", "--csv", "p.csv", "--plot", "p.png", "--score", "sqnr_db", "--goal", "25"
    )
    assert code == 0
    assert "written: run/run.json, run/partial.csv, run/partial.png, p.csv, p.png" in err
    document = load_document(Path("run"))
    assert document.partial is not None
    assert document.partial.float_score == float("inf")
    assert str(document.partial.ranking) == "as given"
    rows = list(csv.DictReader(io.StringIO(Path("p.csv").read_text(encoding="utf-8"))))
    assert [row["subject"] for row in rows] == ["", "block4/depthwise", "block2/depthwise"]
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")


def test_an_order_from_a_file(run: Run) -> None:
    Path("order.txt").write_text("block2/depthwise\nblock4/depthwise\n", encoding="utf-8")
    code, out, _ = run("--ranking", "order.txt", "--labels", "labels.npy", "--samples", "20", "--json")
    assert code == 0
    document = json.loads(out)
    assert [step["subject"] for step in document["partial"]["steps"]] == [
        "",
        "block2/depthwise",
        "block4/depthwise",
    ]
    assert document["partial"]["samples"] == 20
    assert document["partial"]["ranking"]["text"] == "as in order.txt"
    assert [entry["role"] for entry in document["inputs"]] == ["model", "quantized", "data", "ranking", "labels"]


def test_a_goal_that_is_missed_shows_in_the_exit_code(run: Run) -> None:
    words = ("--nodes", "stem/conv", "--score", "cosine")
    assert run(*words, "--goal", "99.99%")[0] == 1
    # Also where nobody names a goal: 99 % of float are missed.
    assert run(*words)[0] == 1
    assert run(*words, "--goal", "0.1")[0] == 0


def test_16_bits(run: Run) -> None:
    code, out, _ = run("--nodes", "all", "--to", "s16", "--score", "sqnr_db")
    # Ranges that cut values off do so at 16 bits, too: the usual 20 dB are missed.
    assert code == 1
    assert "at 16 bits (s16)" in out


def test_what_cannot_be_used_is_told(run: Run) -> None:
    Path("broken.py").write_text("def evaluate(run, samples):\n    return 1 / 0\n", encoding="utf-8")
    for words, what in (
        (("--nodes", "stem/con"), "did you mean 'stem/conv'?"),
        (("--nodes", "stem/conv", "--kind", "weight"), "--kind weight has no effect"),
        (("--evaluator", "eval.py", "--score", "cosine"), "An evaluator and the score 'cosine' were given"),
        (("--evaluator", "broken.py"), "failed in line 2: ZeroDivisionError"),
        (("--labels", "none.npy"), "none.npy does not exist"),
        (("--score", "accuracy"), "give --labels FILE or --evaluator FILE"),
        (("--goal", "good"), "write 99% or a score"),
        (("--ranking", "none.csv"), "none.csv does not exist"),
        (("--stop-at-goal",), "leave --stop-at-goal out"),
    ):
        code, out, err = run(*words)
        assert (code, out) == (2, ""), words
        assert what in err, err


def test_ctrl_c_while_ranking_ends_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = roundoff.studies.sensitivity.exact.ExactEngine
    measure = engine.measure

    def impatient(self: object, *given: object, **more: object) -> Iterator[object]:
        yield next(measure(self, *given, **more))  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "measure", impatient)
    code, out, err = run()
    assert (code, out) == (130, "")
    assert "interrupted" in err


def test_ctrl_c_while_evaluating_keeps_what_is_done(run: Run) -> None:
    text = "calls = []\ndef evaluate(run, samples):\n    calls.append(1)\n"
    text += "    if len(calls) > 3:\n        raise KeyboardInterrupt\n    return 1.0 / len(calls)\n"
    Path("eval.py").write_text(text, encoding="utf-8")
    code, out, _ = run("--evaluator", "eval.py", "--nodes", "block1/depthwise", "block2/depthwise", "logits")
    assert code == 130
    assert "the sweep was interrupted after 2 of 4 networks" in " ".join(out.split())
