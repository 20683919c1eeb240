"""Planted faults, end to end: float, fused and unfused quantized models, of Caffe and ONNX."""

import csv
import functools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from roundoff.cli import main
from roundoff.core.progress import SILENT
from roundoff.core.tensors import Array
from roundoff.vendors.ascend.causes import cause_of, dead_channels
from roundoff.vendors.ascend.comparison import Request, compare_network
from roundoff.vendors.ascend.culprits import Located, OperatorError, conclude
from roundoff.vendors.ascend.scenarios import RuleFiles
from tests.vendors.ascend.simulated import (
    FAULTS,
    Framework,
    Hook,
    Net,
    culprits,
    make_heads,
    make_net,
    plant,
    quantized,
    write_golden,
    write_model_files,
    write_npu,
    write_quantized_files,
)

KINDS = ("float", "fused", "unfused")
OF_CODES = ("scale", "offset", "saturation", "sums")


@dataclass(frozen=True)
class Case:
    """A device and everything that there is of its model."""

    folder: Path
    model: Path
    files: dict[str, Path]
    rule: Path
    culprits: list[str]

    @property
    def golden(self) -> Path:
        return self.folder / ("fake" if self.files else "float")

    def compare(self, *, replay: bool) -> Located:
        """Where the error begins, by the golden data and by the model, or by the golden data alone."""
        request = Request(
            self.folder / "npu", self.golden, RuleFiles(self.rule), out=self.folder / "out",
            record=self.files.get("record"),
            replay=self.files.get("deploy", self.model) if replay else None,
        )  # fmt: skip
        found = compare_network(request, warn=lambda text: None, progress=SILENT)
        assert found.located is not None
        assert not found.not_replayed
        return found.located


def case(
    folder: Path, kind: str, fault: str, seed: int, *, framework: Framework = "onnx", left_out: int | None = None,
    inputs: bool = True, make: Callable[[int, Framework], Net] = make_net, bits: tuple[int, int] = (8, 8),
) -> Case:  # fmt: skip
    net = make(seed, framework)
    model = write_model_files(net, folder)
    write_golden(folder / "float", net.floats)
    files = {}
    if kind != "float":
        files = write_quantized_files(quantized(net, bits=bits), folder)
        write_golden(folder / "fake", net.fakes)
    planted = plant(net, fault, seed)
    hook: Hook = planted.hook
    skipped: list[str] = []
    if left_out is not None:
        _, operators = write_npu(net, folder / "all", fused=kind != "unfused", hook=hook)
        skipped = culprits(operators, planted)[:left_out]
    rule, operators = write_npu(
        net, folder / "npu", fused=kind != "unfused", hook=hook, inputs=inputs, left_out=skipped
    )
    return Case(folder, model, files, rule, culprits(operators, planted) if fault != "noise" else [])


def named(found: Located) -> list[str]:
    """The operators that are accused; the kind of error when none is."""
    if found.faults:
        return [each.op for each in found.faults]
    return [found.op] if found.kind == "node" else []


@pytest.mark.parametrize("framework", ["onnx", "caffe"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_named_with_a_model(
    tmp_path: Path, fault: str, kind: str, framework: Framework
) -> None:
    if kind == "float" and fault in OF_CODES:
        pytest.skip("a float model has no codes")
    planted = case(tmp_path, kind, fault, 5, framework=framework)
    found = planted.compare(replay=True)
    assert sorted(named(found)) == sorted(planted.culprits)
    expected = {"none": "none", "noise": "accumulated"}.get(fault, "node")
    assert found.kind == expected
    if fault in ("scale", "offset"):
        assert [each.cause and each.cause.kind for each in found.faults] == [fault]
    if kind == "unfused" and fault in ("saturation", "sums", "dead"):
        assert found.cause is not None
        assert found.cause.kind == {"dead": "channel"}.get(fault, fault)


@pytest.mark.parametrize("bits", [(4, 4), (8, 4)])
@pytest.mark.parametrize("fault", ["offset", "scale", "none"])
def test_few_codes_are_judged_as_many_are(tmp_path: Path, fault: str, bits: tuple[int, int]) -> None:
    for kind, replay in (("fused", True), ("unfused", False)):
        (tmp_path / kind).mkdir()
        planted = case(tmp_path / kind, kind, fault, 410, bits=bits)
        found = planted.compare(replay=replay)
        assert named(found) == planted.culprits
        assert (found.cause.kind if found.cause else "none") == fault


def test_a_deploy_model_that_is_given_is_replayed(tmp_path: Path) -> None:
    planted = case(tmp_path, "unfused", "two", 5, framework="caffe")
    rules = RuleFiles(planted.rule)
    request = Request(tmp_path / "npu", planted.golden, rules, out=tmp_path, deploy=planted.files["deploy"])
    found = compare_network(request, warn=lambda text: None, progress=SILENT).located
    assert found is not None
    assert sorted(named(found)) == sorted(planted.culprits)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in ("two", "noise")])
