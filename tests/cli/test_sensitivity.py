"""The command ``roundoff sensitivity``."""

import csv
import importlib
import io
import json
from pathlib import Path

import numpy as np
import pytest

from roundoff.cli import main
from roundoff.core.document import load_document
from roundoff.demo import load_split
from roundoff.studies.sensitivity.result import SubjectScore
from tests.cli.inspecting import MODEL, Run, save_quantized


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in a folder with images and a quantized model, one of whose activations is clipped."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    np.save("images.npy", load_split("calibration")[0][:8])
    save_quantized(Path("quantized.onnx"))

    def call(*words: str) -> tuple[int, str, str]:
        code = main(["sensitivity", MODEL, "--quantized", "quantized.onnx", "--data", "images.npy", *words])
        return (code, *capsys.readouterr())

    return call


def test_what_stands_out_comes_first(run: Run) -> None:
    code, out, err = run("--top", "3")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    # Both nodes that read the clipped tensor.
    assert lines[0] == "2 STAND OUT of 14 nodes, each quantized alone (8 samples)"
    assert any(line.startswith("  nodes        2 of 14: block4/add, block4/depthwise") for line in lines)
    assert any(line.startswith("  activations  1 of 15: ") and "block3/relu" in line for line in lines)
    assert max(map(len, lines)) <= 80
    tables = [line.split() for line in lines if line.split()[:1] == ["#"]]
    assert [heading[1] for heading in tables] == ["node", "weight", "activation"]
    assert tables[0][2:] == ["op", "SQNR", "dB", "95", "%", "interval", "cosine"]
    assert tables[2][2:4] == ["read", "by"]
    assert "~ the difference to the next row is not significant" in out


def test_everything_can_be_written_and_read_again(run: Run) -> None:
    code, out, err = run("--kind", "weight", "--metric", "cosine,mse", "--csv", "table.csv", "--json", "-o", "run")
    assert code == 0
    names = ["run/run.json", "run/sensitivity.csv", "run/sensitivity_of_weight.png", "table.csv"]
    assert err.split() == ["written:", *names]
    printed, stored = json.loads(out), load_document(Path("run")).sensitivity
    assert stored is not None
    rows = stored.rankings["weight"]
    assert [row["name"] for row in printed["sensitivity"]["rankings"]["weight"]] == [row.name for row in rows]
    assert list(stored.rankings) == ["weight"]
    assert len(rows[0].per_sample) == 8
    records = list(csv.DictReader(io.StringIO(Path("table.csv").read_text(encoding="utf-8"))))
    assert [record["name"] for record in records] == [row.name for row in rows]
    assert float(records[0]["mse at logits"]) == rows[0].per_output["mse"][0]
    assert Path("run/sensitivity.csv").read_bytes() == Path("table.csv").read_bytes()


def test_left_out_the_culprit_is_the_one_without_which_it_is_best(run: Run) -> None:
    content = json.loads(run("--leave-one-out", "--kind", "activation", "--json")[1])["sensitivity"]
    first, second = content["rankings"]["activation"][:2]
    assert first["tensor"] == "block3/relu"
    assert first["scores"]["sqnr_db"] > second["scores"]["sqnr_db"] + 6
    assert first["scores"]["sqnr_db"] > content["quantized"]["sqnr_db"] + 6
    assert content["verdicts"][0]["names"] == [first["name"]]


def test_what_is_chosen_is_measured(run: Run) -> None:
    words = [
        "--nodes",
        "block1/*",
        "--group",
        "block3/pointwise",
        "block4/pointwise",
        "--output-node",
        "block4/add",
    ]
    content = json.loads(run("--kind", "node", *words, "--json", "--samples", "2")[1])["sensitivity"]
    assert {row["name"] for row in content["rankings"]["node"]} == {"block1/depthwise", "block1/pointwise"}
    assert [row["name"] for row in content["rankings"]["group"]] == ["block3/pointwise + block4/pointwise"]
    assert content["outputs"] == ["block4/add"]
    assert len(content["samples"]) == 2


