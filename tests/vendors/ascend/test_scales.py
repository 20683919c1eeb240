"""Scales from every file that tells them: record, deploy model, JSON; contradictions, other networks, gaps."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from roundoff.cli import main
from roundoff.core.tensors import Array
from roundoff.vendors.ascend.errors import Code
from roundoff.vendors.ascend.folders import open_folder
from roundoff.vendors.ascend.rules import read_rule
from roundoff.vendors.ascend.scales import ScaleFiles, quantized_layer, read_scales, unpacked
from tests.vendors.ascend.models import attr, op, output, write_model
from tests.vendors.ascend.simulated import (
    Framework,
    Net,
    make_heads,
    make_net,
    make_views,
    quantized,
    record_text,
    write_golden,
    write_model_files,
    write_npu,
    write_quantized_files,
)

Factors = dict[str, tuple[float, int, Array]]


@pytest.fixture(params=["onnx", "caffe"])
def net(request: pytest.FixtureRequest, tmp_path: Path) -> Net:
    framework: Framework = request.param
    found = quantized(make_net(11, framework))
    write_model_files(found, tmp_path)
    return found


def factors_of(net: Net, files: ScaleFiles, folder: Path) -> tuple[dict[str, tuple[float, int, Array]], list[str]]:
    """What is read, layer by layer, and what is said on the way."""
    model, _ = write_npu(net, folder / "dump", fused=True)
    said: list[str] = []
    scales = read_scales(files, read_rule(model), warn=said.append)
    found = {}
    for layer in net.quantized:
        codes, sums = scales.of_codes(net.quantizer(layer)), scales.of_sums(layer.name)
        if codes is not None and sums is not None and codes.step is not None:
            found[layer.name] = (codes.step, codes.offset, np.asarray(sums.sums))
    return found, said


@pytest.mark.parametrize("kind", ["record", "deploy", "beside"])
def test_every_file_tells_the_same(net: Net, tmp_path: Path, kind: str) -> None:
    files = write_quantized_files(net, tmp_path)
    given = ScaleFiles(beside=files["info"]) if kind == "beside" else ScaleFiles(**{kind: files[kind]})
    found, said = factors_of(net, given, tmp_path)
    assert (said, found.keys()) == ([], net.factors.keys())
    for name, (scale, offset, steps) in net.factors.items():
        assert found[name][1] == offset
        assert found[name][0] == pytest.approx(scale, rel=1e-6)
        np.testing.assert_allclose(found[name][2], np.float32(scale) * steps, rtol=1e-6)


def test_contradicting_scales_are_named_with_the_one_that_is_used(net: Net, tmp_path: Path) -> None:
    files = write_quantized_files(net, tmp_path)
    first = net.quantized[0].name
    scale, offset, steps = net.factors[first]
    other = tmp_path / "other.txt"
    other.write_text(record_text({**net.factors, first: (scale * 1.5, offset, steps)}))
    found, said = factors_of(net, ScaleFiles(other, files["deploy"]), tmp_path)
    assert found[first][0] == pytest.approx(scale, rel=1e-6)
    assert len(said) == 1
    assert f"{first}: the scale is" in said[0]
    assert f"that of {files['deploy'].name} is used" in said[0]


def test_a_record_of_another_network_is_named_and_not_used(net: Net, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text(record_text({"elsewhere": (0.1, 0, np.ones(1, np.float32))}))
    found, said = factors_of(net, ScaleFiles(other), tmp_path)
    assert found == {}
    assert "other.txt is of another network" in said[0]


@pytest.mark.parametrize("fused", [True, False])
def test_scales_that_the_device_was_fed_are_held_against_the_files(net: Net, tmp_path: Path, fused: bool) -> None:
    first = net.quantized[0].name
    scale, offset, steps = net.factors[first]
    other = tmp_path / "other.txt"
    other.write_text(record_text({**net.factors, first: (scale, offset, steps * 2)}))
    said: list[str] = []
    model, _ = write_npu(net, tmp_path / "npu", fused=fused, constants=True)
    mine = open_folder(tmp_path / "npu", warn=said.append)
    alone = read_scales(ScaleFiles(), read_rule(model), warn=said.append, mine=mine).of_sums(first)
    assert alone is not None
    np.testing.assert_allclose(alone.sums, np.float32(scale) * steps, rtol=1e-6)
    assert said == []
    used = read_scales(ScaleFiles(other), read_rule(model), warn=said.append, mine=mine).of_sums(first)
    assert used is not None
    np.testing.assert_allclose(used.sums, np.float32(scale) * steps * 2, rtol=1e-6)
    assert len(said) == 1
    assert f"{first}: the scale of sums is" in said[0]
    assert said[0].endswith("in the dump; that of other.txt is used.")


def test_layers_without_scales_are_named(net: Net, tmp_path: Path) -> None:
    kept = dict(list(net.factors.items())[1:])
    part = tmp_path / "part.txt"
    part.write_text(record_text(kept))
    found, said = factors_of(net, ScaleFiles(part), tmp_path)
    assert found.keys() == kept.keys()
    assert "1 quantizers have no scale in part.txt" in said[0]
    assert net.quantizer(net.quantized[0]) in said[0]


def test_a_file_that_was_asked_for_must_be_readable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = quantized(make_net(11))
    model, _ = write_npu(net, tmp_path / "npu", fused=True)
    write_golden(tmp_path / "float", net.floats)
    (tmp_path / "record.txt").write_text("no record {")
    words = ["-m", tmp_path / "npu", "-g", tmp_path / "float", "-f", model, "--record", tmp_path / "record.txt"]
    assert main(["ascend", "compare", *map(str, words), "-out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "record.txt" in error
    assert "fix:" in error


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [([attr("scale", "f", "40"), attr("offset", "f", "-128")], (0.025, -128, 8)),
     ([attr("scale", "f", 2.0), attr("sqrt_mode", "b", True), attr("dst_type", "i", 2)], (0.25, 0, 8)),
     ([attr("scale", "f", 4.0), attr("offset", "f", 7), attr("dst_type", "i", 29)], (0.25, 7, 4)),
     ([attr("scale_d", "f", 0.5), attr("offset_d", "i", 3)], (0.5, 3, 8)),
     ([attr("scale", "f", 0.5), attr("offset", "s", "nan")], (2, 0, 8)), ([attr("scale", "s", "inf")], None),
     ([attr("scale", "f", "0")], None), ([], None)],
)  # fmt: skip
def test_attributes_of_the_model_tell_scales(
    tmp_path: Path, attributes: list[dict[str, object]], expected: tuple[float, int, int] | None
) -> None:
    codes = output((1, 4), dtype="DT_INT8")
    path = write_model(tmp_path / "m.json", op("c.quant", "AscendQuant", outputs=[codes], more=attributes))
    found = read_scales(ScaleFiles(), read_rule(path), warn=print).of_codes("c.quant")
    assert (None if found is None else (found.step, found.offset, found.bits)) == expected


@pytest.mark.parametrize(
    ("quantizer", "layer"),
    [("conv1_quant_layer", "conv1"), ("conv1_0_quant_layer", "conv1"), ("Conv_6.quant", "Conv_6"),
     ("net/conv2/act_quant/AscendQuant", "net/conv2/Conv2D"),
     ("net/conv2/act_quant_1/AscendQuant", "net/conv2/Conv2D"),
     ("conv1_dequant_layer", ""), ("relu", ""), ("pool_quant_layer", "")],
)  # fmt: skip
def test_quantizers_are_named_after_layers(quantizer: str, layer: str) -> None:
    assert quantized_layer(quantizer, ["conv1", "Conv_6", "net/conv2/Conv2D"]) == layer


def test_packed_scales_hold_floats_below_shifts() -> None:
    scales = np.array([0.5, 3e-5], np.float32)
    packed = scales.view(np.uint32).astype(np.uint64) | np.uint64(5 << 32)
    np.testing.assert_array_equal(unpacked(packed), scales)
    np.testing.assert_array_equal(unpacked(scales), scales)


@pytest.mark.parametrize("framework", ["onnx", "caffe"])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("make", "back"), [(make_net, False), (make_views, False), (make_views, True)])
def test_quantization_information_alone_gives_the_same_table(
    tmp_path: Path, make: Callable[[int, Framework], Net], framework: Framework, fused: bool, back: bool
) -> None:
    net = quantized(make(11, framework))
    write_model_files(net, tmp_path)
    files = write_quantized_files(net, tmp_path)
    write_golden(tmp_path / "float", net.floats)
    model, _ = write_npu(net, tmp_path / "npu", fused=fused, back=back)
    words = ["-m", tmp_path / "npu", "-g", tmp_path / "float", "-q", files["info"], "-out"]
    tables = []
    for name, more in (("alone", []), ("both", ["-f", model])):
        assert main(["ascend", "compare", *map(str, [*words, tmp_path / name, *more])]) == 0
        lines = next((tmp_path / name).glob("result_*.csv")).read_text().splitlines()
        tables.append([line for line in lines if "NetOutput" not in line])
    assert len(tables[0]) > 20
    assert tables[0] == tables[1]
    assert "fitted" not in "".join(tables[0])


def test_a_record_of_too_few_channels_and_information_of_another_network_are_named(
    net: Net, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_golden(tmp_path / "float", net.floats)
    model, _ = write_npu(net, tmp_path / "npu", fused=False)
    first = net.quantized[0].name
    scale, offset, steps = net.factors[first]
    record = tmp_path / "few.txt"
    record.write_text(record_text({**net.factors, first: (scale, offset, steps[1:])}))
    (tmp_path / "other").mkdir()
    other = quantized(make_heads(5, net.framework))
    write_model_files(other, tmp_path / "other")
    info = write_quantized_files(other, tmp_path / "other")["info"]
    words = ["-m", tmp_path / "npu", "-g", tmp_path / "float", "-out", tmp_path / "out"]
    assert main(["ascend", "compare", *map(str, words), "-f", str(model), "--record", str(record)]) == 0
    assert f"few.txt has {steps.size - 1} scales for these sums" in capsys.readouterr().err
    assert main(["ascend", "compare", *map(str, words), "-f", str(model), "-q", str(info)]) == 0
    said = capsys.readouterr().err
    assert "net_quant.json is of another network" in said
    assert "it is not used" in said
    assert "not in quant fusion rule" not in said
    assert main(["ascend", "compare", *map(str, words), "-q", str(info)]) == Code.JSON
    assert "net_quant.json is of another network" in capsys.readouterr().err


def test_operators_that_read_or_write_codes_can_be_looked_at_alone(
    net: Net, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = write_quantized_files(net, tmp_path)
    write_golden(tmp_path / "fake", net.fakes)
    model, operators = write_npu(net, tmp_path / "npu", fused=False)
    layer = net.quantized[1].name
    words = ["-m", tmp_path / "npu", "-g", tmp_path / "fake", "-f", model, "--record", files["record"]]
    for part in (["-i", "0"], ["-o", "0"]):
        assert main(["ascend", "compare", *map(str, words), "-op", layer, *part, "-out", str(tmp_path)]) == 0
    prefix = layer.replace("/", "_")
    summary = (tmp_path / f"{prefix}_output_0_summary.txt").read_text()
    values = np.load(tmp_path / f"{prefix}_output_0.npy")
    largest = np.abs(values - net.fakes[layer]).max()
    assert f"MaxAbsoluteError:{largest:.6f}" in summary
    assert any(each.name == layer for each in operators)
    capsys.readouterr()
    # Without scales there is nothing to compare sums with, on either side of them.
    for operator, side in ((layer, "-o"), (net.dequantizer(net.quantized[1]), "-i")):
        alone: list[str] = [*map(str, words[:6]), "-op", operator, side, "0", "-out", str(tmp_path / "none")]
        assert main(["ascend", "compare", *alone]) == Code.UNSUPPORTED
        error = capsys.readouterr().err
        assert "where sums of codes are" in error
        assert "fix: add --record record.txt or --deploy MODEL" in error