def test_planted_faults_are_named_by_golden_data_and_scales(tmp_path: Path, fault: str, kind: str) -> None:
    if kind == "float" and fault in OF_CODES:
        pytest.skip("a float model has no codes")
    planted = case(tmp_path, kind, fault, 6, framework="caffe")
    found = planted.compare(replay=False)
    assert named(found) == planted.culprits
    if fault in ("scale", "offset"):
        assert found.cause is not None
        assert found.cause.kind == fault


@pytest.mark.parametrize("framework", ["onnx", "caffe"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["conv", "scale", "offset", "saturation", "none"])
def test_a_quantizer_of_two_heads_is_named_and_neither_head(
    tmp_path: Path, fault: str, kind: str, framework: Framework
) -> None:
    if kind == "float" and fault in OF_CODES:
        pytest.skip("a float model has no codes")
    for seed, turned in ((3, False), (9, False), (9, True)):  # the last two plant it in what both heads read
        folder = tmp_path / f"{seed}{turned}"
        folder.mkdir()
        make = functools.partial(make_heads, turned=turned)
        planted = case(folder, kind, fault, seed, framework=framework, make=make)
        assert sorted(named(planted.compare(replay=True))) == sorted(planted.culprits)


@pytest.mark.parametrize("inputs", [True, False])
@pytest.mark.parametrize("replay", [True, False])
def test_an_operator_without_a_dump_is_named_with_its_neighbours(
    tmp_path: Path, replay: bool, inputs: bool
) -> None:
    planted = case(tmp_path, "float", "conv", 7, left_out=1, inputs=inputs)
    found = planted.compare(replay=replay)
    accused = {*found.between, *(name for each in found.faults for name in (*each.between, each.op))}
    assert set(planted.culprits) <= accused
    assert len(accused) <= 2


def test_compare_and_guide_say_what_replay_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planted = case(tmp_path, "unfused", "scale", 5, framework="caffe")
    (culprit,) = planted.culprits
    words = ["-m", tmp_path / "npu", "-g", planted.golden, "-f", planted.rule, "--record", planted.files["record"]]
    main(["ascend", "compare", *map(str, words), "--replay", str(planted.model), "-out", str(tmp_path / "out")])
    assert f"is {culprit}'s own, by its own inputs: wrong scale" in " ".join(capsys.readouterr().out.split())
    guided = ["--fake-quant", planted.golden, "--npu-off", tmp_path / "npu", "-cf", planted.rule]
    code = main(
        ["ascend", "guide", *map(str, guided), "-q", str(planted.files["info"]), "-out", str(tmp_path / "g")]
    )
    out = " ".join(capsys.readouterr().out.split())
    assert (code, f"is {culprit}'s own" in out, "the device uses another scale" in out) == (1, True, True)
    assert "report it to the vendor" not in out
    accepted = ["--float-accuracy", "76.1", "--quant-accuracy", "75.5"]
    code = main(["ascend", "guide", *map(str, guided), *accepted, "-out", str(tmp_path / "g")])
    out = " ".join(capsys.readouterr().out.split())
    assert (code, "BAD" in out, "note conversion" in out) == (0, False, True)


@pytest.mark.parametrize(("kind", "seed"), [("float", 2001), ("fused", 2006), ("fused", 2011), ("float", 2007)])
def test_noise_everywhere_is_accumulated_without_a_model_too(tmp_path: Path, kind: str, seed: int) -> None:
    found = case(tmp_path, kind, "noise", seed).compare(replay=False)
    assert (found.kind, named(found)) == ("accumulated", [])


def test_a_table_has_the_unfused_convolution_itself(tmp_path: Path) -> None:
    planted = case(tmp_path, "unfused", "conv", 5, framework="caffe")
    planted.compare(replay=False)
    with next((tmp_path / "out").glob("result_*.csv")).open(newline="") as lines:
        rows = {row["TensorIndex"]: row for row in csv.DictReader(lines)}
    (culprit,) = planted.culprits
    assert float(rows[f"{culprit}:input:0"]["CosineSimilarity"]) > 0.99
    assert float(rows[f"{culprit}:output:0"]["CosineSimilarity"]) < 0.99


def test_two_heads_at_fault_are_both_named_by_golden_data_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = make_heads(4)
    write_model_files(net, tmp_path)
    write_golden(tmp_path / "float", net.floats)
    read = {name for layer in net.layers for name in layer.reads}
    heads = [layer.name for layer in net.layers if layer.name not in read]

    def hook(name: str, values: Array) -> Array:
        return (values * np.float16(1.5)).astype(values.dtype) if name in heads else values

    rule, _ = write_npu(net, tmp_path / "npu", fused=False, hook=hook)
    words = ["-m", tmp_path / "npu", "-g", tmp_path / "float", "-f", rule, "-out", tmp_path / "out"]
    main(["ascend", "compare", *map(str, words)])
    out = capsys.readouterr().out
    assert f"error     is introduced by {heads[0]}; no other is wrong\n" in out
    assert f"          and by {heads[1]}, whose inputs are right\n" in out


@pytest.mark.parametrize("framework", ["onnx", "caffe"])
@pytest.mark.parametrize("fused", [True, False])
def test_two_layers_of_right_inputs_are_both_named(tmp_path: Path, framework: Framework, fused: bool) -> None:
    net = make_heads(4, framework)
    write_model_files(net, tmp_path)
    files = write_quantized_files(quantized(net), tmp_path)
    write_golden(tmp_path / "fake", net.fakes)
    read = {name for layer in net.layers for name in layer.reads}
    heads = [layer.reads[0] for layer in net.layers if layer.name not in read]

    def hook(name: str, values: Array) -> Array:
        return (values // 2).astype(values.dtype) if name in heads else values

    rule, operators = write_npu(net, tmp_path / "npu", fused=fused, hook=hook)
    request = Request(tmp_path / "npu", tmp_path / "fake", RuleFiles(rule), out=tmp_path, record=files["record"])
    found = compare_network(request, warn=lambda text: None, progress=SILENT).located
    assert found is not None
    at_fault = [each.name for each in operators if any(step.name in heads for step in each.steps)]
    assert [found.op, *found.also] == at_fault


def test_tensors_that_are_off_though_every_operator_is_right_accuse_nobody() -> None:
    right = [OperatorError(name, 0.0, 0.001, 0.0) for name in ("a", "b", "c")]
    rows = Located("node", "b", distance=0.06, compared=9, wrong=1)
    found = conclude(right, rows, every=True)
    assert (found.kind, found.rounding, found.replayed) == ("none", True, 3)
    ends = conclude(right, replace(rows, reaches_end=True), every=True)
    assert (ends.kind, ends.rounding) == ("accumulated", True)
    assert conclude(right, rows).kind == "accumulated"


def test_what_is_left_of_an_error_by_its_cause() -> None:
    rng = np.random.default_rng(0)
    exact = np.rint(rng.normal(size=(1, 4, 16, 16)) * 30)
    kinds = {
        "scale": np.rint(exact * 1.4), "offset": exact + 9, "saturation": np.clip(exact, -40, 40),
        "channel": np.where(np.arange(4).reshape(1, 4, 1, 1) == 2, 0, exact),
    }  # fmt: skip
    for kind, found in kinds.items():
        cause = cause_of(found, exact, numbers="codes", coded=True)
        assert cause is not None
        assert cause.kind == kind
    clipped = cause_of(kinds["saturation"], exact, numbers="sums", coded=True)
    assert clipped is not None
    assert clipped.kind == "sums"
    assert "40" in clipped.text
    # Of a fused operator, a constant added before rounding is not called an offset.
    before = rng.normal(size=exact.shape) * 30
    moved = [np.rint(before), np.rint(before + 9.4)]
    for added, kind in ((moved[1], "shift"), (moved[0] + 9, "offset")):
        cause = cause_of(added, moved[0], numbers="codes", coded=True, fused="replayed")
        assert cause is not None
        assert cause.kind == kind
    noise = cause_of(exact + rng.normal(size=exact.shape) * 9, exact, numbers="codes", coded=True)
    assert noise is None
    assert dead_channels(kinds["channel"], exact) == (2,)
    assert dead_channels(kinds["channel"], kinds["channel"]) == ()


def test_many_small_errors_are_accumulated_and_few_are_nodes() -> None:
    right = [OperatorError(f"r{place}", 0.0, 0.001, 0.0) for place in range(5)]
    small = [OperatorError(f"s{place}", 0.05, 0.06, 0.5, wrong=True) for place in range(5)]
    large = OperatorError("large", 0.9, 0.9, 0.9, wrong=True)
    rows = Located("none", compared=9)
    assert conclude([*right, *small], rows).kind == "accumulated"
    found = conclude([*right, *small, large], rows)
    assert (found.kind, [each.op for each in found.faults]) == ("node", ["large"])
    assert [each.op for each in conclude([*right, small[0], large], rows).faults] == ["s0", "large"]
    refuted = conclude(right, Located("node", "r3", compared=9, wrong=1))
    assert (refuted.kind, refuted.faults) == ("accumulated", ())


@pytest.mark.parametrize("framework", ["onnx", "caffe"])
@pytest.mark.parametrize("kind", ["fused", "unfused"])
@pytest.mark.parametrize("fault", ["none", "scale", "offset", "conv"])
def test_without_scales_the_quantizer_and_its_reader_are_suspected_together(
    tmp_path: Path, fault: str, kind: str, framework: Framework
) -> None:
    planted = case(tmp_path, kind, fault, 6, framework=framework)
    planted.files.clear()
    request = Request(tmp_path / "npu", tmp_path / "fake", RuleFiles(planted.rule), out=tmp_path / "out")
    found = compare_network(request, warn=lambda text: None, progress=SILENT).located
    assert found is not None
    if fault == "none":
        assert found.kind == "none"
        return
    assert set(planted.culprits) <= {*found.between, found.op}
    if kind == "unfused":
        assert len(found.between) <= 4
    assert found.unscaled if found.kind == "between" else named(found) == planted.culprits


@pytest.mark.parametrize("framework", ["onnx", "caffe"])
def test_a_float_model_and_a_record_are_replayed_in_a_process_of_their_own(
    tmp_path: Path, framework: Framework
) -> None:
    planted = case(tmp_path, "unfused", "scale", 8, framework=framework)
    words = ["-m", tmp_path / "npu", "-g", planted.golden, "-f", planted.rule, "--record", planted.files["record"]]
    words += ["--replay", planted.model, "-out", tmp_path / "out"]
    command = [sys.executable, "-m", "roundoff", "ascend", "compare", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (culprit,) = planted.culprits
    assert f"is {culprit}'s own, by its own inputs: wrong scale" in done.stdout


def test_a_float_model_without_its_record_accuses_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = case(tmp_path, "unfused", "none", 5)
    other = tmp_path / "other.txt"
    other.write_text('record { key: "elsewhere" value { scale_d: 1 offset_d: 0 scale_w: 1 offset_w: 0 } }')
    words = ["-m", tmp_path / "npu", "-g", sound.golden, "-f", sound.rule, "--replay", sound.model]
    for more in ([], ["--record", other]):
        code = main(["ascend", "compare", *map(str, [*words, *more]), "-out", str(tmp_path / "out")])
        captured = capsys.readouterr()
        assert (code, "error  " in captured.out) == (0, False)
        assert "is float, and no record of it was given" in captured.err
    assert "is of another network" in captured.err


def test_files_of_another_network_with_some_names_in_common_accuse_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("this", "other"):
        (tmp_path / name).mkdir()
    sound = case(tmp_path / "this", "unfused", "none", 5, framework="caffe", make=make_heads)
    other = case(tmp_path / "other", "unfused", "none", 5, framework="caffe")
    words = ["-m", tmp_path / "this" / "npu", "-g", sound.golden, "-f", sound.rule, "-out", tmp_path / "out"]
    record = ["--record", sound.files["record"]]
    for more in (["--deploy", other.files["deploy"]], [*record, "--replay", other.files["deploy"]]):
        code = main(["ascend", "compare", *map(str, [*words, *more])])
        captured = capsys.readouterr()
        assert (code, "error  " in captured.out) == (0, False)
        assert "net_deploy_model.prototxt is of another network" in captured.err
