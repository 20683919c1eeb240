"""Every way in which something in front of a layer takes up the factors of its input."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper

from roundoff.graph.load import Model
from roundoff.quantize.steps import apply_transform
from roundoff.quantize.transforms.factors import rescaled
from roundoff.quantize.transforms.rules import map_scaling
from tests.quantize.transforms.nets import Net, context_for, same_bits, step

WIDTH = 6
TOKENS = (1, 5, WIDTH)
IMAGE = (1, WIDTH, 6, 6)
SMOOTH = step("smooth", threshold=1.0, power_of_two=True)

Case = tuple[Model, set[str]]


def _gain(net: Net, name: str, *shape: int) -> str:
    """A gain with an outlier."""
    values = net.rng.uniform(0.5, 1.5, size=shape)
    values.reshape(-1)[1] = 64.0
    return net.hold(name, values)


def _project(net: Net, source: str, name: str = "out") -> str:
    return net.add("MatMul", [source, net.normal(f"{name}_w", WIDTH, 4)], name)


def layer_norm() -> Case:
    net = Net()
    net.add("LayerNormalization", ["x", _gain(net, "g", WIDTH), net.normal("b", WIDTH)], "norm", axis=-1)
    _project(net, "norm")
    return net.model({"x": TOKENS}, ["out"]), {"norm", "out"}


def layer_norm_shared_by_three() -> Case:
    net = Net()
    net.add("LayerNormalization", ["x", _gain(net, "g", WIDTH)], "norm", axis=-1)
    for name in ("q", "k", "v"):
        _project(net, "norm", name)
    return net.model({"x": TOKENS}, ["q", "k", "v"]), {"norm", "q", "k", "v"}


def decomposed_layer_norm() -> Case:
    net = Net()
    net.hold("two", np.float32(2.0))
    net.hold("eps", np.float32(1e-5))
    net.add("ReduceMean", ["x"], "mean", axes=[-1])
    net.add("Sub", ["x", "mean"], "centred")
    net.add("Pow", ["centred", "two"], "square")
    net.add("ReduceMean", ["square"], "variance", axes=[-1])
    net.add("Add", ["variance", "eps"], "shifted")
    net.add("Sqrt", ["shifted"], "deviation")
    net.add("Div", ["centred", "deviation"], "unit")
    net.add("Mul", ["unit", _gain(net, "g", WIDTH)], "scaled")
    net.add("Add", ["scaled", net.normal("b", WIDTH)], "norm")
    _project(net, "norm")
    return net.model({"x": TOKENS}, ["out"]), {"scaled", "norm", "out"}


def rms_norm() -> Case:
    net = Net()
    net.hold("eps", np.float32(1e-5))
    net.add("Mul", ["x", "x"], "square")
    net.add("ReduceMean", ["square"], "mean", axes=[-1])
    net.add("Add", ["mean", "eps"], "shifted")
    net.add("Sqrt", ["shifted"], "root")
    net.add("Div", ["x", "root"], "unit")
    net.add("Mul", [_gain(net, "g", WIDTH), "unit"], "norm")
    _project(net, "norm")
    return net.model({"x": TOKENS}, ["out"]), {"norm", "out"}


def simplified_layer_norm() -> Case:
    net = Net()
    net.add("SimplifiedLayerNormalization", ["x", _gain(net, "g", WIDTH)], "norm", axis=-1)
    _project(net, "norm")
    return net.model({"x": TOKENS}, ["out"]), {"norm", "out"}


def batch_norm() -> Case:
    net = Net()
    parts = [_gain(net, "g", WIDTH), net.normal("b", WIDTH), net.normal("m", WIDTH)]
    net.add("BatchNormalization", ["x", *parts, net.hold("v", np.full(WIDTH, 0.5))], "norm")
    net.add("Conv", ["norm", net.normal("w", 4, WIDTH, 3, 3)], "out")
    return net.model({"x": IMAGE}, ["out"]), {"norm", "out"}


def batch_norm_between_convs() -> Case:
    net = Net()
    net.add("Conv", ["x", net.uneven("w0", WIDTH, WIDTH, 1, 1)], "first")
    net.add("Relu", ["first"], "relu")
    parts = [_gain(net, "g", WIDTH), net.normal("b", WIDTH), net.normal("m", WIDTH)]
    net.add("BatchNormalization", ["relu", *parts, net.hold("v", np.full(WIDTH, 0.5))], "norm")
    net.add("Conv", ["norm", net.normal("w", 4, WIDTH, 1, 1)], "out")
    return net.model({"x": IMAGE}, ["out"]), {"norm", "out"}


def instance_norm() -> Case:
    net = Net()
    net.add("InstanceNormalization", ["x", _gain(net, "g", WIDTH), net.normal("b", WIDTH)], "norm")
    net.add("Conv", ["norm", net.normal("w", 4, WIDTH, 1, 1)], "out")
    return net.model({"x": IMAGE}, ["out"]), {"norm", "out"}


def conv_without_bias() -> Case:
    net = Net()
    net.add("Conv", ["x", net.uneven("w0", WIDTH, WIDTH, 3, 3)], "first", pads=[1] * 4)
    net.add("Conv", ["first", net.normal("w1", 4, WIDTH, 1, 1)], "out")
    return net.model({"x": IMAGE}, ["out"]), {"first", "out"}


def conv_through_commuting_operations() -> Case:
    net = Net()
    net.add("Conv", ["x", net.uneven("w0", WIDTH, WIDTH, 3, 3), net.normal("b0", WIDTH)], "first", pads=[1] * 4)
    net.add("PRelu", ["first", net.hold("slope", net.rng.uniform(0.1, 0.5, size=(WIDTH, 1, 1)))], "prelu")
    net.add("LeakyRelu", ["prelu"], "leaky", alpha=0.25)
    net.add("MaxPool", ["leaky"], "pooled", kernel_shape=[2, 2], strides=[1, 1])
    net.add("AveragePool", ["pooled"], "mean", kernel_shape=[2, 2], strides=[1, 1])
    net.add("Pad", ["mean", net.hold("pads", np.array([0, 0, 1, 1, 0, 0, 1, 1]))], "padded")
    net.add("Transpose", ["padded"], "turned", perm=[0, 2, 3, 1])
    net.add("Reshape", ["turned", net.hold("shape", np.array([1, 36, WIDTH]))], "flat")
    _project(net, "flat")
    return net.model({"x": IMAGE}, ["out"]), {"first", "out"}


def depthwise_reader() -> Case:
    net = Net()
    net.add("Conv", ["x", net.uneven("w0", WIDTH, WIDTH, 1, 1), net.normal("b0", WIDTH)], "first")
    net.add("Relu", ["first"], "relu")
    net.add("Conv", ["relu", net.normal("w1", 2 * WIDTH, 1, 3, 3)], "out", group=WIDTH)
    return net.model({"x": IMAGE}, ["out"]), {"first", "out"}


def grouped_conv_reader() -> Case:
    net = Net()
    net.add("Conv", ["x", net.uneven("w0", WIDTH, WIDTH, 1, 1)], "first")
    net.add("Conv", ["first", net.normal("w1", 4, WIDTH // 2, 3, 3)], "out", group=2)
    return net.model({"x": IMAGE}, ["out"]), {"first", "out"}


def transposed_conv_reader_and_writer() -> Case:
    net = Net()
    weight = net.rng.normal(size=(WIDTH, WIDTH // 2, 2, 2)) * np.array([1, 16, 128])[:, None, None]
    net.add("ConvTranspose", ["x", net.hold("w0", weight), net.normal("b", WIDTH)], "first", group=2)
    net.add("ConvTranspose", ["first", net.normal("w1", WIDTH, 4, 2, 2)], "out")
    return net.model({"x": IMAGE}, ["out"]), {"first", "out"}


def gemm_chain_both_ways_round() -> Case:
    net = Net()
    net.add("Gemm", ["x", net.uneven("w0", WIDTH, 3), net.normal("b0", WIDTH)], "first", transB=1, alpha=0.5)
    net.add("Relu", ["first"], "relu")
    net.add("Gemm", ["relu", net.normal("w1", WIDTH, 4), net.normal("b1", 4)], "out")
    return net.model({"x": (2, 3)}, ["out"]), {"first", "out"}


def product_with_added_bias() -> Case:
    net = Net()
    net.add(
        "MatMul", ["x", net.hold("w0", net.rng.normal(size=(WIDTH, WIDTH)) * 2.0 ** np.arange(WIDTH))], "first"
    )
    net.add("Add", [net.normal("b0", WIDTH), "first"], "biased")
    net.add("Relu", ["biased"], "relu")
    _project(net, "relu")
    return net.model({"x": TOKENS}, ["out"]), {"first", "biased", "out"}


def gated_product() -> Case:
    net = Net()
    net.add("MatMul", ["x", net.normal("wg", WIDTH, WIDTH)], "gate")
    net.add("Sigmoid", ["gate"], "sigmoid")
    net.add("Mul", ["gate", "sigmoid"], "silu")
    net.add("MatMul", ["x", net.hold("wu", net.rng.normal(size=(WIDTH, WIDTH)) * 2.0 ** np.arange(WIDTH))], "up")
    net.add("Mul", ["silu", "up"], "both")
    _project(net, "both")
    return net.model({"x": TOKENS}, ["out"]), {"up", "out"}


def attention_value() -> Case:
    net = Net()
    heads = net.hold("heads", np.array([1, 5, 2, WIDTH // 2]))
    weights = net.hold("wv", net.rng.normal(size=(WIDTH, WIDTH)) * 2.0 ** np.arange(WIDTH))
    for name, matrix in (
        ("q", net.normal("wq", WIDTH, WIDTH)),
        ("k", net.normal("wk", WIDTH, WIDTH)),
        ("v", weights),
    ):
        net.add("MatMul", ["x", matrix], name)
        net.add("Reshape", [name, heads], f"{name}_heads")
        net.add(
            "Transpose", [f"{name}_heads"], f"{name}_turned", perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        )
    net.add("Mul", ["q_turned", net.hold("by", np.float32(0.25))], "q_scaled")
    net.add("MatMul", ["q_scaled", "k_turned"], "scores")
    net.add("Softmax", ["scores"], "shares", axis=-1)
    net.add("MatMul", ["shares", "v_turned"], "mixed")
    net.add("Transpose", ["mixed"], "back", perm=[0, 2, 1, 3])
    net.add("Reshape", ["back", net.hold("flat", np.array([1, 5, WIDTH]))], "joined")
    _project(net, "joined")
    return net.model({"x": TOKENS}, ["out"]), {"v", "out"}


def attention_value_shared_by_two_heads() -> Case:
    """One head of values serves two heads of queries: their factors must be the same."""
    net = Net()
    half = WIDTH // 2
    net.add("MatMul", ["x", net.normal("wq", WIDTH, WIDTH)], "q")
    net.add("Reshape", ["q", net.hold("heads", np.array([1, 5, 2, half]))], "q_heads")
    net.add("Transpose", ["q_heads"], "q_turned", perm=[0, 2, 1, 3])
    net.add("MatMul", ["x", net.normal("wk", WIDTH, half)], "k")
    net.add("Reshape", ["k", net.hold("one", np.array([1, 5, 1, half]))], "k_heads")
    net.add("Transpose", ["k_heads"], "k_turned", perm=[0, 2, 3, 1])
    net.add("MatMul", ["x", net.hold("wv", net.rng.normal(size=(WIDTH, half)) * [1, 8, 64])], "v")
    net.add("Reshape", ["v", "one"], "v_heads")
    net.add("Transpose", ["v_heads"], "v_turned", perm=[0, 2, 1, 3])
    net.add("Expand", ["v_turned", net.hold("twice", np.array([1, 2, 5, half]))], "v_twice")
    net.add("MatMul", ["q_turned", "k_turned"], "scores")
    net.add("Softmax", ["scores"], "shares", axis=-1)
    net.add("MatMul", ["shares", "v_twice"], "mixed")
    net.add("Transpose", ["mixed"], "back", perm=[0, 2, 1, 3])
    net.add("Reshape", ["back", net.hold("flat", np.array([1, 5, WIDTH]))], "joined")
    _project(net, "joined")
    return net.model({"x": TOKENS}, ["out"]), {"v", "out"}


def residual_add_of_two_layers() -> Case:
    net = Net()
    net.add("Conv", ["x", net.uneven("w0", WIDTH, WIDTH, 1, 1), net.normal("b0", WIDTH)], "left")
    net.add("Conv", ["x", net.uneven("w1", WIDTH, WIDTH, 1, 1)], "right")
    net.add("Add", ["left", "right"], "sum")
    net.add("Relu", ["sum"], "relu")
    net.add("Conv", ["relu", net.normal("w2", 4, WIDTH, 1, 1)], "out")
    return net.model({"x": IMAGE}, ["out"]), {"left", "right", "out"}


def concat_of_two_layers() -> Case:
    net = Net()
    net.add("Conv", ["x", net.uneven("w0", 4, WIDTH, 1, 1)], "left")
    net.add("Conv", ["x", net.uneven("w1", 2, WIDTH, 1, 1)], "right")
    net.add("Concat", ["left", "right"], "both", axis=1)
    net.add("Conv", ["both", net.normal("w2", 4, WIDTH, 1, 1)], "out")
    return net.model({"x": IMAGE}, ["out"]), {"left", "right", "out"}


def squeeze_and_excite() -> Case:
    net = Net()
    net.add("Conv", ["x", net.uneven("w0", WIDTH, WIDTH, 1, 1), net.normal("b0", WIDTH)], "first")
    net.add("Relu", ["first"], "relu")
    net.add("GlobalAveragePool", ["relu"], "mean")
    net.add("Conv", ["mean", net.normal("w1", WIDTH, WIDTH, 1, 1)], "gate")
    net.add("Sigmoid", ["gate"], "sigmoid")
    net.add("Mul", ["relu", "sigmoid"], "gated")
    net.add("Conv", ["gated", net.normal("w2", 4, WIDTH, 1, 1)], "out")
    return net.model({"x": IMAGE}, ["out"]), {"first", "gate", "out"}


def split_and_sliced() -> Case:
    net = Net()
    weight = net.rng.normal(size=(9, WIDTH, 1, 1)) * 4.0 ** np.arange(9)[:, None, None, None]
    net.add("Conv", ["x", net.hold("w0", weight)], "first")
    node = helper.make_node(
        "Split", ["first", net.hold("sizes", np.array([4, 5]))], ["a", "b"], name="split", axis=1
    )
    net.nodes.append(node)
    parts = [
        net.hold(name, np.array([number])) for name, number in (("from", 4), ("to", 0), ("axis", 1), ("by", -2))
    ]
    net.add("Slice", ["b", *parts], "some")
    net.add("Gather", ["a", net.hold("picked", np.array([2, 0]))], "others", axis=1)
    net.add("Conv", ["some", net.normal("w1", 4, 2, 1, 1)], "first_out")
    net.add("Conv", ["others", net.normal("w2", 4, 2, 1, 1)], "second_out")
    return net.model({"x": IMAGE}, ["first_out", "second_out"]), {"first", "first_out", "second_out"}


CASES: list[Callable[[], Case]] = [
    layer_norm,
    layer_norm_shared_by_three,
    decomposed_layer_norm,
    rms_norm,
    simplified_layer_norm,
    batch_norm,
    batch_norm_between_convs,
    instance_norm,
    conv_without_bias,
    conv_through_commuting_operations,
    depthwise_reader,
    grouped_conv_reader,
    transposed_conv_reader_and_writer,
    gemm_chain_both_ways_round,
    product_with_added_bias,
    gated_product,
    attention_value,
    attention_value_shared_by_two_heads,
    residual_add_of_two_layers,
    concat_of_two_layers,
    squeeze_and_excite,
    split_and_sliced,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_factors_are_taken_up(case: Callable[[], Case]) -> None:
    model, expected = case()
    done = apply_transform(SMOOTH, model, context_for(model))
    assert "bit for bit" in str(done.notes[-1]), done.notes
    assert {each.node for each in done.taken} == expected
    assert same_bits(model, done.model)
    # Powers of two cannot show that a factor was taken up twice or not at all: any others can.
    free = apply_transform(step("smooth", threshold=1.0), model, context_for(model))
    assert {each.node for each in free.taken} == expected


def blocked(op_type: str, **attributes: Any) -> Model:
    net = Net()
    net.add("Conv", ["x", net.uneven("w0", WIDTH, WIDTH, 1, 1)], "first")
    net.add(op_type, ["first"], "act", **attributes)
    net.add("Conv", ["act", net.normal("w1", 4, WIDTH, 1, 1)], "out")
    return net.model({"x": IMAGE}, ["out"], opset=20)


@pytest.mark.parametrize("op_type", ["Gelu", "Sigmoid", "HardSwish", "Tanh", "Softmax", "Elu", "Erf", "Exp"])
def test_what_does_not_commute_blocks(op_type: str) -> None:
    model = blocked(op_type)
    done = apply_transform(SMOOTH, model, context_for(model))
    assert (done.taken, done.model) == ((), model)
    assert "insert=true inserts a Mul" in str(done.notes[0])


def test_relu6_blocks_smoothing() -> None:
    net = Net()
    net.add("Conv", ["x", net.uneven("w0", WIDTH, WIDTH, 1, 1)], "first")
    net.add("Clip", ["first", net.hold("low", np.float32(0)), net.hold("high", np.float32(6))], "act")
    net.add("Conv", ["act", net.normal("w1", 4, WIDTH, 1, 1)], "out")
    model = net.model({"x": IMAGE}, ["out"])
    assert apply_transform(SMOOTH, model, context_for(model)).taken == ()


def test_one_branch_that_cannot_absorb_holds_the_others() -> None:
    net = Net()
    net.add("Conv", ["x", net.uneven("w0", WIDTH, WIDTH, 1, 1)], "left")
    net.add("Add", ["left", "x"], "sum")
    net.add("Conv", ["sum", net.normal("w2", 4, WIDTH, 1, 1)], "out")
    model = net.model({"x": IMAGE}, ["out"])
    assert apply_transform(SMOOTH, model, context_for(model)).taken == ()


def test_an_output_of_the_network_is_not_scaled() -> None:
    net = Net()
    net.add("Conv", ["x", net.uneven("w0", WIDTH, WIDTH, 1, 1)], "first")
    net.add("Conv", ["first", net.normal("w2", 4, WIDTH, 1, 1)], "out")
    model = net.model({"x": IMAGE}, ["first", "out"])
    assert apply_transform(SMOOTH, model, context_for(model)).taken == ()


@pytest.mark.parametrize(("op_type", "shape"), [("Gelu", IMAGE), ("Tanh", IMAGE)])
def test_a_mul_is_inserted_as_a_last_resort(op_type: str, shape: tuple[int, ...]) -> None:
    model = blocked(op_type)
    done = apply_transform(
        step("smooth", threshold=1.0, power_of_two=True, insert=True), model, context_for(model)
    )
    assert "bit for bit" in str(done.notes[-1])
    assert {each.node for each in done.taken} == {"first_smooth", "out_smooth", "first", "out"}
    assert same_bits(model, done.model)


def test_a_shared_weight_is_cloned() -> None:
    net = Net()
    shared = net.uneven("w", WIDTH, WIDTH, 1, 1)
    net.add("Conv", ["x", shared], "first")
    net.add("Conv", ["first", shared], "second")
    net.add("Conv", ["second", shared], "out")
    model = net.model({"x": IMAGE}, ["out"])
    done = apply_transform(SMOOTH, model, context_for(model))
    assert {each.node for each in done.taken} == {"first", "second", "out"}
    assert same_bits(model, done.model)


def test_dead_channels_keep_their_scale() -> None:
    net = Net()
    weight = net.rng.normal(size=(WIDTH, WIDTH, 1, 1))
    weight[2] = 0
    net.add("Conv", ["x", net.hold("w0", weight)], "first")
    reader = net.rng.normal(size=(4, WIDTH, 1, 1))
    reader[:, 4] = 0
    net.add("Conv", ["first", net.hold("w1", reader)], "out")
    model = net.model({"x": IMAGE}, ["out"])
    done = apply_transform(step("smooth", threshold=1.0), model, context_for(model))
    held = {each.name: np.frombuffer(each.raw_data, np.float32) for each in done.model.proto.graph.initializer}
    np.testing.assert_array_equal(held["w0"].reshape(weight.shape)[4], weight[4].astype(np.float32))
    np.testing.assert_array_equal(held["w1"].reshape(reader.shape)[:, 2], reader[:, 2].astype(np.float32))


def test_the_threshold_decides_who_takes_part() -> None:
    net = Net()
    net.add("LayerNormalization", ["x", net.hold("even", np.ones(WIDTH))], "first", axis=-1)
    _project(net, "first", "plain")
    net.add("LayerNormalization", ["x", _gain(net, "g", WIDTH)], "second", axis=-1)
    _project(net, "second", "loud")
    model = net.model({"x": TOKENS}, ["plain", "loud"])
    done = apply_transform(step("smooth", threshold=0.3), model, context_for(model))
    assert {each.node for each in done.taken} == {"second", "loud"}
    assert any("read no outliers by the threshold: 'plain'" in str(note) for note in done.notes)


def any_factors(model: Model) -> Model:
    """The network with a factor for every channel that is said to be free."""
    found = map_scaling(model, context_for(model, count=1).samples)
    roots = {int(root) for channels in found.channels.values() for root in found.roots(channels).ravel()} - {0}
    assert roots
    return rescaled(model, found, {root: float(2.0 ** (1 + root % 3)) for root in sorted(roots)})


def test_of_two_factors_one_is_held() -> None:
    net = Net()
    net.add("Conv", ["x", net.normal("w0", WIDTH, WIDTH, 1, 1)], "left")
    net.add("Conv", ["x", net.normal("w1", WIDTH, WIDTH, 1, 1)], "right")
    net.add("Mul", ["left", "right"], "both")
    net.add("Conv", ["both", net.normal("w2", 4, WIDTH, 1, 1)], "out")
    model = net.model({"x": IMAGE}, ["out"])
    assert same_bits(model, any_factors(model))


def test_a_gain_behind_a_layer_and_in_front_of_what_blocks() -> None:
    net = Net()
    net.add("Conv", ["x", net.normal("w0", WIDTH, WIDTH, 1, 1)], "first")
    net.add("Mul", ["first", net.normal("gain", WIDTH, 1, 1)], "scaled")
    net.add("Sigmoid", ["scaled"], "act")
    net.add("Conv", ["act", net.normal("w1", WIDTH, WIDTH, 1, 1)], "second")
    net.add("Conv", ["second", net.normal("w2", 4, WIDTH, 1, 1)], "out")
    model = net.model({"x": IMAGE}, ["out"])
    assert same_bits(model, any_factors(model))
