"""Layers of networks with control flow, chance, half precision, or outputs that are no numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.quantize.pipeline import Quantization, QuantizeSettings, quantize_model
from roundoff.quantize.targets.files import load_target
from roundoff.run.session import open_session
from roundoff.studies.layers.result import WEIGHTS_UNKNOWN, LayerReport
from roundoff.studies.layers.study import LayerSettings, analyze_layers
from tests.models import loaded, value, weight, wrapped
from tests.odd_models import half_net, images, with_branches, with_loop, with_scan, with_tail
from tests.run.samples import MemorySamples


def quantized(proto: Any, folder: Path, samples: MemorySamples) -> Quantization:
    return quantize_model(loaded(proto, folder), samples, QuantizeSettings(load_target("generic-int8")))


def first_outputs(model: Model, samples: MemorySamples) -> Array:
    session = open_session(model)
    return np.stack([session.run(feed)[0] for feed in samples.feeds]).astype(np.float64)


def sqnr_db(reference: Array, other: Array) -> float:
    return float(10 * np.log10(np.sum(reference**2) / np.sum((reference - other) ** 2)))


def written(result: Quantization, folder: Path) -> Model:
    """The fake-quant model after it was saved and loaded."""
    from roundoff.graph.load import load_model
    from roundoff.graph.save import save_model

    save_model(result.fake_quant_model(), folder / "fake.onnx")
    return load_model(folder / "fake.onnx")


@pytest.mark.parametrize("mode", ["reference", "integer"])
@pytest.mark.parametrize("build", [with_branches, with_loop, with_scan])
def test_subgraphs_run_as_in_the_quantized_model(build: Any, mode: Any, tmp_path: Path) -> None:
    samples = images()
    result = quantized(build(), tmp_path, samples)
    expected = sqnr_db(
        first_outputs(result.prepared.model, samples), first_outputs(written(result, tmp_path), samples)
    )
    report = analyze_layers(result.quantized, samples, LayerSettings(mode=mode))
    [found] = [row.accumulated.sqnr_db for row in report.rows if row.output and row.accumulated]
    # Integers and float32 may round a few elements to neighbouring codes.
    assert found == pytest.approx(expected, abs=1e-3 if mode == "reference" else 0.3)
    assert 25 < expected < 60


def test_half_precision_is_as_in_the_quantized_model(tmp_path: Path) -> None:
    from roundoff.graph.subgraph import tap
    from roundoff.run.variants import build_copies

    samples = images(8, np.float16)
    result = quantized(half_net(), tmp_path, samples)
    copies = build_copies(result.quantized, ["accumulated"])
    taps = tap(copies.model, [copies.taps["logits"]["accumulated"].name])
    session = open_session(copies.model, outputs=taps)
    found = np.stack([session.run(feed)[0] for feed in samples.feeds]).astype(np.float64)
    np.testing.assert_array_equal(found, first_outputs(written(result, tmp_path), samples))


def test_a_deploy_model_of_half_precision_is_read_without_its_float_model(tmp_path: Path) -> None:
    from roundoff.graph.load import load_model
    from roundoff.graph.readers.reader import read_quantized
    from roundoff.graph.save import save_model

    samples = images(2, np.float16)
    save_model(quantized(half_net(), tmp_path, samples).deploy_model(), tmp_path / "deploy.onnx")
    read = read_quantized(load_model(tmp_path / "deploy.onnx"))
    assert {tensor.data_type for tensor in read.float_model.proto.graph.initializer} == {TensorProto.FLOAT16}
    verdict = analyze_layers(read, samples).verdict
    assert verdict.agrees
    assert WEIGHTS_UNKNOWN in verdict.not_judged


def report_of(proto: Any, folder: Path, *, mode: Any = "reference") -> LayerReport:
    samples = images(3)
    return analyze_layers(quantized(proto, folder, samples).quantized, samples, LayerSettings(mode=mode))


TEXT = helper.make_node("Cast", ["logits"], ["odd"], name="print", to=TensorProto.STRING)
PARTS = helper.make_node("SplitToSequence", ["logits"], ["odd"], name="split", axis=1)
NOTHING = helper.make_node("Slice", ["logits", "five", "five", "one"], ["odd"], name="cut")
ROOTS = helper.make_node("Sqrt", ["minus"], ["odd"], name="roots")
MINUS = helper.make_node("Sub", ["logits", "huge"], ["minus"], name="minus")
SEQUENCE = helper.make_value_info("odd", helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None)))
CONSTANTS = [
    numpy_helper.from_array(np.array([5]), "five"),
    numpy_helper.from_array(np.array([1]), "one"),
    numpy_helper.from_array(np.float32(1e6), "huge"),
]
ODD = {
    "text": ([TEXT], value("odd", None, TensorProto.STRING), "unreadable"),
    "sequence": ([PARTS], SEQUENCE, "unreadable"),
    "empty": ([NOTHING], value("odd"), "degenerate"),
}


@pytest.mark.parametrize("mode", ["reference", "integer"])
@pytest.mark.parametrize(("nodes", "output", "status"), ODD.values(), ids=ODD)
def test_outputs_without_numbers_are_not_judged(
    nodes: list[Any], output: Any, status: str, mode: Any, tmp_path: Path
) -> None:
    report = report_of(with_tail(nodes, [value("logits"), output], CONSTANTS), tmp_path, mode=mode)
    [odd] = [row.accumulated for row in report.rows if row.tensor == "odd"]
    assert odd is not None
    assert (odd.status, odd.sqnr_db) == (status, None)
    # What holds nothing is no output to judge; text that differs is, and nobody can say by how much.
    empty = status == "degenerate"
    assert (report.verdict.kind, report.verdict.agrees) == ("fine" if empty else "open", True)
    assert report.judgement is not None
    assert report.judgement.grade == ("fine" if empty else "incomplete")
    assert report.exit_good is empty
    assert report.verdict.outputs == ("logits", "odd")


@pytest.mark.parametrize(("nodes", "output", "status"), ODD.values(), ids=ODD)
def test_without_any_numbers_the_verdict_is_open(
    nodes: list[Any], output: Any, status: str, tmp_path: Path
) -> None:
    report = report_of(with_tail(nodes, [output], CONSTANTS), tmp_path)
    assert (report.verdict.kind, report.verdict.agrees) == ("open", None), status


def test_outputs_that_are_never_finite_leave_the_verdict_open(tmp_path: Path) -> None:
    report = report_of(with_tail([MINUS, ROOTS], [value("logits"), value("odd")], CONSTANTS), tmp_path)
    assert report.verdict.kind == "open"


def test_truth_values_are_judged_as_zeros_and_ones(tmp_path: Path) -> None:
    above = helper.make_node("Greater", ["logits", "limit"], ["odd"], name="above")
    held = [numpy_helper.from_array(np.float32(-1e3), "limit")]
    report = report_of(with_tail([above], [value("odd", None, TensorProto.BOOL)], held), tmp_path)
    assert (report.verdict.kind, report.verdict.agrees) == ("fine", True)


def test_layers_of_a_random_network_are_refused(tmp_path: Path) -> None:
    noise = helper.make_node("RandomNormalLike", ["logits"], ["noise"], name="draw")
    noisy = helper.make_node("Add", ["logits", "noise"], ["odd"], name="noisy")
    samples = images()
    result = quantized(with_tail([noise, noisy], [value("odd")]), tmp_path, samples)
    with pytest.raises(BadInput, match=r"output 'odd' depends on 'draw' \(RandomNormalLike\)"):
        analyze_layers(result.quantized, samples)


def test_a_mask_that_is_infinite_no_more_is_found(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"], name="scores"),
        helper.make_node("Where", ["seen", "scores", "never"], ["masked"], name="mask"),
        helper.make_node("Softmax", ["masked"], ["y"], name="attention", axis=-1),
    ]
    held = [
        weight("w", 16, 8),
        numpy_helper.from_array(np.tri(8, dtype=np.bool_), "seen"),
        numpy_helper.from_array(np.float32("-inf"), "never"),
    ]
    rng = np.random.default_rng(0)
    samples = MemorySamples([{"x": rng.standard_normal((1, 8, 16)).astype(np.float32)} for _ in range(4)])
    result = quantized(wrapped(nodes, [value("x", (1, 8, 16))], [value("y")], held), tmp_path, samples)
    verdict = analyze_layers(result.quantized, samples).verdict
    assert verdict.kind == "local"
    [culprit] = verdict.culprits
    assert (culprit.node, culprit.introduced.cause) == ("mask", "clipping")
    assert culprit.remedy == ("tensor:masked=float",)
    assert verdict.before is not None
    assert verdict.after is not None
    assert verdict.after.sqnr_db > verdict.before.sqnr_db + 15
