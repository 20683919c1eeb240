"""Two dumps of one model: other device layouts, and other fusion, without rules."""

import csv
from pathlib import Path

import numpy as np
import pytest

from roundoff.cli import main
from tests.ascend_dumps import TIME, item, write_dump
from tests.vendors.ascend.simulated import make_net, quantized, stored, write_golden, write_npu


def compared(mine: Path, golden: Path, out: Path, *more: str) -> list[dict[str, str]]:
    main(["ascend", "compare", "-m", str(mine), "-g", str(golden), "-out", str(out), *more])
    with next(out.glob("result_*.csv")).open(newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize("kind", ["float", "quantized"])
def test_other_blocks_of_channels_are_undone(tmp_path: Path, kind: str) -> None:
    net = make_net(3)
    if kind == "quantized":
        quantized(net)
    for name, block in (("a", None), ("b", 8)):
        write_npu(net, tmp_path / name, fused=False, block=block)
    rows = compared(tmp_path / "a", tmp_path / "b", tmp_path / "out")
    tensors = [row for row in rows if row["TensorIndex"] != "NaN"]
    assert len(tensors) > 25
    assert {row["MaxAbsoluteError"] for row in tensors} == {"0.000000"}
    strict = compared(tmp_path / "a", tmp_path / "b", tmp_path / "strict", "--strict-vendor")
    assert sum(row["CosineSimilarity"] != "NaN" for row in strict) < len(tensors)


def test_a_fused_and_an_unfused_dump_meet_at_original_tensors(tmp_path: Path) -> None:
    net = make_net(3)
    write_npu(net, tmp_path / "on", fused=True)
    _, unfused = write_npu(net, tmp_path / "off", fused=False)
    rows = compared(tmp_path / "on", tmp_path / "off", tmp_path / "out")
    found = {row["NPUDump"]: row for row in rows if row["TensorIndex"].endswith(":output:0")}
    fused = [name for name in found if name not in {each.name for each in unfused} | {"trans"}]
    assert len(fused) > 3
    for name in fused:
        assert name.endswith(found[name]["GroundTruth"])
        assert found[name]["MaxAbsoluteError"] == "0.000000"
    # What was fused away has no counterpart, and is told.
    assert any(row["NPUDump"] == "*" for row in rows)


@pytest.mark.parametrize("seed", [2020, 2021, 2022])
def test_codes_that_a_fused_operator_writes_are_not_compared_with_numbers(tmp_path: Path, seed: int) -> None:
    net = quantized(make_net(seed))
    write_npu(net, tmp_path / "off", fused=False)
    _, operators = write_npu(net, tmp_path / "on", fused=True)
    rows = compared(tmp_path / "on", tmp_path / "off", tmp_path / "out")
    # Where one operator writes numbers and their codes, each meets its own.
    outputs = {row["TensorIndex"] for row in rows if ":output:" in row["TensorIndex"]}
    assert len(outputs) == sum(len(each.writes) for each in operators) + 1
    assert max(len(each.writes) for each in operators) > 1
    cosines = [float(row["CosineSimilarity"]) for row in rows if row["CosineSimilarity"] != "NaN"]
    assert len(cosines) > 8
    assert min(cosines) > 0.999


def test_headers_tell_originals_where_names_do_not(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float16).reshape(1, 3, 2, 2)
    for folder, op in (("a", "te_fused_17"), ("b", "layer")):
        (tmp_path / folder).mkdir()
        about = item(values, format="NCHW", original=values.shape, origin="relu1")
        write_dump(tmp_path / folder / f"Conv2D.{op}.1.1.{TIME}", [about], op_name=op)
    (row,) = compared(tmp_path / "a", tmp_path / "b", tmp_path / "out")
    assert (row["NPUDump"], row["GroundTruth"], row["MaxAbsoluteError"]) == ("te_fused_17", "layer", "0.000000")


@pytest.mark.parametrize("channels", [3, 4])
def test_axes_of_another_order_are_put_in_order(tmp_path: Path, channels: int) -> None:
    values = np.random.default_rng(channels).normal(size=(1, channels, 4, 4)).astype(np.float16)
    sides = {
        "a": item(values, format="NCHW", original=values.shape),
        "b": item(np.ascontiguousarray(values.transpose(0, 2, 3, 1)), format="NHWC"),
        "c": stored(values),
    }
    for name, about in sides.items():
        (tmp_path / name).mkdir()
        write_dump(tmp_path / name / f"Relu.relu.1.1.{TIME}", [about], op_name="relu")
    for mine, golden in ("ab", "bc", "cb", "ba"):
        (row,) = compared(tmp_path / mine, tmp_path / golden, tmp_path / f"{mine}{golden}")
        assert (row["MaxAbsoluteError"], row["CosineSimilarity"]) == ("0.000000", "1.000000")


def test_shapes_of_other_networks_are_told(tmp_path: Path) -> None:
    for name, channels in (("a", 3), ("b", 4)):
        (tmp_path / name).mkdir()
        values = np.zeros((1, channels, 2, 2), np.float16)
        about = item(values, format="NCHW", original=values.shape)
        write_dump(tmp_path / name / f"Relu.relu.1.1.{TIME}", [about], op_name="relu")
    (row,) = compared(tmp_path / "a", tmp_path / "b", tmp_path / "out")
    assert "shape does not match ((1, 3, 2, 2) vs (1, 4, 2, 2))" in row["CompareFailReason"]


def test_a_layer_is_found_in_the_operator_that_it_was_fused_into(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = make_net(3)
    rule, operators = write_npu(net, tmp_path / "npu", fused=True)
    write_golden(tmp_path / "float", net.floats)
    fused = next(each for each in operators if len(each.steps) > 1)
    words = ["-m", tmp_path / "npu", "-g", tmp_path / "float", "-f", rule, "-out", tmp_path / "out"]
    assert main(["ascend", "compare", *map(str, words), "-op", fused.steps[0].name]) == 0
    captured = capsys.readouterr()
    assert f"{fused.steps[0].name} is a part of {fused.name}" in captured.err
    assert (tmp_path / "out" / f"{fused.name}_output_0_summary.txt").exists()


def test_constants_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = quantized(make_net(3))
    rule, _ = write_npu(net, tmp_path / "npu", fused=True, constants=True)
    write_golden(tmp_path / "fake", net.fakes)
    words = ["-m", tmp_path / "npu", "-g", tmp_path / "fake", "-f", rule, "-out", tmp_path / "out"]
    main(["ascend", "compare", *map(str, words)])
    told = [line for line in capsys.readouterr().err.splitlines() if "const" in line]
    assert told == [
        f"warning: {3 * len(net.quantized)} inputs are constants, which have no golden data and are not compared."
    ]
