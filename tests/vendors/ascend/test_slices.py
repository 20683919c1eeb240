"""Operators that ran in slices, compared with golden data and with each other."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from roundoff.cli import main
from tests.ascend_dumps import TIME, item, write_dump
from tests.vendors.ascend.models import op, output, write_model
from tests.vendors.ascend.networks import golden_folder

TRUTH = np.arange(24, dtype=np.float32).reshape(1, 4, 6)
CUT = json.dumps({
    "threadMode": False, "slice_instance_num": 2, "outputCutList": [[1, 2, 1]], "inputCutList": [[1, 2, 1]]
})  # fmt: skip


def write_sliced(folder: Path, *, slices: int = 2) -> Path:
    """Two operators one after the other, each in slices."""
    folder.mkdir()
    for place, name in enumerate(("first", "second")):
        for part in range(slices):
            values = item(TRUTH[:, 2 * part : 2 * part + 2])
            path = folder / f"Conv2D.{name}_lxslice{part}.{place}.1.{TIME + 10 * place + part}.4.9.0.0"
            write_dump(path, [values], [values], op_name=f"{name}_lxslice{part}", attribute=CUT)
    return folder


def compare(tmp_path: Path, *words: object) -> dict[str, dict[str, str]]:
    out = tmp_path / "out"
    for old in out.glob("*"):
        old.unlink()
    main(["ascend", "compare", *map(str, words), "-out", str(out)])
    (found,) = out.glob("result_*.csv")
    with found.open(newline="") as file:
        return {row["TensorIndex"]: row for row in csv.DictReader(file)}


@pytest.fixture
def sides(tmp_path: Path) -> tuple[object, ...]:
    write_sliced(tmp_path / "npu")
    golden_folder(tmp_path / "golden", {"x": TRUTH, "first": TRUTH, "second": TRUTH})
    rules = write_model(
        tmp_path / "m.json", op("x", "Data", outputs=[output(TRUTH.shape)]),
        op("first", inputs=["x:0"], outputs=[output(TRUTH.shape)]),
        op("second", inputs=["first:0"], outputs=[output(TRUTH.shape)]),
    )  # fmt: skip
    return ("-m", tmp_path / "npu", "-g", tmp_path / "golden", "-f", rules)


def test_slices_are_joined_and_compared(tmp_path: Path, sides: tuple[object, ...]) -> None:
    rows = compare(tmp_path, *sides)
    for name in ("first:input:0", "first:output:0", "second:input:0", "second:output:0"):
        assert (rows[name]["CosineSimilarity"], rows[name]["Shape"]) == ("1.000000", "[24]")


def test_the_vendor_shows_inputs_by_the_outputs_that_they_are(tmp_path: Path, sides: tuple[object, ...]) -> None:
    rows = compare(tmp_path, *sides, "--strict-vendor")
    # The first slice alone has another size than the golden tensor; where the producer is known its row is shown.
    assert rows["first:input:0"]["CosineSimilarity"] == "NaN"
    assert rows["second:input:0"]["CosineSimilarity"] == rows["first:output:0"]["CosineSimilarity"] == "1.000000"


def test_two_sliced_dumps(tmp_path: Path) -> None:
    mine, golden = (write_sliced(tmp_path / name) for name in "ab")
    rows = compare(tmp_path, "-m", mine, "-g", golden)
    assert rows["first_lxslice0:output:0"]["Shape"] == "[1,4,6]"
    separate = compare(tmp_path, "-m", mine, "-g", golden, "-ffts")
    assert separate["first_lxslice1:output:0"]["Shape"] == "[1,2,6]"


def test_missing_slices(tmp_path: Path) -> None:
    mine, golden = write_sliced(tmp_path / "a"), write_sliced(tmp_path / "b", slices=1)
    rows = compare(tmp_path, "-m", mine, "-g", golden)
    assert "shape does not match ((1, 4, 6) vs (1, 2, 6))" in rows["NaN"]["CompareFailReason"]


def test_operators_of_sub_graphs_are_found_by_their_whole_name(tmp_path: Path) -> None:
    name = "new_sub_graph1_sgt_graph_0/conv"
    (tmp_path / "npu").mkdir()
    write_dump(tmp_path / "npu" / f"Conv2D.new_sub_graph1_sgt_graph_0_conv.1.1.{TIME}", [item(TRUTH)])
    golden_folder(tmp_path / "golden", {"conv": TRUTH})
    found = op(name, originals=["conv"], outputs=[output(TRUTH.shape, origin="conv", index=0)])
    rows = compare(tmp_path, "-m", tmp_path / "npu", "-g", tmp_path / "golden", "-f",
                   write_model(tmp_path / "m.json", found))  # fmt: skip
    assert rows[f"{name}:output:0"]["CosineSimilarity"] == "1.000000"


def test_records_of_overflow_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side in "ab":
        write_sliced(tmp_path / side)
        write_dump(tmp_path / side / f"Opdebug.Node_OpDebug.1.1.{TIME}", [item(np.zeros(2048, np.uint8))])
    rows = compare(tmp_path, "-m", tmp_path / "a", "-g", tmp_path / "b")
    assert "is a record of an overflow" in capsys.readouterr().err
    assert not any("OpDebug" in name for name in rows)
