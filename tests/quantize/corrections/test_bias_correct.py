"""Bias correction: means are restored, and every form of the model agrees."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from roundoff.core.plan import Step
from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.insertion import deploy_model, fake_quant_model, switch_on
from roundoff.graph.load import Model, load_model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.readers.reader import read_quantized
from roundoff.graph.save import save_model
from roundoff.graph.subgraph import tap
from roundoff.quantize.corrections import bias_correct
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.steps import Corrected, StepContext, apply_correction, correction_names
from roundoff.quantize.targets.files import load_target
from roundoff.run.integer.machine import IntegerRunner
from roundoff.run.session import open_session
from tests.graph.quantized_nets import run_model
from tests.quantize.transforms.nets import Net, step
from tests.run.samples import MemorySamples


def net(*, bias: bool = True) -> Model:
    """Conv, depthwise Conv, product and Gemm, of weights that a common scale does not suit."""
    made = Net(7)
    biases = [made.normal(f"b{index}", size) for index, size in enumerate((6, 6, 5, 4))]
    made.add("Conv", ["x", made.uneven("w0", 6, 3, 3, 3), *biases[: int(bias)]], "first", pads=[1] * 4)
    made.add("Relu", ["first"], "act")
    made.add("Conv", ["act", made.uneven("w1", 6, 1, 3, 3), *biases[1 : 1 + int(bias)]], "second", group=6)
    made.add("Relu", ["second"], "act1")
    made.add("GlobalAveragePool", ["act1"], "pooled")
    made.add("Flatten", ["pooled"], "flat")
    made.add("MatMul", ["flat", made.normal("w2", 6, 5)], "product")
    made.add("Add", ["product", biases[2]], "third")
    made.add("Gemm", ["third", made.normal("w3", 5, 4), biases[3]], "out", beta=2.0)
    return made.model({"x": (1, 3, 8, 8)}, ["out"])


def context_of(model: Model, target: str) -> StepContext:
    rng = np.random.default_rng(4)
    shape = [dim.dim_value for dim in model.proto.graph.input[0].type.tensor_type.shape.dim]
    feeds = [{"x": (rng.normal(size=shape) + 1).astype(np.float32)} for _ in range(8)]
    return StepContext(load_target(target), MemorySamples(feeds))


def quantized_for(model: Model, target: str) -> tuple[QuantizedModel, StepContext]:
    context = context_of(model, target)
    return quantize_model(model, context.samples, QuantizeSettings(context.target)).quantized, context


def corrected(target: str, name: str = "bias_correct") -> tuple[QuantizedModel, Corrected, StepContext]:
    quantized, context = quantized_for(net(), target)
    return quantized, apply_correction(step(name), quantized, context), context


def means(model: Model, names: list[str], context: StepContext) -> dict[str, Array]:
    """Means of the channels of what nodes compute."""
    nodes = {node.name: node for node in model.proto.graph.node}
    tensors = [nodes[name].output[0] for name in names]
    session = open_session(model, outputs=tap(model, tensors))
    runs = [session.run(context.samples.feed(index)) for index in range(len(context.samples.names))]
    found = {}
    for place, name in enumerate(names):
        stacked = np.concatenate([run[place] for run in runs]).astype(np.float64)
        found[name] = stacked.mean(axis=tuple(axis for axis in range(stacked.ndim) if axis != 1))
    return found


TARGETS = ["generic-int8-per-tensor", "generic-int8", "tensorrt-like", "onnxruntime"]


@pytest.mark.parametrize("target", TARGETS)
def test_means_are_those_of_the_float_model(target: str) -> None:
    quantized, done, context = corrected(target)
    # onnxruntime rounds a product before anything is added to it.
    fused = ["third"] if target != "onnxruntime" else []
    layers = ["first", "second", *fused, "out"]
    assert {each.node for each in done.taken} == {"first", "second", "out", *(["product"] if fused else [])}
    exact = means(quantized.float_model, layers, context)
    before = means(switch_on(quantized.float_model, quantized.quantizers), layers, context)
    after = means(switch_on(done.model.float_model, done.model.quantizers), layers, context)
    finest = {
        consumer.node: float(each.params.scale.max())
        for each in done.model.quantizers
        if each.kind == "bias"
        for consumer in each.consumers
    }
    for name in layers:
        wrong, left = (np.abs(each[name] - exact[name]).max() for each in (before, after))
        # A bias is a whole number of steps.
        assert left < 0.01 * wrong + finest[name], name
        assert wrong > 4 * left, name
    assert done.model.float_model is quantized.float_model


@pytest.mark.parametrize("name", ["bias_correct", "round_weights"])
@pytest.mark.parametrize("target", TARGETS)
def test_every_form_of_the_model_agrees(target: str, name: str, tmp_path: Path) -> None:
    _, done, context = corrected(target, name)
    quantized = done.model
    assert any(each.codes is not None for each in quantized.quantizers)
    fake, deployed = tmp_path / "fake.onnx", tmp_path / "deploy.onnx"
    save_model(fake_quant_model(quantized.float_model, quantized.quantizers), fake)
    save_model(deploy_model(quantized.float_model, quantized.quantizers), deployed)
    for index in range(3):
        feed = context.samples.feed(index)
        expected = run_model(switch_on(quantized.float_model, quantized.quantizers), feed)
        for path in (fake, deployed):
            for got, wanted in zip(run_model(load_model(path), feed), expected, strict=True):
                np.testing.assert_array_equal(got, wanted)
        for path in (fake, deployed):
            for float_model in (None, quantized.float_model):
                read = read_quantized(load_model(path), float_model=float_model)
                again = run_model(switch_on(read.float_model, read.quantizers), feed)
                np.testing.assert_array_equal(again[0], expected[0])


@pytest.mark.parametrize("name", ["bias_correct", "round_weights"])
def test_integer_hardware_computes_the_same(name: str) -> None:
    _, done, context = corrected("generic-int8-per-tensor", name)
    quantized = done.model
    runner = IntegerRunner(quantized.float_model, quantized.quantizers, context.target.arithmetic)
    step_size = max(float(each.params.scale) for each in quantized.quantizers if each.output)
    for index in range(3):
        feed = context.samples.feed(index)
        expected = run_model(switch_on(quantized.float_model, quantized.quantizers), feed)[0]
        np.testing.assert_allclose(runner.run(feed).values["out"], expected, atol=1.01 * step_size)


def test_the_float_network_is_run_once_for_all_that_is_made_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    quantized, context = quantized_for(net(), "generic-int8")
    other = replace(quantized, quantizers=tuple(each for each in quantized.quantizers if each.kind != "weight"))
    alone = apply_correction(step("bias_correct"), other, replace(context, memory={}))
    apply_correction(step("bias_correct"), quantized, context)
    monkeypatch.setattr(bias_correct, "LiveSource", None)
    found = apply_correction(step("bias_correct"), other, context)
    for ours, theirs in zip(found.model.quantizers, alone.model.quantizers, strict=True):
        np.testing.assert_array_equal(ours.codes, theirs.codes)


def test_values_that_are_not_finite_do_not_count_in_means() -> None:
    tally = bias_correct.ChannelMean(1)
    tally.add(np.array([[[1.0, np.inf, 3.0], [np.nan, -np.inf, np.inf]]], np.float32))
    tally.add(np.array([[[5.0, 3.0, 3.0], [2.0, 4.0, 6.0]]], np.float32))
    np.testing.assert_array_equal(tally.mean, [3.0, 4.0])


def test_a_layer_without_a_bias_is_said_to_have_none() -> None:
    quantized, context = quantized_for(net(bias=False), "generic-int8")
    done = apply_correction(step("bias_correct"), quantized, context)
    assert str(done.notes[0]) == (
        "bias_correct: 2 layers have no bias, which the transform explicit_bias would give: 'first', 'second'"
    )
    assert {each.node for each in done.taken} == {"product", "out"}
    only = apply_correction(Step("bias_correct", nodes=("first",)), quantized, context)
    assert only.taken == ()
    assert str(only.notes[-1]) == "bias_correct: there is no bias to correct"


def test_a_bias_that_two_layers_share_is_corrected_for_each() -> None:
    made = Net(3)
    shared = made.normal("b", 4)
    made.add("Conv", ["x", made.uneven("w0", 4, 4, 3, 3), shared], "first", pads=[1] * 4)
    made.add("Conv", ["first", made.uneven("w1", 4, 4, 3, 3), shared], "out", pads=[1] * 4)
    quantized, context = quantized_for(made.model({"x": (1, 4, 6, 6)}, ["out"]), "tensorrt-like")
    done = apply_correction(step("bias_correct"), quantized, context)
    biases = [each for each in done.model.quantizers if each.tensor == "b"]
    assert [len(each.consumers) for each in biases] == [1, 1]
    assert not np.array_equal(biases[0].codes, biases[1].codes)  # type: ignore[arg-type]


def test_correcting_twice_changes_nothing_more() -> None:
    _, done, context = corrected("generic-int8")
    again = apply_correction(step("bias_correct"), done.model, context)
    for first, second in zip(done.model.quantizers, again.model.quantizers, strict=True):
        if first.codes is not None and second.codes is not None:
            assert np.abs(first.codes.astype(np.int64) - second.codes).max() <= _small(first)


def _small(quantizer: Quantizer) -> int:
    """One per mille of the largest code: rounding of later layers answers a little to that of earlier ones."""
    return 2 + int(np.abs(quantizer.codes).max() / 1000) if quantizer.codes is not None else 0


def test_the_names_and_their_mistakes() -> None:
    assert correction_names() == ("bias_correct", "round_weights")
    quantized, context = quantized_for(net(), "generic-int8")
    with pytest.raises(BadInput, match="There is no correction 'bias_corect'") as caught:
        apply_correction(step("bias_corect"), quantized, context)
    assert caught.value.fix == "did you mean 'bias_correct'?"
