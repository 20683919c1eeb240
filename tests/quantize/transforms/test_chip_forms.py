"""What toolchains make of sums, means and joined tensors: other nodes that compute the same."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

import roundoff
from roundoff.core.plan import Step
from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.quantize.steps import StepContext, apply_transform
from roundoff.quantize.targets import load_target
from roundoff.samples.sample_set import ArraySamples
from tests.models import loaded, save, value, weight, wrapped

SHAPE = (1, 4, 9, 16)


def _run(model: Model, image: Array) -> Array:
    session = ort.InferenceSession(model.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"image": image})[0])


def _changed(network: Any, step: str, folder: Path, *nodes: str) -> tuple[Model, list[str]]:
    """What a transform makes of a network, after its outputs were held against those of before."""
    model = loaded(network, folder)
    image = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    context = StepContext(load_target("rknn"), ArraySamples({"image": image}))
    done = apply_transform(Step(step, nodes=nodes), model, context)
    assert np.allclose(_run(done.model, image), _run(model, image), atol=1e-5)
    return done.model, [each.node for each in done.taken]


@pytest.mark.parametrize("groups", [1, 2])
def test_a_sum_with_the_own_input_goes_into_the_weights(groups: int, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["image", "w", "b"], ["c"], name="conv", pads=[1] * 4, group=groups),
        helper.make_node("Add", ["image", "c"], ["y"], name="add"),
    ]
    weights = [weight("w", 4, 4 // groups, 3, 3), weight("b", 4)]
    network = wrapped(nodes, [value("image", SHAPE)], [value("y", SHAPE)], weights)
    model, taken = _changed(network, "fold_skip", tmp_path)
    assert taken == ["conv"]
    assert [node.op_type for node in model.proto.graph.node] == ["Conv"]


@pytest.mark.parametrize("strides", [[2, 2], [1, 1]])
def test_other_sums_stay(strides: list[int], tmp_path: Path) -> None:
    shape = (1, 4, 9, 9)
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"], name="conv", strides=strides, pads=[2, 2, 0, 0]),
        helper.make_node("Relu", ["image"], ["r"], name="relu"),
        helper.make_node("Add", ["c", "r" if strides == [1, 1] else "c"], ["y"], name="add"),
    ]
    network = wrapped(nodes, [value("image", shape)], [value("y")], [weight("w", 4, 4, 3, 3)])
    model = loaded(network, tmp_path)
    image = np.ones(shape, np.float32)
    done = apply_transform(
        Step("fold_skip"), model, StepContext(load_target("rknn"), ArraySamples({"image": image}))
    )
    assert done.model is model


def test_a_mean_becomes_two_convolutions(tmp_path: Path) -> None:
    node = helper.make_node("GlobalAveragePool", ["image"], ["y"], name="pool")
    network = wrapped([node], [value("image", SHAPE)], [value("y", (1, 4, 1, 1))])
    model, _ = _changed(network, "split_global_pool", tmp_path)
    first, second = model.proto.graph.node
    # Windows of at most 7: 9 rows are two of five, the last with one row of zeros; 16 columns are three of six.
    assert (first.output[0], second.output[0]) == ("pool_2conv0", "y")
    forms = [{each.name: list(each.ints) for each in node.attribute} for node in (first, second)]
    assert [form["kernel_shape"] for form in forms] == [[5, 6], [2, 3]]
    assert forms[0]["pads"] == [0, 0, 1, 2]


def test_a_small_mean_stays(tmp_path: Path) -> None:
    node = helper.make_node("GlobalAveragePool", ["small"], ["y"], name="pool")
    cut = helper.make_node("MaxPool", ["image"], ["small"], name="cut", kernel_shape=[3, 10], strides=[1, 1])
    network = wrapped([cut, node], [value("image", SHAPE)], [value("y", (1, 4, 1, 1))])
    assert _changed(network, "split_global_pool", tmp_path)[1] == []


def test_a_convolution_of_joined_tensors_becomes_a_sum(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["image"], ["up"], name="up"),
        helper.make_node("Concat", ["up", "image"], ["joined"], name="join", axis=1),
        helper.make_node("Conv", ["joined", "w", "b"], ["y"], name="conv", pads=[1] * 4),
    ]
    weights = [weight("w", 5, 8, 3, 3), weight("b", 5)]
    network = wrapped(nodes, [value("image", SHAPE)], [value("y", (1, 5, 9, 16))], weights)
    model, taken = _changed(network, "split_concat", tmp_path)
    assert taken == ["conv"]
    assert [list(node.output) for node in model.proto.graph.node] == [["up"], ["up_conv"], ["image_conv"], ["y"]]
    # The bias is where the toolkit was seen to put it: with the last part.
    assert [len(node.input) for node in model.proto.graph.node] == [1, 2, 3, 2]


def test_settings_for_the_tool_speak_of_the_layers_that_it_rewrites_itself(tmp_path: Path) -> None:
    """A gate reads what its mean reads too; the mean stays at 8 bits, and sizes have no precision."""
    shape = (1, 4, 12, 12)
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"], name="conv", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
        helper.make_node("Conv", ["p", "v"], ["g"], name="gate"),
        helper.make_node("Mul", ["r", "g"], ["m"], name="mul"),
        helper.make_node("Shape", ["m"], ["s"], name="shape"),
        helper.make_node("Reshape", ["m", "s"], ["y"], name="reshape"),
    ]
    weights = [weight("w", 4, 4, 3, 3), weight("v", 4, 4, 1, 1)]
    path = save(wrapped(nodes, [value("image", shape)], [value("y", shape)], weights), tmp_path / "net.onnx")
    data = np.random.default_rng(0).standard_normal((4, *shape[1:])).astype(np.float32)
    roundoff.quantize(path, data={"image": data}, target="rknn").save(tmp_path / "q")
    roundoff.export_settings(tmp_path / "q", dialect="rknn").save(tmp_path / "s")
    assert (tmp_path / "s" / "net.quantization.cfg").read_text() == "custom_quantize_layers: {}\n"
    ranges = json.loads((tmp_path / "s" / "net_rknn_ranges.json").read_text())
    assert {"image", "r", "c", "p", "g", "m"} <= ranges.keys()
