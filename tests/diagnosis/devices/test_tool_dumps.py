"""Faults in what vendors' simulators wrote are named, and clean runs are accused of nothing."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import roundoff
from roundoff.diagnosis.result import Diagnosis
from tests.real_models import tool_files


def _diagnose(model: str, dumps: Path, sample: int = 0) -> Diagnosis:
    data = np.load(tool_files(f"inputs/{model}.npz"))
    values = next(data[name] for name in data.files if name.startswith("sample."))
    found = roundoff.diagnose(tool_files(f"models/{model}.onnx"), dumps=dumps, data=[values[sample : sample + 1]])
    return found.result


@pytest.mark.parametrize(
    ("model", "dumps", "sample"),
    [
        ("digits", "rknn/digits/s0", 0),
        ("digits", "rknn/digits/s1", 1),
        ("digits", "tpu_mlir/digits/INT8/s0_tpu.npz", 0),
        ("digits", "tpu_mlir/digits/INT8_ASYM/s1_tpu.npz", 1),
        ("digits", "tpu_mlir/digits/BF16/s0_tpu_uint16.npz", 0),
        ("xf", "tpu_mlir/xf/F16/s0_tpu.npz", 0),
        ("digits", "faults/tpu_digits_mix_qtable", 0),
        ("resnet8", "qnn_htp/resnet8.qdq", 0),
    ],
)
def test_clean_runs_of_simulators(model: str, dumps: str, sample: int) -> None:
    found = _diagnose(model, tool_files(dumps), sample)
    assert (found.kind, found.findings) == ("healthy", ())


@pytest.mark.parametrize(
    ("model", "dumps", "cause", "place"),
    [
        ("digits", "rknn_digits_range_x8", "wide-range", "block2/relu"),
        ("digits", "tpu_digits_threshold_x8", "wide-range", "block2/relu"),
        ("resnet8", "qnn_resnet8_scale", "wide-range", "model/activation_2/Relu_3_relu"),
        ("digits", "rknn_digits_mean", "preprocessing", "image"),
        ("det", "rknn_det_weights", "wrong-dequantization", "neck/conv"),
    ],
)
def test_faults_of_simulators(model: str, dumps: str, cause: str, place: str) -> None:
    found = _diagnose(model, tool_files(f"faults/{dumps}"))
    assert [(each.cause, each.tensors) for each in found.findings] == [(cause, (place,))]
    of_golden = dumps in ("rknn_digits_mean", "rknn_det_weights")
    assert ("own float run departs" in str(found.verdict)) is of_golden


def test_what_the_scales_of_a_tool_explain() -> None:
    """Its own thresholds cut the input off: the loss is the quantization's, and every tensor is as they say."""
    found = _diagnose("xf", tool_files("tpu_mlir/xf/INT8/s0_tpu.npz"))
    assert (found.kind, found.findings) == ("elsewhere", ())
    assert any("the tool's own scales" in str(note) for note in found.notes)


def test_a_range_that_is_too_wide_is_proven_by_running_again() -> None:
    (finding,) = _diagnose("digits", tool_files("faults/rknn_digits_range_x8")).findings
    rounding, outputs = finding.measures
    # Eight times as wide is three bits.
    assert rounding.after - rounding.before > 15
    assert outputs.after > outputs.before + 3
    assert finding.share == pytest.approx(1 - 10 ** ((outputs.before - outputs.after) / 10))


def test_one_sample_of_a_dump_of_several_with_channels_last() -> None:
    data = np.load(tool_files("inputs/det.npz"))["sample.images"][1:2]
    compared = roundoff.compare(tool_files("models/det.onnx"), tool_files("qnn_htp/det.qdq"), data=data).result
    assert [(row.reference, row.kind) for row in compared.rows if not row.passed] == [("output0", "part")]
    (finding,) = _diagnose("det", tool_files("qnn_htp/det.qdq")).findings
    assert finding.cause == "mixed-range"


def test_scores_that_share_a_scale_with_boxes() -> None:
    found = _diagnose("det", tool_files("rknn/det/s0"))
    (finding,) = found.findings
    assert (finding.cause, finding.nodes) == ("mixed-range", ("output0",))
    assert (finding.measures[0].before, "head/score_flat" in str(finding.summary)) == (3.0, True)


def test_swapped_tensors_and_the_rung_that_loses(tmp_path: Path) -> None:
    path = tmp_path / "s"
    shutil.copytree(tool_files("rknn/digits/s0"), path)
    shutil.copytree(path / "simulator", path / "runtime")
    for one, other in (("block1_relu", "block2_relu"), ("block2_relu", "block1_relu")):
        shutil.copy(
            tool_files(f"rknn/digits/s0/simulator/npy/{one}.npy"), path / "runtime" / "npy" / f"{other}.npy"
        )
    found = _diagnose("digits", path)
    assert [(each.cause, each.tensors) for each in found.findings] == [
        ("wrong-dump", ("block1/relu", "block2/relu"))
    ]
    assert "most is lost between golden and simulator" in str(found.verdict)
    compared = roundoff.compare(tool_files("rknn/digits/s0"), path).result
    swapped = {row.reference for row in compared.rows if row.kind == "swapped"}
    assert swapped == {"block1/relu", "block2/relu"}
    assert compared.judgement is not None
    assert not compared.judgement.good
