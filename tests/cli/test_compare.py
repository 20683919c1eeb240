"""`roundoff compare` as a user types it."""

import csv
import io
import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import onnx
import pytest

from roundoff.cli import main
from roundoff.core.tensors import Array
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.load import load_model
from roundoff.graph.quantized_model import dequantized_tensors
from roundoff.tensors import open_source
from tests.models import conv_net, save
from tests.studies.layers.support import demo_network

NAMES = ["conv1", "relu1", "conv2", "relu2", "pool", "logits"]


def tensors(seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal((1, 8, 6, 6)).astype(np.float32) for name in NAMES}


def write(folder: Path, content: dict[str, Array]) -> Path:
    folder.mkdir(parents=True)
    for name, values in content.items():
        np.save(folder / f"{name}.npy", values)
    return folder


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write(tmp_path / "good", tensors())


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    content = tensors()
    content["conv2"] = content["conv2"] * np.float32(0.5)
    return write(tmp_path / "bad", content)


def run(*words: object) -> int:
    return main(["compare", *(str(word) for word in words)])


def test_equal_folders_pass(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(good, good) == 0
    told = capsys.readouterr()
    assert told.out.startswith("PASS: 6 of 6 tensors pass (1 sample)\n")
    # What agrees with itself shows nothing; a copy shows that it is one.
    same = "both sides are the same files"
    assert same in told.out + told.err
    assert run(good, shutil.copytree(good, good.parent / "copy")) == 0
    told = capsys.readouterr()
    assert same not in told.out + told.err


def test_a_difference_is_named_and_leaves_with_one(
    good: Path, bad: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(good, bad) == 1
    out = capsys.readouterr().out
    assert out.startswith("FAIL: 5 of 6 tensors pass (1 sample)\n")
    assert "gain 0.5" in out
    assert run(good, bad, "--threshold", "relative_euclidean=0.1") == 1
    assert run(good, bad, "--threshold", "cosine=0.99") == 0
    assert run(good, bad, "--profile", "ascend") == 1
    assert run(good, bad, "--profile", "tensorrt-edge-llm") == 1


def test_json_and_csv_are_whole_on_stdout(good: Path, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(good, bad, "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["comparison"]["verdict"]["failed"] == 1
    assert document["command"][1:3] == ["compare", str(good)]
    assert document["inputs"][0]["role"] == "reference"
    assert run(good, bad, "--csv") == 1
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 6
    assert [row["reference"] for row in rows if row["passed"] == "no"] == ["conv2"]


def test_results_are_written_once(
    good: Path, bad: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, junit = tmp_path / "run", tmp_path / "j.xml"
    assert run(good, bad, "-o", out, "--junit", junit) == 1
    assert sorted(path.name for path in out.glob("[!.]*")) == ["run.json", "tensors.csv"]
    assert ET.parse(junit).getroot().get("failures") == "1"  # noqa: S314 - our own file
    capsys.readouterr()
    assert run(good, bad, "-o", out) == 2
    assert "already holds a result" in capsys.readouterr().err
    assert run(good, bad, "--junit", junit) == 2
    assert "add --force" in capsys.readouterr().err
    assert run(good, bad, "-o", out, "--junit", junit, "--force") == 1


def test_the_same_run_twice_gives_the_same_body(good: Path, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bodies = []
    for _ in range(2):
        run(good, bad, "--json")
        document = json.loads(capsys.readouterr().out)
        del document["environment"]
        bodies.append(json.dumps(document))
    assert bodies[0] == bodies[1]


def test_a_model_runs_and_names_the_culprit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save(conv_net(), tmp_path / "model.onnx")
    data = tmp_path / "x.npy"
    np.save(data, np.random.default_rng(0).standard_normal((3, 3, 8, 8)).astype(np.float32))
    dump = tmp_path / "dump"
    assert main(["dump", str(model), "--data", str(data), "-o", str(dump)]) == 0
    assert run(model, dump, "--data", data, "--threshold", "max_abs_error=0") == 0
    capsys.readouterr()
    assert run(model, model, "--data", data, "--json") == 0
    rows = json.loads(capsys.readouterr().out)["comparison"]["rows"]
    assert all(row["score"]["values"]["mse"] == 0 for row in rows)
    capsys.readouterr()
    # A plain folder has no order; with the model it has, and culprits can be told from victims.
    plain, broken = tmp_path / "plain", tmp_path / "broken"
    for folder in (plain, broken):
        folder.mkdir()
        for file in (dump / "0").glob("*.npy"):
            values = np.load(file)
            np.save(folder / file.name, values * 2 if folder == broken and "input" not in file.name else values)
    assert run(plain, broken, "--json") == 1
    assert json.loads(capsys.readouterr().out)["comparison"]["verdict"]["first_divergence"] is None
    assert run(plain, broken, "--model", model, "--json") == 1
    found = json.loads(capsys.readouterr().out)["comparison"]
    assert found["verdict"]["introduces"] == [found["verdict"]["first_divergence"]]
    assert found["verdict"]["victims"]


def test_shapes_of_raw_files_come_from_the_model(tmp_path: Path) -> None:
    model = save(conv_net(), tmp_path / "model.onnx")
    data = tmp_path / "x.npy"
    np.save(data, np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32))
    dump = tmp_path / "dump"
    assert main(["dump", str(model), "--data", str(data), "--format", "bin", "-o", str(dump)]) == 0
    (dump / "tensors.json").unlink()
    assert run(model, dump, "--data", data, "--model", model) == 2  # the reference is a model itself
    reference = tmp_path / "ref"
    assert main(["dump", str(model), "--data", str(data), "-o", str(reference)]) == 0
    assert run(reference, dump, "--model", model, "--threshold", "max_abs_error=0") == 0


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--threshold", "cosin=1"], 2, "did you mean 'cosine'"),
        (["--profile", "asend"], 2, "did you mean 'ascend'"),
        (["--data", "x.npy"], 2, "neither side is a model"),
        (["--model", "nowhere.onnx"], 2, "does not exist"),
        (["--aliases", "nowhere.json"], 2, "does not exist"),
        (["--format", "npyy"], 2, "did you mean 'npy'"),
        (["--channel-axis", "9"], 2, "no tensor has an axis 9"),
        (["--samples", "2", "--threads", "3"], 2, "--samples, --threads were given, but neither side is a model"),
    ],
)
def test_bad_options_say_what_to_type(
    good: Path, options: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(good, good, *options) == code
    err = capsys.readouterr().err
    assert message in err
    assert "fix: " in err


def test_nothing_in_common_is_code_three(good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write(tmp_path / "other", {"alien": np.arange(7.0)})
    assert run(good, other) == 3
    assert "fix: " in capsys.readouterr().err


def test_a_damaged_file_is_one_row(good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = write(tmp_path / "damaged", tensors())
    whole = (damaged / "relu1.npy").read_bytes()
    (damaged / "relu1.npy").write_bytes(whole[: len(whole) // 2])
    assert run(good, damaged, "--json") == 1
    rows = json.loads(capsys.readouterr().out)["comparison"]["rows"]
    statuses = {row["reference"]: row["score"]["status"] for row in rows}
    assert statuses["relu1"] == "unreadable"
    assert sum(status == "ok" for status in statuses.values()) == 5
    assert run(good, damaged, "--threshold", "cosine=0.5") == 1


def test_aliases_and_names_only(good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    renamed = write(tmp_path / "renamed", {f"layer_{i}": v for i, v in enumerate(tensors().values())})
    aliases = tmp_path / "aliases.json"
    aliases.write_text(json.dumps({name: f"layer_{i}" for i, name in enumerate(NAMES)}))
    assert run(good, renamed, "--aliases", aliases, "--no-value-matching", "--csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["matched_by"] for row in rows} == {"alias"}
    assert run(good, renamed, "--no-value-matching") == 3
    capsys.readouterr()
    assert run(good, renamed, "--csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["matched_by"] for row in rows} == {"value"}
    assert {row["candidate"] for row in rows} == {f"layer_{i}" for i in range(6)}


@pytest.fixture
def dumped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Path, Path, Path]:
    """A model, samples, and what it computes of them."""
    model = save(conv_net(), tmp_path / "model.onnx")
    data = tmp_path / "x.npy"
    np.save(data, np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32))
    assert main(["dump", str(model), "--data", str(data), "-o", str(tmp_path / "dump")]) == 0
    capsys.readouterr()
    return model, data, tmp_path / "dump"


def test_the_way_on_from_a_dump_that_differs(
    dumped: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    model, data, dump = dumped
    assert run(model, dump, "--data", data) == 0
    assert "roundoff diagnose" not in capsys.readouterr().out
    file = max((dump / "0").glob("*.npy"), key=lambda path: path.stat().st_size)
    np.save(file, np.load(file) * np.float32(0.2))
    assert run(model, dump, "--data", data) == 1
    out = "".join(capsys.readouterr().out.replace("\\\n", "").split())
    assert f"nextroundoffdiagnose{model}--data{data}--dumps{dump}" in out
    assert run(model, dump, "--data", data, "--json") == 1
    json.loads(capsys.readouterr().out)


def test_a_tensor_that_was_not_dumped_introduces_nothing(
    dumped: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    model, data, dump = dumped
    lost = max((dump / "0").glob("*.npy"), key=lambda path: path.stat().st_size)
    lost.unlink()
    assert run(model, dump, "--data", data) == 1
    out = capsys.readouterr().out
    assert out.startswith("FAIL")
    assert "not read" in out
    assert "starts at" not in out
    assert "introduced by" not in out


def test_a_quantized_reference_is_what_comes_out_of_its_pairs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quantized, samples = demo_network()
    model = tmp_path / "quantized.onnx"
    onnx.save(insert_quantizers(quantized.float_model, quantized.quantizers).proto, model)
    np.save(tmp_path / "x.npy", np.concatenate([samples.feed(index)["image"] for index in range(2)]))
    dump, board = tmp_path / "dump", tmp_path / "board"
    assert main(["dump", str(model), "--data", str(tmp_path / "x.npy"), "-o", str(dump)]) == 0
    # A board writes what it goes on with: values behind each pair, under the names in front of it.
    behind = dequantized_tensors(load_model(model))
    source = open_source(dump)
    for sample in source.samples:
        (board / f"sample{sample}").mkdir(parents=True)
        for name, pair in behind.items():
            np.save(board / f"sample{sample}" / f"{name.replace('/', '_')}.npy", source.read(pair, sample))
    capsys.readouterr()
    run(model, board, "--data", tmp_path / "x.npy", "--no-value-matching", "--csv")
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    paired = [row for row in rows if row["status"] != "missing"]
    assert len(paired) == len(behind)
    assert all(float(row["max_abs_error"]) == 0 for row in paired)