def test_two_stages_say_on_how_many_samples(run: Run) -> None:
    code, out, _ = run("--kind", "node", "--first-samples", "6", "--top", "all")
    assert code == 0
    assert "(6 to 8 samples)" in " ".join(out.split())
    assert " samples\n" in out


def test_a_fast_run_says_how_few_samples_it_took(run: Run) -> None:
    code, out, _ = run("--fast", "--kind", "node", "--first-samples", "3")
    assert code == 0
    said = "a fast analysis: all on 3 of 8 samples, the leading ones on 8; ranks behind these are rough"
    assert said in " ".join(out.split())
    _, chinese, _ = run("--fast", "--kind", "node", "--first-samples", "3", "--lang", "zh")
    assert "全部对象用 8 个样本中的 3 个测量" in chinese
    content = json.loads(run("--fast", "--kind", "node", "--json")[1])["sensitivity"]
    assert (content["effort"]["how"], content["effort"]["first_samples"]) == ("fast", 4)
    # Both nodes that read the clipped tensor.
    assert {row["name"] for row in content["rankings"]["node"][:2]} == {"block4/add", "block4/depthwise"}


def test_an_interrupted_run_shows_what_is_done_and_goes_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    audience = importlib.import_module("roundoff.studies.sensitivity.study").ProgressListeners
    seen: list[SubjectScore] = []

    class Impatient(audience):  # type: ignore[misc, valid-type]
        def __init__(self, *given: object) -> None:
            super().__init__(*given)
            self.on_result = self.stop

        def stop(self, score: SubjectScore) -> None:
            seen.append(score)
            if len(seen) == 4:
                raise KeyboardInterrupt

    words = ("--kind", "weight", "--exact", "--resume", "journal.jsonl", "--samples", "2")
    with monkeypatch.context() as patch:
        patch.setattr("roundoff.studies.sensitivity.study.ProgressListeners", Impatient)
        code, out, err = run(*words)
    assert code == 130
    assert ", not complete)" in " ".join(out.split())
    assert "the same command goes on where journal.jsonl ends" in err
    content = json.loads(run(*words, "--json")[1])["sensitivity"]
    assert content["complete"] is True
    assert content["effort"]["resumed"] >= 3


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--metric", "cosin"), "did you mean 'cosine'?"),
        (("--nodes", "nothing*"), "is no quantized node"),
        (("--exact", "--first-samples", "4"), "--first-samples has no effect with --exact"),
        (("--output-node", "nowhere"), "no tensor or node 'nowhere'"),
        (("--fast", "--exact"), "either exact or fast"),
        (("--resume", "same", "--csv", "same"), "--resume and --csv both name same"),
        (("--resume", "same.png", "--plot", "same.png"), "--resume and --plot both name same.png"),
        (("--resume", "out/journal", "-o", "out"), "is in the folder of -o"),
        (("--csv", "images.npy", "--force"), "--force replaces only earlier results"),
        (("--resume", "images.npy/x"), "choose a path that can be written with --resume"),
    ],
)
def test_errors_say_what_to_write(run: Run, words: tuple[str, ...], error: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert error in err


@pytest.mark.parametrize("text", ["soon", "0s", "-1", "5 days", "9" * 400 + "s"])
def test_a_budget_is_a_time(run: Run, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(f"--budget={text}")
    assert f"{text!r} is not a time; write it as 90s, 5m or 1h" in capsys.readouterr().err


def test_a_damaged_journal_is_told(run: Run) -> None:
    words = ("--kind", "weight", "--exact", "--resume", "journal.jsonl", "--samples", "2", "--json")
    first = json.loads(run(*words)[1])["sensitivity"]
    lines = Path("journal.jsonl").read_text(encoding="utf-8").splitlines()
    lines[1] = lines[1][:40]
    Path("journal.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    again = json.loads(run(*words)[1])["sensitivity"]
    assert again["rankings"] == first["rankings"]
    assert (
        again["notes"][-1]["text"]
        == "journal.jsonl has 1 damaged line; what was lost with that was measured again"
    )
    assert again["effort"]["resumed"] == first["effort"]["measured"] - 1
