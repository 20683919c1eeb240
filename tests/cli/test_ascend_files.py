"""Files that ``roundoff ascend`` writes: single operators, conversions, the advisor's summary."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from roundoff.vendors.ascend.errors import Code
from tests.ascend_dumps import TIME, item, vectors, write_dump, write_dumps
from tests.cli.ascending import ascend
from tests.vendors.ascend.networks import Sides, write_sides

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return ascend(capsys)


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    return write_sides(tmp_path / "sides")


# One operator ---------------------------------------------------------------------------------------------------


def test_one_operator_in_files(run: Run, sides: Sides, tmp_path: Path) -> None:
    out = tmp_path / "single"
    out.mkdir()
    (out / "fc1_output_0_0.csv").write_text("old")
    (out / "fc1_output_0_mine.csv").write_text("keep")
    words = ("-m", sides.npu, "-g", sides.float, "-f", sides.on, "-op", "fc1", "-out", out)
    code, text, _ = run("compare", *words, "-n", "3")
    assert code == 0
    assert "largest absolute errors of fc1:output:0" in text
    table = (out / "fc1_output_0_0.csv").read_text().splitlines()
    assert (len(table), table[0]) == (41, "Index,N C H W,NPUDump,GroundTruth,AbsoluteError,RelativeError")
    assert len((out / "fc1_output_0_absolute_error_topn.csv").read_text().splitlines()) == 4
    assert np.load(out / "fc1_output_0.npy").shape == (1, 40)
    assert (out / "fc1_output_0_mine.csv").read_text() == "keep"
    run("compare", *words, "--ignore_single_op_result", "-i", "0")
    assert not (out / "fc1_input_0_0.csv").exists()
    assert (out / "fc1_input_0_summary.txt").exists()


def test_tables_are_split(run: Run, tmp_path: Path) -> None:
    values = np.arange(25_000, dtype=np.float32)
    write_dumps(tmp_path / "a", {"x": values})
    write_dumps(tmp_path / "b", {"x": values + 1})
    run(
        "compare", "-m", tmp_path / "a", "-g", tmp_path / "b", "-op", "x", "-ml", "10000", "-out", tmp_path / "out"
    )
    sizes = {
        path.name: len(path.read_text().splitlines()) for path in (tmp_path / "out").glob("x_output_0_*0.csv")
    }
    assert sizes == {"x_output_0_0.csv": 10_001, "x_output_0_10000.csv": 10_001, "x_output_0_20000.csv": 5_001}
    assert (tmp_path / "out" / "x_output_0_20000.csv").read_text().splitlines()[1].startswith("20000,20000 0 0 0,")


def test_booleans_have_no_errors(run: Run, tmp_path: Path) -> None:
    for side in "ab":
        write_dumps(tmp_path / side, {"x": np.array([True, False, True])})
    run("compare", "-m", tmp_path / "a", "-g", tmp_path / "b", "-op", "x", "-out", tmp_path / "out")
    lines = (tmp_path / "out" / "x_output_0_0.csv").read_text().splitlines()
    assert lines[1] == "0,0 0 0 0,True\t,True\t,-\t,-"
    assert "MaxAbsoluteError:-" in (tmp_path / "out" / "x_output_0_summary.txt").read_text()


# convert, advisor -----------------------------------------------------------------------------------------------


def test_dumps_become_arrays(run: Run, tmp_path: Path) -> None:
    truth = np.arange(60, dtype=np.float16).reshape(1, 3, 4, 5)
    stored = np.zeros((1, 1, 4, 5, 16), np.float16)
    stored[0, 0, :, :, :3] = truth[0].transpose(1, 2, 0)
    (tmp_path / "d").mkdir()
    dump = write_dump(
        tmp_path / "d" / f"Op.x.1.1.{TIME}",
        [item(stored, format="NC1HWC0", original=truth.shape)],
        [item(np.arange(3))],
        op_name="net/x",
        buffers=[b"abc"],
    )
    assert run("convert", "-d", tmp_path / "d", "-out", tmp_path / "npy")[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "npy" / f"{dump.name}.output.0.npy"), stored)
    assert (tmp_path / "npy" / f"{dump.name}.l1buffer.0.bin").read_bytes() == b"abc"
    run("convert", "-d", dump, "-out", tmp_path / "bin", "-t", "bin")
    assert (tmp_path / "bin" / f"{dump.name}.output.0.320.float16.NC1HWC0.bin").read_bytes() == stored.tobytes()
    run("convert", "-d", dump, "-out", tmp_path / "ms", "-t", "msnpy")
    assert (tmp_path / "ms" / f"Op.x.1.1.{TIME}.input.0.ND.npy").exists()
    for layout, axes in (("NCHW", (0, 1, 2, 3)), ("NHWC", (0, 2, 3, 1)), ("HWCN", (2, 3, 1, 0))):
        run("convert", "-d", dump, "-f", layout, "-o", "0", "-out", tmp_path / layout)
        wanted = truth.transpose(axes)
        size = "x".join(map(str, wanted.shape))
        np.testing.assert_array_equal(np.load(tmp_path / layout / f"{dump.name}.output.0.{size}.npy"), wanted)
    run("convert", "-d", dump, "-f", "ORIGINAL", "-out", tmp_path / "original")
    np.testing.assert_array_equal(np.load(tmp_path / "original" / f"{dump.name}.output.0.1x3x4x5.npy"), truth)


def test_links_out_of_the_folder_are_not_converted(run: Run, tmp_path: Path) -> None:
    write_dump(tmp_path / f"Op.far.1.1.{TIME}", [item(np.ones(3, np.float32))])
    folder = tmp_path / "dumps"
    folder.mkdir()
    write_dump(folder / f"Op.near.1.1.{TIME}", [item(np.ones(3, np.float32))])
    (folder / f"Op.far.1.1.{TIME}").symlink_to(tmp_path / f"Op.far.1.1.{TIME}")
    code, _, err = run("convert", "-d", folder, "-out", tmp_path / "out")
    assert (code, "leads out of the folder" in err) == (0, True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [f"Op.near.1.1.{TIME}.output.0.npy"]


def test_conversions_that_fail_are_listed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    write_dump(tmp_path / "d" / f"Op.good.1.1.{TIME}", [item(np.ones(2))])
    (tmp_path / "d" / f"Op.bad.1.1.{TIME}").write_bytes(b"x")
    code, _, err = run("convert", "-d", tmp_path / "d", "-out", tmp_path / "o")
    assert (code, "could not be converted" in err) == (Code.NOT_PARSED, True)
    assert (tmp_path / "o" / "convert_failed_file_list.txt").read_text().endswith(f"Op.bad.1.1.{TIME}\n")
    assert (tmp_path / "o" / f"Op.good.1.1.{TIME}.output.0.npy").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [(["-s", "1,2"], Code.PARAMETER), (["-o", "0"], Code.PARAMETER), (["-f", "XYZ"], Code.FORMAT),
     (["-f", "ND", "-s", "a"], Code.PARAMETER), (["-f", "ND", "-s", "9,9"], Code.PARAMETER)],
)  # fmt: skip
def test_conversions_that_mean_nothing(run: Run, tmp_path: Path, words: list[str], code: Code) -> None:
    dump = write_dump(tmp_path / f"Op.x.1.1.{TIME}", [item(np.ones((2, 2, 16, 16)), format="FRACTAL_NZ")])
    assert run("convert", "-d", dump, "-out", tmp_path / "o", *words)[0] == code


def test_the_vendors_conversions(run: Run, tmp_path: Path) -> None:
    folder = vectors("format")
    for place, case in enumerate(json.loads((folder / "cases.json").read_text())):
        shape = ["-s", case["shape_flag"]] if case["shape_flag"] else []
        out = tmp_path / str(place)
        code, _, _ = run("convert", "-d", folder / case["dump"], "-f", case["target"], *shape, "-out", out)
        if case["true_shape"] is not None:
            (found,) = out.iterdir()
            assert (code, list(np.load(found).shape)) == (0, case["true_shape"])


@pytest.mark.parametrize(
    ("damage", "kind", "index"), [(0.0, "Global Consistency", "NA"), (0.5, "Global Consistency", "2")]
)
def test_the_advisor(run: Run, tmp_path: Path, damage: float, kind: str, index: str) -> None:
    sides = write_sides(tmp_path / "s", damage=damage)
    words = ("-m", sides.npu, "-g", sides.float, "-f", sides.on, "-advisor", "-out", tmp_path / "o")
    code, out, _ = run("compare", *words)
    assert code == 0
    assert f"Detection Type: {kind}" in out
    assert f"Operator Index: {index}" in out
    (table,) = (tmp_path / "o").glob("result_*.csv")
    code, again, _ = run("advisor", "-i", table, "-o", tmp_path / "again")
    assert f"Operator Index: {index}" in again
    assert (tmp_path / "again" / "advisor_summary.txt").read_bytes() == (
        tmp_path / "o" / "advisor_summary.txt"
    ).read_bytes()
