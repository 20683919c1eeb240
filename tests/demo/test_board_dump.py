"""The demo's board dump: made by the simulated chip, with exactly the fault that truth.json states."""

import json
import math
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from scripts import make_demo_dump, npu

import roundoff
from roundoff import demo
from roundoff.core.tensors import Array

FOLDER = demo.model_path().parent


@pytest.fixture(scope="module")
def truth() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / "truth.json").read_text(encoding="utf-8"))
    return loaded


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return onnx.load(demo.model_path())


@pytest.fixture(scope="module")
def scales(truth: dict[str, Any]) -> dict[str, npu.Scale]:
    return {tensor: npu.Scale(**scale) for tensor, scale in truth["scales"].items()}


@pytest.fixture(scope="module")
def shipped() -> list[dict[str, Array]]:
    dumps = []
    for index in range(make_demo_dump.SAMPLES):
        with np.load(FOLDER / "board_dump" / f"{index}.npz", allow_pickle=False) as archive:
            dumps.append(dict(archive))
    return dumps


@pytest.fixture(scope="module")
def reference(model: onnx.ModelProto) -> dict[str, Array]:
    """Every tensor of the float model for the eight samples."""
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    names = [node.output[0] for node in model.graph.node]
    del tapped.graph.output[:]
    tapped.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    session = ort.InferenceSession(tapped.SerializeToString(), providers=["CPUExecutionProvider"])
    samples = np.load(FOLDER / "samples.npy", allow_pickle=False)
    return {"image": samples, **dict(zip(names, session.run(names, {"image": samples}), strict=True))}


def in_reference_layout(value: Array) -> Array:
    return value.transpose(0, 3, 1, 2) if value.ndim == 4 else value


def scores(reference: Array, observed: Array) -> tuple[float, float, float]:
    """Cosine, SQNR in dB and slope of the best line through zero."""
    expected, got = reference.astype(np.float64).ravel(), observed.astype(np.float64).ravel()
    power, product = float(expected @ expected), float(expected @ got)
    noise = float(((expected - got) ** 2).sum())
    return product / math.sqrt(power * float(got @ got)), 10 * math.log10(power / noise), product / power


def test_the_dump_is_what_the_simulated_chip_computes_bit_for_bit(
    model: onnx.ModelProto, scales: dict[str, npu.Scale], shipped: list[dict[str, Array]]
) -> None:
    layers = npu.fuse(model)
    samples = np.load(FOLDER / "samples.npy", allow_pickle=False)
    fault = {make_demo_dump.FAULTY_TENSOR: make_demo_dump.EXTRA_SHIFT}
    made = make_demo_dump.dump(layers, scales, npu.run(layers, scales, samples, extra_shift=fault))
    for expected, got in zip(made, shipped, strict=True):
        assert list(expected) == list(got)
        for name in expected:
            np.testing.assert_array_equal(expected[name], got[name], strict=True)


def test_the_scales_come_from_the_calibration_split(model: onnx.ModelProto, scales: dict[str, npu.Scale]) -> None:
    calibrated = npu.calibrate(model, demo.load_split("calibration")[0])
    for tensor, scale in scales.items():
        assert calibrated[tensor].scale == pytest.approx(scale.scale, rel=1e-4)
        assert calibrated[tensor].zero_point == scale.zero_point


def test_the_fault_and_nothing_else_costs_accuracy(
    model: onnx.ModelProto, scales: dict[str, npu.Scale], truth: dict[str, Any]
) -> None:
    layers = npu.fuse(model)
    images, labels = demo.load_split("test")
    for name, fault in (("healthy_board", {}), ("broken_board", {truth["fault"]["tensor"]: 1})):
        codes = npu.run(layers, scales, images, extra_shift=fault)
        assert make_demo_dump.accuracy(codes["logits"], labels) == truth["accuracy"][name]
    assert truth["accuracy"]["float"] - truth["accuracy"]["healthy_board"] < 0.01
    assert truth["accuracy"]["float"] - truth["accuracy"]["broken_board"] > 0.1


def test_the_first_tensor_that_diverges_is_the_planted_one_and_it_is_a_gain(
    truth: dict[str, Any], shipped: list[dict[str, Array]], reference: dict[str, Array]
) -> None:
    rows = []
    for name, tensor in truth["names"].items():
        observed = in_reference_layout(np.concatenate([sample[name] for sample in shipped]))
        assert observed.shape == reference[tensor].shape
        rows.append((tensor, scores(reference[tensor], observed)))
    first = next(position for position, (_, (_, sqnr_db, _)) in enumerate(rows) if sqnr_db < 20)
    tensor, (cosine, _, slope) = rows[first]
    assert tensor == truth["fault"]["tensor"]
    assert slope == pytest.approx(truth["fault"]["gain"], abs=0.01)
    assert cosine > 0.999
    assert all(sqnr_db > 25 for _, (_, sqnr_db, _) in rows[:first])
    assert rows[first + 1][1][0] < 0.9


def test_the_planted_node_computes_the_planted_tensor_once_fused(
    model: onnx.ModelProto, truth: dict[str, Any]
) -> None:
    layer = next(layer for layer in npu.fuse(model) if layer.output == truth["fault"]["tensor"])
    node = next(node for node in model.graph.node if node.name == truth["fault"]["node"])
    assert node.op_type == "Conv"
    assert layer.inputs == (node.input[0],)


def test_the_board_reads_half_of_the_samples_wrong_and_the_float_model_none(
    truth: dict[str, Any], reference: dict[str, Array], shipped: list[dict[str, Array]]
) -> None:
    images, labels = demo.load_split("test")
    chosen = truth["samples"]["test_positions"]
    np.testing.assert_array_equal(images[chosen], reference["image"])
    assert labels[chosen].tolist() == truth["samples"]["labels"]
    assert reference["logits"].argmax(axis=1).tolist() == truth["samples"]["labels"]
    board = [int(sample["L13_DENSE.ofm"].argmax()) for sample in shipped]
    assert board == truth["samples"]["board_reads"]
    assert sum(a != b for a, b in zip(board, truth["samples"]["labels"], strict=True)) == 4


def test_fused_tensors_are_absent_and_names_are_the_chips_own(
    model: onnx.ModelProto, truth: dict[str, Any], shipped: list[dict[str, Array]]
) -> None:
    tensors = {node.output[0] for node in model.graph.node} | {"image"}
    assert set(truth["names"]) == set(shipped[0])
    assert set(truth["names"].values()) < tensors
    assert not set(truth["names"]) & tensors
    assert "block3/pointwise_norm" not in truth["names"].values()


def test_a_diagnosis_of_the_dump_names_the_gain_that_was_planted() -> None:
    folder = demo.model_path().parent
    outcome = roundoff.diagnose(
        demo.model_path(), dumps=folder / "board_dump", data=folder / "samples.npy", threads=1
    )
    (finding,) = outcome.result.findings
    assert (finding.cause, finding.tensors) == ("wrong-dequantization", ("block3/relu",))
    assert "'block3/relu' is 0.4989 times what it should be" in " ".join(str(outcome).split())
