"""Equalization: what it brings, and what it does with limits."""

import numpy as np
import pytest

from roundoff.core.plan import Step
from roundoff.graph.load import Model
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.steps import StepContext, apply_transform
from roundoff.quantize.targets.files import load_target
from tests.graph.quantized_nets import run_model
from tests.quantize.transforms.nets import Net, context_for, same_bits, samples_for, step

PER_TENSOR = "generic-int8-per-tensor"


def unbalanced(*, relu6: bool = False) -> Model:
    """Pointwise, depthwise, pointwise; the channels between them differ a thousandfold without any effect."""
    net = Net(5)
    wide = 8
    factors = 10.0 ** np.linspace(-1.5, 1.5, wide)
    first = net.rng.normal(size=(wide, 3, 3, 3)) * factors[:, None, None, None]
    middle = net.rng.normal(size=(wide, 1, 3, 3)) / factors[:, None, None, None] * factors[::-1, None, None, None]
    last = net.rng.normal(size=(5, wide, 1, 1)) / factors[::-1, None, None]
    net.add("Conv", ["x", net.hold("w0", first), net.normal("b0", wide)], "first", pads=[1] * 4)
    low, high = net.hold("low", np.float32(0)), net.hold("high", np.float32(6 if relu6 else np.inf))
    net.add("Clip", ["first", low, high], "act0")
    net.add("Conv", ["act0", net.hold("w1", middle), net.normal("b1", wide)], "middle", pads=[1] * 4, group=wide)
    net.add("Clip", ["middle", low, high], "act1")
    net.add("Conv", ["act1", net.hold("w2", last)], "out")
    return net.model({"x": (1, 3, 8, 8)}, ["out"])


def sqnr(model: Model, target: str = PER_TENSOR) -> float:
    samples = samples_for(model, count=4)
    return quantize_model(model, samples, QuantizeSettings(load_target(target))).best.sqnr_db


def test_a_chain_of_three_is_balanced() -> None:
    model = unbalanced()
    done = apply_transform(step("equalize"), model, context_for(model, count=4))
    assert [each.node for each in done.taken] == ["first", "middle", "out"]
    assert [each.role for each in done.taken] == ["writer", "both", "reader"]
    assert sqnr(done.model) > sqnr(model) + 10


def test_relu6_gets_limits_for_each_channel_and_stays_exact_everywhere() -> None:
    model = unbalanced(relu6=True)
    done = apply_transform(step("equalize", power_of_two=True), model, context_for(model))
    assert sum(node.op_type == "Min" for node in done.model.proto.graph.node) == 2
    assert any("by a Min which a chip computes as one more operation" in str(note) for note in done.notes)
    for scale in (0.01, 1.0, 100.0):
        assert same_bits(model, done.model, scale=scale)


@pytest.mark.parametrize("opset", [10, 13])
def test_limits_below_zero_get_a_max(opset: int) -> None:
    net = Net(2)
    net.add("Conv", ["x", net.uneven("w0", 4, 3, 1, 1)], "first")
    if opset < 11:
        net.add("Clip", ["first"], "act", min=-1.0, max=2.0)
    else:
        net.add("Clip", ["first", net.hold("low", np.float32(-1)), net.hold("high", np.float32(2))], "act")
    net.add("Conv", ["act", net.normal("w1", 4, 4, 1, 1)], "out")
    model = net.model({"x": (1, 3, 4, 4)}, ["out"], opset=opset)
    done = apply_transform(step("equalize", power_of_two=True), model, context_for(model))
    assert [node.op_type for node in done.model.proto.graph.node] == ["Conv", "Clip", "Max", "Min", "Conv"]
    assert same_bits(model, done.model, scale=10.0)


def test_observed_limits_scale_only_channels_that_never_reach_them() -> None:
    model = unbalanced(relu6=True)
    done = apply_transform(step("equalize", clip="observed", power_of_two=True), model, context_for(model))
    assert {node.op_type for node in done.model.proto.graph.node} == {"Conv", "Clip"}
    assert any("reach the limit of a Clip and keep their scale" in str(note) for note in done.notes)
    context = context_for(model)
    for index in range(3):
        feed = context.samples.feed(index)
        np.testing.assert_array_equal(run_model(model, feed)[0], run_model(done.model, feed)[0])


def test_limits_can_hold_all_channels() -> None:
    model = unbalanced(relu6=True)
    done = apply_transform(step("equalize", clip="keep"), model, context_for(model))
    assert done.taken == ()
    assert "Clip 'act0' reads it" in str(done.notes[0])


def test_it_is_limited_to_nodes() -> None:
    model = unbalanced()
    done = apply_transform(Step("equalize", nodes=("out",)), model, context_for(model))
    assert {each.node for each in done.taken} == {"middle", "out"}


def test_a_layer_alone_is_said_to_be_alone() -> None:
    net = Net()
    net.add("Conv", ["x", net.normal("w0", 4, 3, 1, 1)], "out")
    model = net.model({"x": (1, 3, 4, 4)}, ["out"])
    done = apply_transform(step("equalize"), model, context_for(model))
    assert str(done.notes[0]).startswith(
        "equalize: no two layers share channels to scale; channels are held fast where"
    )
    assert str(done.notes[0]).endswith("it is an output of the network")


def test_one_sample_is_enough() -> None:
    model = unbalanced()
    context = StepContext(load_target(PER_TENSOR), samples_for(model, count=1))
    assert apply_transform(step("equalize", iterations=5), model, context).taken
