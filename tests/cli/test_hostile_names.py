"""Names that steer a terminal, turn the direction of writing or are formulas: no file carries them on."""

import csv
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from roundoff.cli import main
from tests.models import conv_net

STEERING = re.compile("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
FORMULA = re.compile(r"\s*[=+\-@]\D")
NAMES = {"node": "=cmd|' /C calc'!A0\x1b[31m", "tensor": "+x\x07\u202egnp.exe\u2066", "output": "@y\x9b2J"}


def hostile_model(path: Path) -> onnx.ModelProto:
    """A small net of which a node, an inner tensor and the output have such names."""
    proto = conv_net()
    graph = proto.graph
    graph.node[0].name = NAMES["node"]
    renamed = {graph.node[0].output[0]: NAMES["tensor"], graph.output[0].name: NAMES["output"]}
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    graph.output[0].name = NAMES["output"]
    for info in graph.value_info:
        info.name = renamed.get(info.name, info.name)
    onnx.save(proto, path)
    return proto


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the net and samples, which is the current one."""
    monkeypatch.chdir(tmp_path)
    proto = hostile_model(tmp_path / "m.onnx")
    shape = [each.dim_value or 1 for each in proto.graph.input[0].type.tensor_type.shape.dim]
    np.save("x.npy", np.random.default_rng(0).standard_normal((8, *shape[1:])).astype(np.float32))
    return tmp_path


def test_tables_and_reports_for_machines(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chip = ["m.onnx", "--data", "x.npy", "--target", "generic-int8"]
    runs = [
        ["layers", *chip, "-o", "layers"],
        ["sensitivity", *chip, "-o", "sensitivity"],
        ["distribution", "m.onnx", "*", "--data", "x.npy", "-o", "distribution"],
        ["diagnose", *chip, "-o", "diagnose"],
        ["dump", "m.onnx", "--data", "x.npy", "-o", "a"],
        ["dump", "m.onnx", "--data", "x.npy", "--stats-only", "-o", "stats"],
        ["compare", "a", "a", "-o", "compare", "--junit", "compare.xml"],
        ["gate", "layers", "--baseline", "layers", "-o", "gate", "--junit", "gate.xml"],
        ["report", "layers", "--format", "junit", "-o", "layers.xml"],
        ["report", "layers", "--format", "csv", "-o", "csv"],
        ["report", "diagnose", "--format", "md", "-o", "diagnose.md"],
        ["report", "compare", "--format", "csv", "-o", "csv-compare"],
    ]
    for words in runs:
        assert main(words) in (0, 1), words
        out, err = capsys.readouterr()
        assert not STEERING.search(out + err), words
    tables = list(files.rglob("*.csv"))
    assert len(tables) > 8
    cells = [cell for path in tables for row in csv.reader(path.open(encoding="utf-8")) for cell in row]
    assert not [cell for cell in cells if STEERING.search(cell) or FORMULA.match(cell)]
    assert any("'=cmd|" in cell for cell in cells)
    for path in (*files.glob("*.xml"), *files.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        assert not STEERING.search(text), path
        assert re.search(r"\\(x1b|x07|u202e|u009b)", text), path
