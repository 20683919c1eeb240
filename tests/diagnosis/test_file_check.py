"""What is in the file of a quantized model and not in its quantizers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions

from roundoff.core.quantizers import fake_quantize
from roundoff.core.tensors import Array
from roundoff.diagnosis.investigation import DiagnoseSettings
from roundoff.diagnosis.result import Diagnosis
from roundoff.diagnosis.study import diagnose_quantization
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.load import Model, model_from_proto
from roundoff.graph.readers.reader import read_quantized
from roundoff.run.capture import Samples
from roundoff.samples.sample_set import ArraySamples
from tests.diagnosis.planting import biased, for_target, narrower, numpy_tensor, unbalanced


def plain() -> tuple[Model, Any, Samples]:
    """A float model, the file of it quantized, and samples."""
    model, arrays = unbalanced(1.0)
    quantized, samples = for_target(model, arrays)
    return model, insert_quantizers(quantized.float_model, quantized.quantizers).proto, samples


def diagnosed(model: Model, proto: Any, samples: Samples) -> Diagnosis:
    given = model_from_proto(proto, path=Path("quantized.onnx"))
    quantized = read_quantized(given, float_model=model)
    return diagnose_quantization(quantized, samples, DiagnoseSettings(given=given))


def pair(proto: Any, tensor: str) -> tuple[Any, Any]:
    """The nodes that quantize and dequantize a tensor."""
    first = next(node for node in proto.graph.node if node.op_type == "QuantizeLinear" and node.input[0] == tensor)
    second = next(node for node in proto.graph.node if node.input and node.input[0] == first.output[0])
    return first, second


def constant(proto: Any, name: str) -> Array:
    return np.asarray(numpy_helper.to_array(next(each for each in proto.graph.initializer if each.name == name)))


def replaced(proto: Any, node: Any, position: int, values: Array) -> None:
    name = f"{node.name}_{position}_other"
    proto.graph.initializer.append(numpy_tensor(name, values))
    node.input[position] = name


def test_a_file_that_computes_what_it_says_is_healthy() -> None:
    found = diagnosed(*plain())
    assert found.kind == "healthy"
    check = next(each for each in found.checks if str(each.name) == "the file itself")
    assert str(check.result).startswith("it computes what its quantizers say")


def test_codes_that_are_dequantized_with_another_scale() -> None:
    model, proto, samples = plain()
    _, back = pair(proto, "r1")
    replaced(proto, back, 1, np.asarray(constant(proto, back.input[1]) * 3, np.float32))
    (finding,) = diagnosed(model, proto, samples).accused
    assert (finding.cause, finding.nodes) == ("wrong-dequantization", ("relu1",))
    assert finding.measures[0].improved


def test_a_float_bias_that_is_not_that_of_the_model() -> None:
    quantized, samples = for_target(*biased())
    kept = tuple(each for each in quantized.quantizers if each.kind != "bias")
    proto = insert_quantizers(quantized.float_model, kept).proto
    for tensor in proto.graph.initializer:
        if tensor.name == "bias":
            tensor.CopyFrom(numpy_tensor("bias", np.full(8, 3.0, np.float32)))
    found = diagnosed(quantized.float_model, proto, samples)
    assert found.kind == "culprits"
    assert found.accused[0].cause == "bias-shift"


def test_a_relu_that_only_the_codes_stood_for() -> None:
    model, proto, samples = plain()
    there, back = pair(proto, "r1")
    zero = constant(proto, there.input[2])
    for node in (there, back):
        replaced(proto, node, 2, np.asarray(int(zero) + 90, zero.dtype))
    relu = next(node for node in proto.graph.node if node.name == "relu1")
    for node in proto.graph.node:
        if node.input and node.input[0] == "r1":
            node.input[0] = relu.input[0]
    proto.graph.node.remove(relu)
    there.input[0] = relu.input[0]
    producer = next(node for node in proto.graph.node if relu.input[0] in node.output)
    producer.output[0] = there.input[0] = "r1"
    found = diagnosed(model, proto, samples)
    assert found.kind == "culprits"
    assert (found.accused[0].cause, found.accused[0].tensors[0]) == ("clipping", "r1")


def test_a_file_that_cannot_be_run_is_said() -> None:
    model, proto, samples = plain()
    given = model_from_proto(proto, path=Path("quantized.onnx"))
    quantized = read_quantized(given, float_model=model)
    broken = onnx.ModelProto()
    broken.CopyFrom(proto)
    broken.graph.node.append(helper.make_node("Nothing", ["y"], ["z"], name="n", domain="nowhere"))
    broken.opset_import.append(helper.make_opsetid("nowhere", 1))
    other = Model(broken, Path("broken.onnx"), 0)
    found = diagnose_quantization(quantized, samples, DiagnoseSettings(given=other))
    check = next(each for each in found.checks if str(each.name) == "the file itself")
    assert str(check.result).startswith("it could not be run here, so that its quantizers stand for it")
    assert found.kind == "healthy"


def run_file_db(model: Model, proto: Any, samples: Samples) -> float:
    """Signal to noise of a file as onnxruntime runs it, against its float model, on all samples."""
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    ours, theirs = (InferenceSession(each.SerializeToString(), options) for each in (model.proto, proto))
    signal = noise = 0.0
    for index in range(len(samples.names)):
        feed = dict(samples.feed(index))
        want, got = (each.run(None, feed)[0].astype(np.float64) for each in (ours, theirs))
        signal, noise = signal + float(np.square(want).sum()), noise + float(np.square(want - got).sum())
    return float(10 * np.log10(signal / noise))


@pytest.mark.parametrize("factor", [0.5, 0.9, 0.98, 1.05, 2.0])
def test_a_pair_that_disagrees_is_always_found_and_the_figure_is_that_of_the_file(factor: float) -> None:
    model, proto, samples = plain()
    before = run_file_db(model, proto, samples)
    _, back = pair(proto, "r1")
    replaced(proto, back, 1, np.asarray(constant(proto, back.input[1]) * np.float32(factor)))
    found = diagnosed(model, proto, samples)
    finding = next(each for each in found.findings if each.cause == "wrong-dequantization")
    assert "relu1" in finding.nodes
    assert found.measures[0].before == pytest.approx(run_file_db(model, proto, samples), abs=1e-3)
    assert finding.measures[0].before == pytest.approx(found.measures[0].before, abs=1e-6)
    assert finding.measures[0].after == pytest.approx(before, abs=0.5)
    assert found.kind == "culprits"


def test_the_figure_of_a_sound_file_is_that_of_the_file() -> None:
    model, proto, samples = plain()
    found = diagnosed(model, proto, samples)
    assert found.measures[0].before == pytest.approx(run_file_db(model, proto, samples), abs=1e-3)


def alone(factor: float, target: str, *, louder: float = 1.0) -> Diagnosis:
    """What a file holds without its float model, one channel of whose weights is larger than the others.

    Args:
        factor: How much larger that channel is.
        target: The chip.
        louder: How much larger the samples are than those it was calibrated on.
    """
    model, arrays = unbalanced(factor)
    quantized, samples = for_target(model, arrays, target)
    if louder != 1.0:
        samples = ArraySamples({name: values * np.float32(louder) for name, values in arrays.items()})
    proto = type(model.proto)()
    proto.CopyFrom(quantized.float_model.proto)
    by_tensor = {each.tensor: each for each in quantized.quantizers if each.kind == "weight"}
    for tensor in proto.graph.initializer:
        if tensor.name in by_tensor:
            each = by_tensor[tensor.name]
            values = fake_quantize(numpy_helper.to_array(tensor), each.params, each.spec)
            tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32), tensor.name))
    known = replace(quantized, float_model=model_from_proto(proto, path=model.path))
    return diagnose_quantization(known, samples)


def test_without_the_float_model_weights_are_judged_by_their_codes() -> None:
    sound, spoilt = alone(1.0, "generic-int8"), alone(90.0, "generic-int8-per-tensor")
    assert sound.kind == "healthy"
    assert "only the float model shows it" in str(sound.verdict)
    assert spoilt.kind == "not_enough_evidence"
    assert "'conv" in str(spoilt.verdict)
    assert "use at most 3 codes" in str(spoilt.verdict)


@pytest.mark.parametrize(("factor", "target"), [(1.0, "generic-int8"), (90.0, "generic-int8-per-tensor")])
def test_culprits_without_the_float_model_leave_the_weights_out_and_say_so(factor: float, target: str) -> None:
    found = alone(factor, target, louder=8.0)
    assert found.kind == "culprits"
    assert "what rounding the weights costs is not in it" in str(found.verdict)
    assert ("codes" in str(found.verdict)) == (factor > 1)


def noisy(proto: Any, share: float) -> Any:
    """The file with a node behind its last one that adds a part of the output's size, which no quantizer says."""
    last = proto.graph.output[0].name
    maker = next(node for node in proto.graph.node if last in node.output)
    maker.output[list(maker.output).index(last)] = "before_noise"
    wave = np.resize(np.array([1, -1], np.float32), 10) * np.float32(share)
    proto.graph.initializer.append(numpy_tensor("wave", wave))
    proto.graph.node.append(helper.make_node("Add", ["before_noise", "wave"], [last], name="noise"))
    return proto


def test_a_file_is_judged_as_it_runs_though_its_quantizers_say_less() -> None:
    """Quantizers just within the limits do not make a file fine that is just beyond them."""
    model, arrays = unbalanced(1.0)
    quantized, samples = for_target(model, arrays)
    bits = {"activation": 4, "weight": 5}
    rough = tuple(narrower(bits[q.kind])(q) if q.kind in bits else q for q in quantized.quantizers)
    proto = insert_quantizers(quantized.float_model, rough).proto
    fine = diagnosed(model, proto, samples)
    assert fine.judgement is not None
    assert fine.judgement.good
    kept = fine.measures[0].before
    found = diagnosed(model, noisy(proto, 0.068), samples)
    assert found.judgement is not None
    # Less than the 3 dB from which on something else than quantizers is sought, and beyond the limits.
    assert kept - 3 < found.measures[0].before < 16.5
    assert (found.judgement.grade, found.kind) != ("fine", "healthy")
    assert found.judgement.grade == "lossy"
