"""The vendor's guide, walked on generated data."""

from pathlib import Path

import numpy as np
import pytest

from roundoff.cli import main
from roundoff.vendors.ascend.culprits import locate
from roundoff.vendors.ascend.rows import Columns, Row
from tests.vendors.ascend.networks import golden_folder, write_sides
from tests.vendors.ascend.simulated import (
    Framework,
    make_heads,
    make_views,
    quantized,
    write_golden,
    write_model_files,
    write_npu,
    write_quantized_files,
)

COLUMNS = Columns(("CosineSimilarity", "RelativeEuclideanDistance"))


def table(*lines: tuple[str, float]) -> list[Row]:
    """Rows of tensors and how far off they are."""
    return [
        Row(place, place, "Op", name, tensor=name, values=("1.0", str(away)))
        for place, (name, away) in enumerate(lines)
    ]


def guide(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    code = main(["ascend", "guide", *map(str, words)])
    return code, " ".join(capsys.readouterr().out.split())


def test_an_operator_far_worse_than_what_it_reads_is_named() -> None:
    found = locate(table(("a:output:0", 0.001), ("b:input:0", 0.001), ("b:output:0", 0.2), ("c:input:0", 0.2),
                         ("c:output:0", 0.21)), COLUMNS)  # fmt: skip
    assert (found.kind, found.op, found.before, found.reaches_end, found.wrong) == ("node", "b", 0.001, True, 2)


def test_errors_that_grow_slowly_are_accumulated() -> None:
    steps = [(f"op{place}:output:0", 0.02 * place) for place in range(1, 8)]
    found = locate(table(*steps), COLUMNS)
    assert (found.kind, found.op) == ("accumulated", "op3")


def test_a_culprit_behind_accumulated_error_is_found() -> None:
    found = locate(table(("a:output:0", 0.04), ("b:output:0", 0.06), ("c:output:0", 0.9)), COLUMNS)
    assert (found.kind, found.op) == ("node", "c")


def test_an_error_that_comes_in_and_grows_is_not_laid_to_who_reads_it() -> None:
    steps = [("a", 0.0, 0.085), ("b", 0.085, 0.115), ("c", 0.115, 0.15), ("d", 0.15, 0.353), ("e", 0.353, 0.09)]
    rows = [
        (f"{name}:{role}:0", away)
        for name, *both in steps
        for role, away in zip(("input", "output"), both, strict=True)
    ]
    assert locate(table(*rows), COLUMNS).kind == "accumulated"


@pytest.mark.parametrize(
    ("cosine", "distance", "golden", "reason", "wrong"),
    [("nan", "nan", "0.5", "", 1), ("nan", "inf", "0.5", "", 1), ("nan", "nan", "nan", "", 0),
     ("nan", "nan", "-inf", "", 0), ("NaN", "0.000000", "0.000", "All the data is zero in b.", 1),
     ("NaN", "1.000000", "0.5", "All the data is zero in a.", 1), ("NaN", "NaN", "0.5", "no floats", 0),
     ("NaN", "NaN", "0.5", "All the data is zero in a. Booleans have no distance.", 0)],
)  # fmt: skip
def test_numbers_that_are_none_are_wrong_where_the_golden_ones_are_finite(
    cosine: str, distance: str, golden: str, reason: str, wrong: int
) -> None:
    columns = Columns(("CosineSimilarity", "RelativeEuclideanDistance", "StandardDeviation"))
    spread = f"(1.000;1.000),({golden};1.000)"
    good = Row(0, 0, "Op", "a", tensor="a:output:0", values=("1.0", "0.0", spread))
    odd = Row(1, 1, "Op", "b", tensor="b:output:0", values=(cosine, distance, spread), reason=reason)
    found = locate([good, odd], columns)
    assert (found.wrong, found.op) == (wrong, "b" if wrong else "")


@pytest.mark.parametrize(
    ("algorithm", "value", "hint"),
    [("KullbackLeiblerDivergence", 0.006, "b"), ("KullbackLeiblerDivergence", 0.004, ""),
     ("RootMeanSquareError", 1.5, "b"), ("MeanRelativeError", 1.01, "b"), ("MaxAbsoluteError", 9.0, "")],
)  # fmt: skip
def test_other_limits_hint_at_an_operator(algorithm: str, value: float, hint: str) -> None:
    columns = Columns(("CosineSimilarity", "RelativeEuclideanDistance", algorithm))
    rows = [
        Row(place, place, "Op", name, tensor=f"{name}:output:0", values=("1.0", "0.0", str(other)))
        for place, (name, other) in enumerate([("a", 0.0), ("b", value)])
    ]
    found = locate(rows, columns)
    assert (found.kind, found.hint, algorithm in found.hinted) == ("none", hint, bool(hint))


def test_an_operator_that_makes_nan_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = write_sides(tmp_path / "s", damage=np.nan)
    words = ("--float", sides.float, "--npu", sides.npu, "-f", sides.on, "-out", tmp_path / "o")
    code, out = guide(capsys, *words)
    assert (code, "error of a node: conv1relu1 is not finite" in out) == (1, True)
    main(["ascend", "compare", "-m", sides.npu, "-g", sides.float, "-f", sides.on, "-out", str(tmp_path / "o")])
    out = capsys.readouterr().out
    assert "none below 0.99, 2 without a number" in out
    assert "is introduced by conv1relu1" in out


def test_nothing_wrong_is_nothing() -> None:
    rows = [*table(("a:output:0", 0.01)), Row(9, 9, "Data", "data", reason="no dump")]
    assert locate(rows, COLUMNS).kind == "none"


def test_all_steps_of_a_good_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = write_sides(tmp_path / "s")
    code, out = guide(
        capsys, "--float", sides.float, "--fake-quant", sides.fake, "--npu", sides.npu,
        "--npu-off", sides.quant_off, "-f", sides.on, "-cf", sides.quant_off_om, "-q", sides.amct,
        "--float-accuracy", "76.1", "--quant-accuracy", "75.5", "--calibration", "32", "-out", tmp_path / "o",
    )  # fmt: skip
    assert (code, out.count("agree"), "BAD" in out, "-- " in out) == (0, 4, False, False)
    tables = {path.name.partition("_result")[0] for path in (tmp_path / "o").iterdir()}
    assert tables == {"quantization", "conversion", "fusion", "offline"}


def test_a_bad_node_is_named_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = write_sides(tmp_path / "s", damage=0.5)
    words = ("--float", sides.float, "--npu", sides.npu, "-f", sides.on, "-out", tmp_path / "o")
    code, out = guide(capsys, *words)
    assert code == 1
    assert "error of a node: conv1relu1" in out
    assert "compare it alone with -op conv1relu1" in out


@pytest.mark.parametrize(
    ("loss", "text"), [(0.8, "no need to look further"), (2.0, "more than 1 %"), (5.0, "cannot be ignored")]
)
def test_losses(loss: float, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = guide(capsys, "--float-accuracy", 70, "--quant-accuracy", 70 - loss, "-out", tmp_path)
    assert text in out
    assert code == (loss > 1)


def test_shares_are_accuracies_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = guide(capsys, "--float-accuracy", 0.761, "--quant-accuracy", 0.72, "-out", tmp_path)
    assert (code, "4.10 % is more than 3 %" in out) == (1, True)


@pytest.mark.parametrize(
    "words", [("--float-accuracy", "nan", "--quant-accuracy", 7), ("--float-accuracy", 70),
              ("--float-accuracy", 170, "--quant-accuracy", 7), ("--float-accuracy", 7, "--quant-accuracy", -7)],
)  # fmt: skip
def test_impossible_accuracies_are_refused(words: tuple[object, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert guide(capsys, *words) == (6, "")


def test_sides_without_rules_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = write_sides(tmp_path / "s")
    words = ("--float", sides.float, "--npu", sides.npu, "--fake-quant", sides.fake, "-out", tmp_path / "o")
    assert main(["ascend", "guide", *map(str, words)]) == 6
    assert "add -q quant.json" in capsys.readouterr().err
    code, out = guide(capsys, *words, "-f", sides.on)
    assert code == 0
    assert "-- quantization (fake-quant against float original) not looked at" in out


def test_calibration_sets_are_counted_and_looked_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "few").mkdir()
    (tmp_path / "many").mkdir()
    for place in range(20):
        np.save(tmp_path / "many" / f"{place}.npy", np.full((1, 3, 8, 8), 0.1 * place, np.float32))
    np.save(tmp_path / "few" / "0.npy", np.zeros((1, 3, 8, 8), np.float32))
    golden_folder(tmp_path / "inside", {"data": np.ones((1, 3, 8, 8), np.float32)})
    golden_folder(tmp_path / "beyond", {"data": np.full((1, 3, 8, 8), 9, np.float32)})
    assert "too few" in guide(capsys, "--calibration", tmp_path / "few")[1]
    assert guide(capsys, "--calibration", tmp_path / "many", "--float", tmp_path / "inside")[0] == 0
    code, out = guide(capsys, "--calibration", tmp_path / "many", "--float", tmp_path / "beyond")
    assert (code, "data.0 reaches [9, 9], beyond their [0, 1.9]" in out) == (1, True)
    (tmp_path / "images").mkdir()
    for place in range(12):
        (tmp_path / "images" / f"{place}.jpg").write_bytes(b"x")
    assert "12 samples" in guide(capsys, "--calibration", tmp_path / "images")[1]


def test_sides_that_do_not_fit_are_skipped_and_nothing_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = write_sides(tmp_path / "s")
    words = ("--fake-quant", sides.fake, "--npu-off", sides.npu_off, "-cf", sides.off, "-out", tmp_path / "o")
    code, out = guide(capsys, *words)
    assert (code, "-- conversion" in out, "this scenario cannot be compared" in out) == (0, True, True)
    assert guide(capsys)[0] == 6


@pytest.mark.parametrize("framework", ["onnx", "caffe"])
def test_a_range_that_file_and_device_share_is_laid_to_quantization_and_to_its_layer(
    framework: Framework, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = quantized(make_heads(3, framework))
    layer = net.quantized[2].name
    scale, offset, steps = net.factors[layer]
    net.factors[layer] = (scale * 0.3, offset, steps)
    write_model_files(net, tmp_path)
    write_golden(tmp_path / "float", net.floats)
    files = write_quantized_files(net, tmp_path)
    write_golden(tmp_path / "fake", net.fakes)
    rule, _ = write_npu(net, tmp_path / "npu", fused=False)
    code, text = guide(
        capsys, "--float", tmp_path / "float", "--fake-quant", tmp_path / "fake", "-q", files["info"], "--record",
        files["record"], "--npu-off", tmp_path / "npu", "-cf", rule, "-out", tmp_path / "out",
    )  # fmt: skip
    assert code == 1
    assert text.startswith("BAD quantization (fake-quant against float original) error of a node:")
    assert f"--set '{layer}=float'" in text
    assert "ok conversion" in text


def test_limits_are_those_of_the_width_that_any_file_tells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = make_views(470)
    write_model_files(net, tmp_path)
    write_golden(tmp_path / "float", net.floats)
    files = write_quantized_files(quantized(net, bits=(4, 4)), tmp_path)
    write_golden(tmp_path / "fake", net.fakes)
    sides = ("--float", tmp_path / "float", "--fake-quant", tmp_path / "fake")
    for gone in (None, "record", "deploy"):
        if gone is not None:
            files[gone].unlink()
        code, out = guide(capsys, *sides, "-q", files["info"], "-out", tmp_path / "out")
        # Where nothing tells four bits, eight are taken for granted.
        assert (code, "BAD quantization" in out) == ((1, True) if gone == "deploy" else (0, False))
