"""Names that would steer the terminal, or fill it, in what the commands print and write."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from roundoff.cli import main
from tests.models import save, value, weight, wrapped

Run = Callable[..., tuple[int, str, str]]
NASTY = "\x1b[31mred\x1b[0m\nPASS: forged\r\x07\x9b2J\u202e"
SHOWN = "\\x1b[31mred\\x1b[0m\\nPASS: forged\\r\\x07\\u009b2J\\u202e"
LONG = "block/" + "a_very_long_scope/" * 16 + "conv"


def named_net(name: str) -> object:
    """Two layers whose nodes and tensors have a name in theirs."""
    nodes = [
        helper.make_node("Conv", ["image", "w1"], [f"{name}1"], name=f"{name} first"),
        helper.make_node("Relu", [f"{name}1"], [f"{name}2"], name=f"{name} act"),
        helper.make_node("Conv", [f"{name}2", "w2"], [f"{name}3"], name=f"{name} last"),
    ]
    weights = [weight("w1", 4, 3, 3, 3), weight("w2", 2, 4, 3, 3)]
    return wrapped(nodes, [value("image", (1, 3, 8, 8))], [value(f"{name}3")], weights)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in a folder with samples."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    np.save("images.npy", np.random.default_rng(0).standard_normal((3, 3, 8, 8)).astype(np.float32))

    def call(*words: str) -> tuple[int, str, str]:
        return (main(words), *capsys.readouterr())

    return call


def quantize(run: Run, name: str) -> tuple[int, str, str]:
    save(named_net(name), Path("net.onnx"))
    rule = ("--set", f"node:{name} last=weight=float")
    return run("quantize", "net.onnx", "--data", "images.npy", "--target", "generic-int8", "-o", "q", *rule)


COMMANDS = (
    ("layers", "net.onnx", "--quantized", "q", "--data", "images.npy"),
    ("sensitivity", "net.onnx", "--quantized", "q", "--data", "images.npy"),
    ("audit", "q", "--all"),
    ("accumulate", "net.onnx", "--quantized", "q", "--data", "images.npy"),
    ("outliers", "net.onnx", "--quantized", "q", "--data", "images.npy"),
    ("dump", "net.onnx", "--data", "images.npy", "--stats-only", "-o", "stats"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_control_characters_in_names_are_shown_as_escapes(run: Run, words: tuple[str, ...]) -> None:
    code, out, err = quantize(run, NASTY)
    assert code == 0, err
    assert SHOWN in "".join(line.strip() for line in out.splitlines())
    code, more, notes = run(*words)
    assert code == 0, notes
    assert "\\x1b[31mred" in more
    for text in (out, err, more, notes):
        assert not {letter for letter in text if not letter.isprintable()} - {"\n"}
        assert not any(line.strip().startswith("PASS: forged") for line in text.splitlines())


def test_files_keep_names_as_they_are(run: Run) -> None:
    quantize(run, NASTY)
    code, out, _ = run("layers", "net.onnx", "--quantized", "q", "--data", "images.npy", "--json")
    assert code == 0
    assert {row["tensor"] for row in json.loads(out)["layers"]["rows"]} == {f"{NASTY}{number}" for number in "123"}
    plan = json.loads(Path("q/plan.json").read_text(encoding="utf-8"))
    assert {node["node"] for node in plan["plan"]["nodes"]} == {
        f"{NASTY} {word}" for word in ("first", "act", "last")
    }


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_long_names_leave_a_table_readable(run: Run, words: tuple[str, ...]) -> None:
    quantize(run, LONG)
    code, out, err = run(*words)
    assert code == 0, err
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    head = next(place for place, line in enumerate(lines) if " op " in line or "# tensor" in line)
    table = "".join(line.strip() for line in lines[head:])
    assert "..." in table
    assert LONG not in table


def test_names_of_files_that_are_not_utf8(run: Run) -> None:
    folder = Path(os.fsdecode("模型".encode("gbk")))
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this disk takes UTF-8 names only")
    save(named_net("n"), folder / f"{folder}.onnx")
    shutil.copy("images.npy", folder / f"{folder}.npy")
    words = (str(folder / f"{folder}.onnx"), "--target", "generic-int8", "--data", str(folder / f"{folder}.npy"))
    for command in ("layers", "diagnose", "check-calibration"):
        code, _, error = run(
            command, *words, "-o", str(folder / command), "--html", str(folder / f"{command}.html")
        )
        assert code < 2, error
        document = json.loads((folder / command / "run.json").read_text(encoding="utf-8"))
        assert any("\\xd0\\xcd.onnx" in word for word in document["command"])
    assert run("report", str(folder / "layers"), "-o", str(folder / "report.md"))[0] == 0
