"""The command ``roundoff ascend``."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from roundoff.cli import main
from roundoff.core.progress import SILENT
from roundoff.vendors.ascend.comparison import Request, compare_network
from roundoff.vendors.ascend.errors import Code
from roundoff.vendors.ascend.scenarios import RuleFiles
from tests.ascend_dumps import TIME, Item, item, vectors, write_dump, write_dumps
from tests.cli.ascending import ascend
from tests.models import conv_net, save
from tests.vendors.ascend.models import op, output, write_model
from tests.vendors.ascend.networks import Sides, golden_folder, write_sides

Run = Callable[..., tuple[int, str, str]]
Rows = list[dict[str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return ascend(capsys)


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    return write_sides(tmp_path / "sides")


@pytest.fixture
def compare(run: Run, tmp_path: Path) -> Callable[..., tuple[int, Rows]]:
    """Compares, and gives the rows of the table."""
    out = tmp_path / "compared"

    def call(*words: object) -> tuple[int, Rows]:
        for old in out.glob("*.csv"):
            old.unlink()
        code, _, err = run("compare", *words, "-out", out)
        found = list(out.glob("*result_*.csv"))
        assert len(found) == 1, err
        with found[0].open(newline="") as file:
            return code, list(csv.DictReader(file))

    return call


Compare = Callable[..., tuple[int, Rows]]


def cosines(rows: Rows) -> dict[str, str]:
    return {row["TensorIndex"]: row["CosineSimilarity"] for row in rows if row["TensorIndex"] != "NaN"}


# Samples of the vendor ------------------------------------------------------------------------------------------

SAMPLES = (
    "01_npu_vs_caffe_fp32", "03_advisor_good", "05_npu_vs_npu", "06_missing_dump", "08_range", "10_mapping",
    "16_single_op_output", "20_fakequant_vs_fp32_q", "21_npu_quant_off_vs_fakequant_f",
    "22_npu_quant_on_vs_fp32_f_q", "25_npu_quant_fusion_on_vs_off", "30_npu_fusion_on_vs_off", "40_relations",
    "44_shapes",
)  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_the_vendor_is_reproduced(name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = vectors(f"net/expected/{name}")
    monkeypatch.chdir(vectors("net"))
    about = json.loads((expected / "run.json").read_text())
    code, _, err = run("compare", *about["args"], "-out", tmp_path, "--strict-vendor")
    assert code == about["exit_code"]
    assert [line.partition("[WARNING] ")[2] for line in err.splitlines()] == about["warnings_errors"]
    for path in expected.iterdir():
        if path.name in ("run.json", "advisor_summary.txt", "result_msprobe26.csv"):
            continue
        stem = path.stem if path.stem in ("result", "mapping") else ""
        (found,) = tmp_path.glob(f"{stem}_*.csv") if stem else [tmp_path / path.name]
        assert found.read_bytes().replace(b"\r\n", b"\n") == path.read_bytes()


def test_the_newer_generation_undoes_formats(run: Run, tmp_path: Path) -> None:
    net = vectors("net")
    expected = (net / "expected" / "05_npu_vs_npu" / "result_msprobe26.csv").read_text()
    run("compare", "-m", net / "npu_b", "-g", net / "npu_a", "--generation", "26", "-out", tmp_path)
    (found,) = tmp_path.glob("result_*.csv")
    assert found.read_text() == expected


def test_the_advisors_kind_and_index_are_the_vendors(run: Run, tmp_path: Path) -> None:
    net = vectors("net")
    run("compare", "-m", net / "npu_a", "-g", net / "golden_fp32", "-f", net / "om_fused.json", "-advisor", "-out",
        tmp_path)  # fmt: skip
    expected = (net / "expected" / "03_advisor_good" / "advisor_summary.txt").read_text().splitlines()
    assert (tmp_path / "advisor_summary.txt").read_text().splitlines()[:2] == expected[:2]


@pytest.mark.parametrize("kind", ["old", "new"])
def test_overflows_are_told_as_the_vendor_does(kind: str, run: Run, tmp_path: Path) -> None:
    folder = vectors("overflow")
    code, out, _ = run("overflow", "-d", folder / f"dump_{kind}", "-out", tmp_path)
    assert code == 0
    (summary,) = tmp_path.glob("overflow_summary_*.txt")
    expected = folder / f"expected_{kind}"
    assert summary.read_text() == (expected / "overflow_summary.txt").read_text()
    assert summary.read_text() in out
    for path in expected.glob("*.0.*"):
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


# The scenarios of the guide -------------------------------------------------------------------------------------


def test_a_float_original_against_an_offline_model(compare: Compare, sides: Sides) -> None:
    code, rows = compare("-m", sides.npu, "-g", sides.float, "-f", sides.on)
    assert code == 0
    assert cosines(rows) == {
        f"{name}:{part}:0": "1.000000" for name in ("trans", "conv1relu1", "fc1") for part in ("input", "output")
    }
    fused = next(row for row in rows if row["TensorIndex"] == "conv1relu1:output:0")
    assert (fused["NPUDump"], fused["GroundTruth"], fused["Shape"]) == ("conv1relu1", "conv1,relu1", "[1,20,8,8]")
    assert [row["NPUDump"] for row in rows if "no dump file" in row["CompareFailReason"]] == ["data", "out"]


def test_an_onnx_original_dumped_by_roundoff(compare: Compare, tmp_path: Path) -> None:
    model = save(conv_net(), tmp_path / "model.onnx")
    np.save(tmp_path / "input.npy", np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32))
    golden = tmp_path / "golden"
    words = ["dump", model, "--data", tmp_path / "input.npy", "--format", "ascend-npy", "-o", golden]
    assert main([str(word) for word in words]) == 0
    (tmp_path / "npu").mkdir()
    ops = []
    for place, path in enumerate(sorted(golden.glob("*.npy"))):
        name, values = path.name.split(".")[0], np.load(path)
        found = item(values.astype(np.float16), original=values.shape)
        write_dump(tmp_path / "npu" / f"Op.{name}.{place}.1.{TIME + place}", [found], op_name=name)
        ops.append(op(name, outputs=[output(values.shape)]))
    code, rows = compare("-m", tmp_path / "npu", "-g", golden, "-f", write_model(tmp_path / "om.json", *ops))
    assert code == 0
    assert len(rows) == len(ops) > 2
    assert set(cosines(rows).values()) == {"1.000000"}


@pytest.mark.parametrize(("suffix", "code"), [("pb", 0), ("quant", Code.KIND)])
def test_golden_data_of_old_tools(compare: Compare, run: Run, sides: Sides, suffix: str, code: int) -> None:
    golden = Path(sides.float)
    for path in list(golden.iterdir()):
        write_dump(path.with_suffix(f".{suffix}"), [item(np.load(path))])
        path.unlink()
    words = ("-m", sides.npu, "-g", golden, "-f", sides.on)
    if code:  # such files say that they are quantized, which the dump is not
        assert run("compare", *words)[0] == code
    else:
        assert compare(*words)[0] == 0
        assert cosines(compare(*words)[1])["conv1relu1:output:0"] == "1.000000"


def test_from_python(sides: Sides, tmp_path: Path) -> None:
    request = Request(Path(sides.npu), Path(sides.float), RuleFiles(offline=Path(sides.on)), out=tmp_path / "o")
    result = compare_network(request, warn=lambda text: None, progress=SILENT)
    assert result.matched
    assert result.path.is_file()


def test_a_float_original_against_its_fake_quant_twin(compare: Compare, sides: Sides) -> None:
    code, rows = compare("-m", sides.fake, "-g", sides.float, "-q", sides.amct)
    assert code == 0
    found = cosines(rows)
    assert 0.99 < float(found["conv1_dequant_layer:output:0"]) < 1
    assert found["conv1_quant_layer:output:0"] == "NaN"


def test_a_fake_quant_original_against_the_offline_model(compare: Compare, sides: Sides) -> None:
    code, rows = compare("-m", sides.quant_off, "-g", sides.fake, "-f", sides.quant_off_om)
    assert code == 0
    assert float(cosines(rows)["conv1_dequant_layer:output:0"]) > 0.9999
    # Between the quantizers the vendor compares nothing; here codes are decoded, and sums of codes are told.
    told = {row["TensorIndex"]: row for row in rows}
    assert told["conv1_quant_layer:output:0"]["CosineSimilarity"] == "1.000000"
    assert "fitted to the golden numbers it is 0.0333333, plus" in told["conv1:input:0"]["CompareFailReason"]
    assert "where sums of codes are; give --record" in told["conv1:output:0"]["CompareFailReason"]
    _, strict = compare("-m", sides.quant_off, "-g", sides.fake, "-f", sides.quant_off_om, "--strict-vendor")
    assert [row for row in strict if row["NPUDump"] == "conv1"] == []


def test_fusion_on_against_fusion_off(compare: Compare, sides: Sides) -> None:
    code, rows = compare("-m", sides.npu, "-g", sides.npu_off, "-f", sides.on, "-cf", sides.off)
    assert code == 0
    assert cosines(rows)["conv1relu1:output:0"] == "1.000000"
    assert {row["NPUDump"] for row in rows} == {"data", "trans", "conv1relu1", "fc1", "out"}


@pytest.mark.parametrize("rules", [("-f",), ("-q",), ("-f", "-q")], ids="".join)
def test_a_quick_check_needs_either_rule(compare: Compare, sides: Sides, rules: tuple[str, ...]) -> None:
    files = {"-f": sides.quant_off_om, "-q": sides.amct}
    words = [word for flag in rules for word in (flag, files[flag])]
    code, rows = compare("-m", sides.quant_off, "-g", sides.float, *words)
    assert code == 0
    found = cosines(rows)
    assert float(found["relu1:output:0"]) > 0.99
    assert found["fc1:output:0"] == "1.000000"
    if "-f" in rules:  # codes stand for what the quantizer reads, where it has no golden tensor of its own
        assert float(found["conv1_quant_layer:output:0"]) > 0.99


def test_two_dumps_need_no_rules(compare: Compare, sides: Sides, tmp_path: Path) -> None:
    newer = write_sides(tmp_path / "newer", damage=0.4)
    code, rows = compare("-m", newer.npu, "-g", sides.npu)
    assert code == 0
    found = cosines(rows)
    assert (found["conv1relu1:input:0"], found["fc1:output:0"]) == ("1.000000", "1.000000")
    assert float(found["conv1relu1:output:0"]) < 0.99


def test_the_summary_tells_who_introduces_the_error(run: Run, tmp_path: Path) -> None:
    sides = write_sides(tmp_path / "s", damage=0.5)
    _, out, _ = run("compare", "-m", sides.npu, "-g", sides.float, "-f", sides.on, "-out", tmp_path / "o")
    assert "cosine    2 below 0.99\n" in out
    assert "error     is introduced by conv1relu1; no other is wrong\n" in out


def test_operators_of_one_side_are_told(compare: Compare, sides: Sides) -> None:
    code, rows = compare("-m", sides.npu, "-g", sides.npu_off)
    assert code == Code.NO_DUMP
    assert {(row["NPUDump"], row["GroundTruth"]) for row in rows} == {
        ("trans", "*"), ("conv1relu1", "relu1"), ("fc1", "fc1"), ("*", "conv1"),
    }  # fmt: skip


def test_several_models_of_one_run(compare: Compare, sides: Sides, tmp_path: Path) -> None:
    step = tmp_path / "20240101000000" / "0" / "net" / "1"
    step.mkdir(parents=True)
    Path(sides.npu).rename(step / "7")
    rules = tmp_path / "rules"
    rules.mkdir()
    Path(sides.on).rename(rules / "net.json")
    code, rows = compare("-m", tmp_path / "20240101000000", "-g", sides.float, "-f", rules)
    assert code == 0
    assert cosines(rows)["fc1:output:0"] == "1.000000"
    assert list((tmp_path / "compared").glob("0_net_7_result_*.csv"))


# Flags ----------------------------------------------------------------------------------------------------------


def test_algorithms_by_number_and_name(compare: Compare, sides: Sides) -> None:
    base = ("-m", sides.npu, "-g", sides.float, "-f", sides.on)
    for words in (("3,CosineSimilarity",), ("3", "0")):
        _, rows = compare(*base, "-alg", *words)
        assert list(rows[0])[-3:] == ["RelativeEuclideanDistance", "CosineSimilarity", "CompareFailReason"]


def test_an_algorithm_of_your_own(compare: Compare, run: Run, sides: Sides, tmp_path: Path) -> None:
    (tmp_path / "own" / "algorithm").mkdir(parents=True)
    script = tmp_path / "own" / "algorithm" / "alg_Scaled.py"
    script.write_text(
        "def compare(mine, golden, args):\n"
        "    return str(int(args.by) * mine.size), 'sized ' + args.shape_type.name\n"
    )
    base = ("-m", sides.npu, "-g", sides.float, "-f", sides.on, "-c", tmp_path / "own", "-a", "Scaled:by=2")
    _, rows = compare(*base, "-alg", "0,Scaled")
    row = next(row for row in rows if row["TensorIndex"] == "fc1:output:0")
    assert (row["Scaled"], row["CompareFailReason"]) == ("80", "sized Tensor")
    assert "Scaled" in compare(*base)[1][0]
    assert "Scaled" not in compare(*base, "--strict-vendor")[1][0]
    script.write_text("def compare(mine, golden, args):\n    return 1 / 0\n")
    _, rows = compare(*base, "-alg", "Scaled")
    assert "Failed to execute 'compare' in 'Scaled'. division by zero" in rows[1]["CompareFailReason"]


def test_a_conversion_of_your_own(compare: Compare, sides: Sides, tmp_path: Path) -> None:
    (tmp_path / "own" / "format_convert").mkdir(parents=True)
    (tmp_path / "own" / "format_convert" / "convert_NC1HWC0_to_NCHW.py").write_text(
        "def convert(shape_from, shape_to, array):\n    return array[: 192].reshape(1, 3, 8, 8) * 0 + 1\n"
    )
    _, rows = compare("-m", sides.npu, "-g", sides.float, "-f", sides.on, "-c", tmp_path / "own")
    found = {row["TensorIndex"]: row for row in rows}
    assert found["trans:output:0"]["StandardDeviation"].startswith("(1.000;0.000)")
    # What the script cannot do is a reason in the row, not the end of the run.
    assert "left dump data(1, 3, 8, 8)" in found["conv1relu1:output:0"]["CompareFailReason"]


def test_parts_of_a_network(compare: Compare, sides: Sides) -> None:
    base = ("-m", sides.npu, "-g", sides.float, "-f", sides.on)
    assert {row["OpSequence"] for row in compare(*base, "-r", "2,3,1")[1]} == {"2", "3"}
    assert {row["OpSequence"] for row in compare(*base, "-r", "1,-1,2")[1]} == {"1", "3", "4"}
    assert {row["OpSequence"] for row in compare(*base, "-s", "3, 1, 99")[1]} == {"1", "3"}


def test_only_the_first_elements(compare: Compare, sides: Sides) -> None:
    _, whole = compare("-m", sides.npu, "-g", sides.float, "-f", sides.on)
    _, part = compare("-m", sides.npu, "-g", sides.float, "-f", sides.on, "-max", "5")
    places = [row["TensorIndex"] for row in whole].index("fc1:output:0")
    assert part[places]["StandardDeviation"] != whole[places]["StandardDeviation"]
    assert part[places]["Shape"] == whole[places]["Shape"]


def test_overflow_of_float16(compare: Compare, tmp_path: Path) -> None:
    values = {"big": np.array([65504, 1], np.float16), "nan": np.array([np.nan, -np.inf], np.float16),
              "fine": np.ones(2, np.float16)}  # fmt: skip
    write_dumps(tmp_path / "a", values)
    golden_folder(tmp_path / "b", {name: array.astype(np.float32) for name, array in values.items()})
    rules = write_model(tmp_path / "m.json", *(op(name, outputs=[output((2,))]) for name in values))
    base = ("-m", tmp_path / "a", "-g", tmp_path / "b", "-f", rules, "-overflow_detection")
    assert [row["OverFlow"] for row in compare(*base)[1]] == ["YES", "YES", "NO"]
    # The vendor takes the largest value, which is no number, for less than the limit.
    assert [row["OverFlow"] for row in compare(*base, "--strict-vendor")[1]] == ["YES", "NO", "NO"]


def test_two_files(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(3, np.float32))
    np.save(tmp_path / "b.npy", np.full(3, 2, np.float32))
    np.save(tmp_path / "c.npy", np.ones((3, 1), np.float32))
    code, out, _ = run("compare", "-m", tmp_path / "a.npy", "-g", tmp_path / "b.npy", "-alg", "1")
    assert (code, out) == (0, "MaxAbsoluteError: 1.000000\n")
    (tmp_path / "d").mkdir()
    dump = write_dump(tmp_path / "d" / f"Op.x.1.1.{TIME}", [item(np.ones(3, np.float32))])
    assert run("compare", "-m", dump, "-g", tmp_path / "b.npy", "-alg", "1")[:2] == (0, out)
    code, _, err = run("compare", "-m", tmp_path / "a.npy", "-g", tmp_path / "c.npy")
    assert (code, "does not match the ground truth shape" in err) == (Code.SHAPE, True)
    code, _, _ = run("file_compare", "-m", tmp_path / "a.npy", "-g", tmp_path / "b.npy", "-out", tmp_path / "out")
    (found,) = (tmp_path / "out").glob("file_result_*.txt")
    lines = found.read_text().splitlines()
    assert (code, len(lines), lines[0]) == (0, 8, "CosineSimilarity: 1.000000")
    code, _, _ = run("file-compare", "-m", tmp_path / "a.txt", "-g", tmp_path / "b.npy", "-out", tmp_path)
    assert code == Code.FILE_TYPE


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["-m", "npu", "-g", "float"], Code.PARAMETER),
        (["-m", "npu", "-g", "float", "-f", "on", "-q", "amct"], Code.PARAMETER),
        (["-m", "npu", "-g", "float", "-f", "on", "-cf", "off"], Code.PARAMETER),
        (["-m", "npu", "-g", "fake", "-f", "on"], Code.KIND),
        (["-m", "quant_off", "-g", "fake"], Code.PARAMETER),
        (["-m", "npu", "-g", "npu_off", "-f", "on"], Code.PARAMETER),
        (["-m", "npu", "-g", "npu_off", "-cf", "off"], Code.PARAMETER),
        (["-m", "npu", "-g", "npu_off", "-q", "amct"], Code.PARAMETER),
        (["-m", "fake", "-g", "float"], Code.KIND),
        (["-m", "fake", "-g", "npu"], Code.KIND),
        (["-m", "float", "-g", "float"], Code.KIND),
        (["-m", "quant_off", "-g", "float", "-f", "on", "--strict-vendor"], Code.PARAMETER),
        (["-m", "npu", "-g", "quant_off", "--strict-vendor"], Code.KIND),
        (["-m", "npu", "-g", "float", "-f", "on", "-r", "0,2,1"], Code.INDEX),
        (["-m", "npu", "-g", "float", "-f", "on", "-r", "1,2"], Code.PARAMETER),
        (["-m", "npu", "-g", "float", "-f", "on", "-s", "99"], Code.PARAMETER),
        (["-m", "npu", "-g", "npu_off", "-r", "1,2,1"], Code.PARAMETER),
        (["-m", "npu", "-g", "float", "-f", "on", "-o", "0"], Code.PARAMETER),
        (["-m", "npu", "-g", "float", "-f", "on", "-n", "5"], Code.PARAMETER),
        (["-m", "npu", "-g", "float", "-f", "on", "-op", "fc1", "-n", "0"], Code.INDEX),
        (["-m", "npu", "-g", "float", "-f", "on", "-op", "fc1", "-ml", "5"], Code.PARAMETER),
        (["-m", "npu", "-g", "float", "-f", "on", "-op", "fc1", "-o", "9"], Code.INDEX),
        (["-m", "npu", "-g", "float", "-f", "on", "-op", "nowhere"], Code.PARAMETER),
        (["-m", "npu", "-g", "float", "-f", "on", "-op", "out"], Code.NO_DUMP),
        (["-m", "npu", "-g", "float", "-f", "on", "-map", "-op", "fc1"], Code.PARAMETER),
        (["-m", "npu", "-g", "float", "-map"], Code.PARAMETER),
        (["-m", "npu", "-g", "float", "-f", "on", "-alg", "none"], Code.ALGORITHM),
        (["-m", "npu", "-g", "float", "-f", "on", "-max", "-1"], Code.PARAMETER),
        (["-m", "npu", "-g", "float", "-f", "on", "-a", "nothing"], Code.PARAMETER),
        (["-m", "nowhere", "-g", "float", "-f", "on"], Code.PATH),
        (["-m", "npu", "-g", "float", "-f", "nowhere"], Code.JSON),
        (["-m", "quant_off", "-g", "fake", "-f", "quant_off_om", "-op", "conv1"], Code.UNSUPPORTED),
    ],
)  # fmt: skip
def test_what_does_not_go_together_leaves_with_the_vendors_code(
    run: Run, sides: Sides, words: list[str], code: Code, tmp_path: Path
) -> None:
    named = {"-m", "-g", "-f", "-q", "-cf"}
    filled = [getattr(sides, word) if before in named else word for before, word in zip(["", *words], words)]  # noqa: B905
    found, _, err = run("compare", *filled, "-out", tmp_path / "out")
    assert (found, "fix: " in err) == (code, True)
    assert "Traceback" not in err


@pytest.mark.parametrize("below", ["file", "file/deeper"])
def test_results_that_cannot_be_written_are_refused_before_the_work(
    run: Run, sides: Sides, tmp_path: Path, below: str
) -> None:
    (tmp_path / "file").touch()
    words = ("-m", sides.npu, "-g", sides.float, "-f", sides.on, "-out", tmp_path / below)
    code, out, err = run("compare", *words)
    assert (code, out, "is not a folder" in err, "warning" in err) == (Code.PATH, "", True, False)


def test_kinds_are_not_mixed(run: Run, sides: Sides) -> None:
    np.save(Path(sides.npu) / f"x.0.{TIME}.npy", np.ones(1))
    code, _, err = run("compare", "-m", sides.npu, "-g", sides.float, "-f", sides.on)
    assert (code, "Not all files" in err) == (Code.DUMP, True)


# Damage ---------------------------------------------------------------------------------------------------------


def test_a_file_cut_short_is_told(compare: Compare, sides: Sides) -> None:
    (path,) = Path(sides.npu).glob("*fc1*")
    path.write_bytes(path.read_bytes()[:-10])
    base = ("-m", sides.npu, "-g", sides.float, "-f", sides.on)
    code, rows = compare(*base)
    told = [row["CompareFailReason"] for row in rows if row["NPUDump"] == "fc1"]
    assert code == 0
    assert "10 bytes are missing at its end" in told[0]
    assert "truncated: 70 of 80 bytes" in told[1]
    _, strict = compare(*base, "--strict-vendor")
    (blank,) = [row for row in strict if row["NPUDump"] == "fc1"]
    assert (blank["CosineSimilarity"], blank["CompareFailReason"]) == ("NaN", "")


def test_a_header_that_lies_is_told(compare: Compare, sides: Sides) -> None:
    (path,) = Path(sides.npu).glob("*fc1*")
    path.write_bytes(b"\xff" * 40)
    code, rows = compare("-m", sides.npu, "-g", sides.float, "-f", sides.on)
    (row,) = [row for row in rows if row["NPUDump"] == "fc1"]
    assert (code, "claims a header of" in row["CompareFailReason"]) == (Code.DATA, True)


def test_types_that_the_vendor_cannot_read(compare: Compare, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    write_dump(tmp_path / "a" / f"Op.x.1.1.{TIME}", [Item(bytes([0x21, 0xF3]), "INT4", (4,))], op_name="x")
    golden_folder(tmp_path / "b", {"x": np.array([1, 2, 3, -1], np.float32)})
    rules = write_model(tmp_path / "m.json", op("x", outputs=[output((4,))]))
    base = ("-m", tmp_path / "a", "-g", tmp_path / "b", "-f", rules)
    assert cosines(compare(*base)[1]) == {"x:output:0": "1.000000"}
    code, rows = compare(*base, "--strict-vendor")
    assert "There is no dump file" in rows[0]["CompareFailReason"]
    assert code == Code.NO_DUMP  # nothing at all was compared


def test_cells_that_a_spreadsheet_would_run_are_disarmed(compare: Compare, run: Run, tmp_path: Path) -> None:
    write_dumps(tmp_path / "a", {"=cmd": np.ones(2, np.float32)})
    golden_folder(tmp_path / "b", {"=cmd": np.ones(2, np.float32)})
    rules = write_model(tmp_path / "m.json", op("=cmd", outputs=[output((2,))]))
    base = ("-m", tmp_path / "a", "-g", tmp_path / "b", "-f", rules)
    assert compare(*base)[1][0]["NPUDump"] == " =cmd"
    assert run("compare", *base, "--strict-vendor", "-out", tmp_path / "strict")[0] == Code.UNKNOWN


def test_operators_of_a_group_without_a_dump_are_told(compare: Compare, tmp_path: Path) -> None:
    write_dumps(tmp_path / "a", {"x2": np.ones(2, np.float32)})
    golden_folder(tmp_path / "b", {"x": np.ones(2, np.float32)})
    parts = [op(name, originals=["x"], outputs=[output((2,), origin="x", index=0)]) for name in ("x1", "x2")]
    base = ("-m", tmp_path / "a", "-g", tmp_path / "b", "-f", write_model(tmp_path / "m.json", *parts))
    code, rows = compare(*base)
    assert (code, [row["CosineSimilarity"] for row in rows]) == (Code.NO_DUMP, ["NaN", "1.000000"])
    assert 'no dump file for my output operator "x1"' in rows[0]["CompareFailReason"]
    assert len(compare(*base, "--strict-vendor")[1]) == 1


def test_silent_cropping_is_told(compare: Compare, tmp_path: Path) -> None:
    write_dumps(tmp_path / "a", {"x": np.arange(8, dtype=np.float32)})
    golden_folder(tmp_path / "b", {"x": np.arange(4, dtype=np.float32)})
    rules = write_model(tmp_path / "m.json", op("x", outputs=[output((8,))]))
    base = ("-m", tmp_path / "a", "-g", tmp_path / "b", "-f", rules)
    assert "Only a part was compared: (8)" in compare(*base)[1][0]["CompareFailReason"]
    assert compare(*base, "--strict-vendor")[1][0]["CompareFailReason"] == ""


# Words ----------------------------------------------------------------------------------------------------------


def test_unknown_words_are_told(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run("compair")
    assert (code, "did you mean 'compare'?" in err) == (2, True)
    with pytest.raises(SystemExit) as caught:
        main(["ascend", "compare", "-nonsense"])
    assert caught.value.code == 2
    assert "fix: see 'roundoff ascend compare --help'" in capsys.readouterr().err


@pytest.mark.parametrize("sub", ["compare", "convert", "overflow", "file_compare", "advisor"])
def test_help_fits(sub: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["ascend", sub, "-h"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_a_shape_of_several_layouts_is_settled_by_the_one_asked_for_or_said(run: Run, tmp_path: Path) -> None:
    values = np.arange(16**3, dtype=np.float32).reshape(1, 1, 16, 16, 16)
    name = f"Conv2D.c.0.1.{TIME}"
    write_dump(tmp_path / name, [item(values, format="NC1HWC0", original=(1, 16, 16, 16))], op_name="c")
    truth = {"NHWC": values[:, 0], "NCHW": values[:, 0].transpose(0, 3, 1, 2)}
    for layout, expected in truth.items():
        code, _, err = run("convert", "-d", tmp_path / name, "-f", layout, "-out", tmp_path / layout)
        assert (code, "can be" in err) == (0, False)
        np.testing.assert_array_equal(np.load(next((tmp_path / layout).glob("*.npy"))), expected)
    _, _, err = run("convert", "-d", tmp_path / name, "-f", "FRACTAL_Z", "-out", tmp_path / "z")
    assert f"{name}.output.0: its original shape (1, 16, 16, 16) can be NCHW or NHWC" in " ".join(err.split())
