"""Weights with one scale per block: the same function in rows, packed codes as onnxruntime has them, and back."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx.numpy_helper import from_array, to_array

from roundoff.cli import main
from roundoff.graph.block_weights import block_products, split_weights
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.graph.readers.reader import read_quantized
from roundoff.graph.save import fill, save_model
from roundoff.quantize.pipeline import Quantization, QuantizeSettings, quantize_model
from roundoff.quantize.planning.rules import parse_rule
from roundoff.quantize.targets.files import load_target
from tests.graph.transformer_nets import Form, feeds, transformer
from tests.quantize.transforms.test_clamp_mask import Given, outputs

FORM = Form("causal", pre_norm=True, norm="rms")


def quantized(target: str, *rules: str) -> tuple[Quantization, Model, Given]:
    model = transformer(FORM)
    samples = Given(feeds(model, 8))
    settings = QuantizeSettings(load_target(target), rules=tuple(map(parse_rule, rules)))
    return quantize_model(model, samples, settings), model, samples


@pytest.mark.parametrize("size", [16, 32, 64])
def test_rows_of_blocks_compute_the_same(size: int) -> None:
    model = transformer(FORM)
    split, taken = split_weights(model, size)
    assert len(taken) == 12  # six layers with weights in each of two
    assert set(block_products(split)) == set(taken)
    assert {each.size for each in block_products(split).values()} == {size}
    for feed in feeds(model, 2):
        for ours, theirs in zip(outputs(model, feed), outputs(split, feed), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def _decoded(node: Any, held: dict[str, Any]) -> Any:
    """The weight of a MatMulNBits by the formula of its documentation."""
    given = {each.name: each.i for each in node.attribute}
    packed, scales = to_array(held[node.input[1]]), to_array(held[node.input[2]])
    codes = (
        packed if given["bits"] == 8 else np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:2], -1)
    )
    middle = 1 << (given["bits"] - 1)
    blocks = (codes.astype(np.int64) - middle) * scales.reshape(*packed.shape[:2], 1)
    return blocks.reshape(given["N"], -1)[:, : given["K"]].T


@pytest.mark.parametrize(("target", "bits"), [("weights-int4", 4), ("weights-int8", 8)])
def test_the_file_holds_codes_with_a_scale_per_block_and_runs_as_it_was_judged(target: str, bits: int) -> None:
    result, model, samples = quantized(target)
    deployed = fill(result.deploy_model())
    held = {each.name: each for each in deployed.proto.graph.initializer}
    packed = [node for node in deployed.proto.graph.node if node.op_type == "MatMulNBits"]
    original = {node.name: node for node in model.proto.graph.node}
    weights = {each.name: to_array(each) for each in model.proto.graph.initializer}
    assert len(packed) == 12
    for node in packed:
        assert {each.name: each.i for each in node.attribute}["bits"] == bits
        matrix, made = weights[original[node.name].input[1]], _decoded(node, held)
        assert made.shape == matrix.shape
        # The larger side of a block decides its step; what its codes reach is within half a step.
        filled = np.zeros((math.ceil(len(matrix) / 32) * 32, matrix.shape[1]))
        filled[: len(matrix)] = matrix
        blocks, top = filled.reshape(-1, 32, matrix.shape[1]), 1 << (bits - 1)
        steps = np.maximum(-blocks.min(axis=1) / top, blocks.max(axis=1) / (top - 1))
        larger = np.where(-blocks.min(axis=1) > blocks.max(axis=1), -blocks.min(axis=1) / top, steps)
        step = np.repeat(larger, 32, axis=0)[: len(matrix)]
        wanted = np.clip(matrix, -top * step, (top - 1) * step)
        assert (np.abs(made - wanted) <= 0.5001 * step).all()
    simulated = switch_on(result.float_model, result.best.numbers.quantizers)
    session = ort.InferenceSession(deployed.proto.SerializeToString())
    for index in range(2):
        feed = samples.feed(index)
        ours, theirs = outputs(simulated, feed)[0], session.run(None, dict(feed))[0]
        exact = outputs(model, feed)[0]
        assert np.abs(ours - theirs).max() < 0.2 * np.abs(ours - exact).max()


def test_what_was_written_is_read_back_onto_the_float_model() -> None:
    result, model, samples = quantized("weights-int4")
    found = read_quantized(fill(result.deploy_model()), float_model=model)
    assert len(found.quantizers) == 12
    assert {(each.kind, each.spec.bits) for each in found.quantizers} == {("weight", 4)}
    feed = samples.feed(0)
    np.testing.assert_array_equal(outputs(found.float_model, feed)[0], outputs(model, feed)[0])
    again = switch_on(found.float_model, found.quantizers)
    ours = switch_on(result.float_model, result.best.numbers.quantizers)
    np.testing.assert_allclose(outputs(again, feed)[0], outputs(ours, feed)[0], rtol=1e-4, atol=1e-5)


def test_weights_that_cost_most_alone_are_to_stay_at_8_bits_and_that_is_measured() -> None:
    result, model, samples = quantized("weights-int4")
    [note] = [each for each in result.notes if each.key == "quantize.stay_wide"]
    said = dict(note.arguments)
    assert float(str(said["after"])) > float(str(said["before"])) + 1
    named = [name.strip("'") for name in str(said["nodes"]).split(", ")]
    # Alone, each of them costs more than any that is not named.
    costs = {}
    for each in result.best.numbers.quantizers:
        [product] = [name for name, part in block_products(result.float_model).items() if part.rows == each.tensor]
        network = switch_on(result.float_model, [each])
        costs[product] = sum(
            float(np.square(outputs(model, feed)[0] - outputs(network, feed)[0]).sum())
            for feed in (samples.feed(0), samples.feed(7))
        )
    worst = sorted(costs, key=lambda name: -costs[name])[: len(named)]
    assert set(named) & set(worst)
    again, _, _ = quantized("weights-int4", *(f"{name}=weight=s8" for name in named))
    assert again.best.sqnr_db == pytest.approx(float(str(said["after"])), abs=0.06)
    assert not any(each.key == "quantize.stay_wide" for each in again.notes)


def test_eight_bits_need_no_advice() -> None:
    result, _, _ = quantized("weights-int8")
    assert result.best.sqnr_db > 35
    assert not any(each.key == "quantize.stay_wide" for each in result.notes)


def test_an_audit_says_first_how_many_products_have_such_weights(tmp_path: Path, capsys: Any) -> None:
    result, _, _ = quantized("weights-int4")
    file = tmp_path / "blocks.onnx"
    save_model(result.deploy_model(), file)
    main(["audit", str(file)])
    told = " ".join(capsys.readouterr().out.split())
    assert "12 of 16 MatMuls have their weight as s4 codes with one scale per block of 32" in told
    assert told.index("12 of 16 MatMuls") < told.index("quantized 0 of")


@pytest.mark.parametrize("target", ["weights-int4", "weights-int8"])
def test_an_audit_of_what_was_written_by_ourselves_accuses_nobody(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = transformer(FORM)
    save_model(model, tmp_path / "net.onnx")
    np.save(tmp_path / "words.npy", np.stack([feed["words"] for feed in feeds(model, 8)]))
    given = ["--data", f"words={tmp_path / 'words.npy'}", "--target", target, "-o", str(tmp_path / "out")]
    main(["quantize", str(tmp_path / "net.onnx"), *given])
    capsys.readouterr()
    assert main(["audit", str(tmp_path / "out")]) == 0
    assert "no silent difference" in capsys.readouterr().out
    # The scales of a weight that are not those of the plan are told all the same.
    deployed = onnx.load(tmp_path / "out" / "net_deploy_model.onnx")
    product = next(node for node in deployed.graph.node if node.op_type == "MatMulNBits")
    scales = next(each for each in deployed.graph.initializer if each.name == product.input[2])
    scales.CopyFrom(from_array(to_array(scales) * np.float32(1.5), scales.name))
    onnx.save(deployed, tmp_path / "out" / "net_deploy_model.onnx")
    assert main(["audit", str(tmp_path / "out")]) == 1
    assert "SILENT DIFFERENCES: 1 difference" in capsys.readouterr().out
