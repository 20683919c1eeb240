"""Arithmetic on shapes and indices as exporters write it: scalars, empty tensors, integers carry no channels."""

from collections.abc import Callable

import numpy as np
import pytest
from onnx import TensorProto

from roundoff.graph.load import Model
from roundoff.quantize.transforms.factors import rescaled
from roundoff.quantize.transforms.rules import map_scaling
from tests.quantize.transforms.nets import Net, context_for, same_bits, step, transformed_alike

WIDE = 6
Plumbing = Callable[[Net, str], str]
"""Adds nodes behind a tensor [2, 3, WIDE] and gives a tensor whose last axis holds the same channels."""


def integers(net: Net, name: str, *values: int) -> str:
    return net.hold(name, np.array(values, np.int64))


def scalar(net: Net, name: str, value: int) -> str:
    return net.hold(name, np.int64(value))


def reshaped_by_its_own_sizes(net: Net, source: str) -> str:
    """``x.view(x.size(0), x.size(1), -1)``."""
    sizes = []
    net.add("Shape", [source], "sizes")
    for axis in (0, 1):
        net.add("Gather", ["sizes", scalar(net, f"index{axis}", axis)], f"size{axis}", axis=0)
        sizes.append(net.add("Unsqueeze", [f"size{axis}", integers(net, f"front{axis}", 0)], f"vector{axis}"))
    net.add("Concat", [*sizes, integers(net, "rest", -1)], "wanted", axis=0)
    return net.add("Reshape", [source, "wanted"], "reshaped")


def reshaped_by_a_product(net: Net, source: str) -> str:
    """Tokens of all samples in one row: products of scalars."""
    net.add("Shape", [source], "sizes")
    net.add("Gather", ["sizes", scalar(net, "zero", 0)], "batch", axis=0)
    net.add("Gather", ["sizes", scalar(net, "one", -2)], "tokens", axis=0)
    net.add("Mul", ["batch", "tokens"], "rows")
    net.add("Add", ["rows", scalar(net, "nothing", 0)], "rows0")
    net.add("Unsqueeze", ["rows0", integers(net, "front", 0)], "vector")
    net.add("Concat", ["vector", integers(net, "wide", WIDE)], "wanted", axis=0)
    return net.add("Reshape", [source, "wanted"], "reshaped")


def sliced_shape(net: Net, source: str) -> str:
    """Sizes by Slice and Squeeze, back to a vector by Reshape; an empty slice among the parts."""
    net.add("Shape", [source], "sizes")
    net.add("Slice", ["sizes", integers(net, "a", 0), integers(net, "b", 1)], "leading")
    net.add("Squeeze", ["leading", integers(net, "front", 0)], "number")
    net.add("Reshape", ["number", integers(net, "one", 1)], "vector")
    net.add("Slice", ["sizes", integers(net, "c", 1), integers(net, "d", 1)], "empty")
    net.add("Slice", ["sizes", integers(net, "e", 1), integers(net, "f", 99)], "others")
    net.add("Concat", ["vector", "empty", "others"], "wanted", axis=0)
    return net.add("Reshape", [source, "wanted"], "reshaped")


def scaled_by_a_size(net: Net, source: str) -> str:
    """Division by the root of a size, a scalar that becomes float only then."""
    net.add("Shape", [source], "sizes")
    net.add("Gather", ["sizes", scalar(net, "last", 2)], "width", axis=0)
    net.add("Cast", ["width"], "float_width", to=TensorProto.FLOAT)
    net.add("Sqrt", ["float_width"], "root")
    return net.add("Div", [source, "root"], "scaled")


def gain_of_integers(net: Net, source: str) -> str:
    """A constant vector of integers is no gain that factors could go into."""
    net.add("Shape", [source], "sizes")
    net.add("Mul", ["sizes", integers(net, "times", 1, 1, 1)], "product")
    net.add("Div", ["product", integers(net, "over", 1, 1, 1)], "quotient")
    return net.add("Reshape", [source, "quotient"], "reshaped")


def one_token(net: Net, source: str) -> str:
    """The first token, as a classifier takes it: a scalar index on axis 1."""
    return net.add("Gather", [source, scalar(net, "token", 0)], "token0", axis=1)


def one_sample_and_token(net: Net, source: str) -> str:
    net.add("Gather", [source, scalar(net, "sample", 1)], "sample1", axis=0)
    net.add("Gather", ["sample1", scalar(net, "token", -1)], "token2", axis=0)
    return net.add("Unsqueeze", ["token2", integers(net, "front", 0)], "row")


def expanded_mask(net: Net, source: str) -> str:
    """A mask of the tensor's own shape, of a scalar: Expand, Where."""
    net.add("Shape", [source], "sizes")
    net.add("Size", [source], "count")
    net.add("Greater", ["count", scalar(net, "few", 1)], "many")
    net.add("Expand", ["many", "sizes"], "taken")
    return net.add("Where", ["taken", source, net.hold("nothing", np.float32(0))], "masked")


def counted_rows(net: Net, source: str) -> str:
    """Range, Reduce and Tile on integers."""
    net.add("Shape", [source], "sizes")
    net.add("Gather", ["sizes", scalar(net, "one", 1)], "tokens", axis=0)
    net.add("Range", [scalar(net, "begin", 0), "tokens", scalar(net, "by", 1)], "places")
    net.add("ReduceMax", ["places"], "last", keepdims=0)
    net.add("Tile", ["places", integers(net, "twice", 2)], "more")
    net.add("Gather", ["more", "last"], "place", axis=0)
    return net.add("Gather", [source, "place"], "token", axis=1)


FORMS = (
    reshaped_by_its_own_sizes,
    reshaped_by_a_product,
    sliced_shape,
    scaled_by_a_size,
    gain_of_integers,
    one_token,
    one_sample_and_token,
    expanded_mask,
    counted_rows,
)


def plumbed(form: Plumbing) -> Model:
    """Two layers with uneven channels between them, and plumbing."""
    net = Net(3)
    net.add("MatMul", ["x", net.uneven("w0", WIDE, WIDE)], "first")
    # Outputs of uneven size, too: the first axis of the weight is that of its inputs.
    net.add("Mul", ["first", net.hold("gain", 2.0 ** np.arange(-3, WIDE - 3))], "spread")
    net.add("Relu", ["spread"], "act")
    net.add("MatMul", [form(net, "act"), net.normal("w1", WIDE, 4)], "out")
    return net.model({"x": (2, 3, WIDE)}, ["out"])


@pytest.mark.parametrize("name", ["equalize", "smooth"])
@pytest.mark.parametrize("form", FORMS)
def test_channels_are_followed_past_plumbing(form: Plumbing, name: str) -> None:
    done = transformed_alike(plumbed(form), step(name))
    assert {"first", "out"} <= {each.node for each in done.taken}, done.notes


@pytest.mark.parametrize("form", FORMS)
def test_any_factors_are_taken_up(form: Plumbing) -> None:
    model = plumbed(form)
    found = map_scaling(model, context_for(model, count=1).samples)
    free = sorted({int(root) for layer in found.layers for root in found.roots(layer.inputs)} - {0})
    assert len(free) >= WIDE
    rng = np.random.default_rng(0)
    changed = rescaled(model, found, {root: float(2.0 ** rng.integers(1, 4)) for root in free})
    assert changed.proto.SerializeToString() != model.proto.SerializeToString()
    assert same_bits(model, changed)


def held(op_type: str) -> Model:
    """Layers around an operation in a form in which channels cannot be followed through it."""
    net = Net(4)
    net.add("MatMul", ["x", net.uneven("w0", WIDE, WIDE)], "first")
    if op_type == "BatchNormalization":
        # A vector: samples of one channel.
        net.add("Reshape", ["first", integers(net, "flat", -1)], "vector")
        parts = [net.hold(f"bn{index}", np.ones(1)) for index in range(4)]
        net.add("BatchNormalization", ["vector", *parts], "normal")
        net.add("Reshape", ["normal", integers(net, "back", 2, 3, WIDE)], "behind")
    elif op_type == "Gather":
        net.add("Gather", ["first", net.hold("nobody", np.zeros(0, np.int64))], "nothing", axis=2)
        net.add("Concat", ["first", "nothing"], "behind", axis=2)
    else:
        net.add("Mul", [net.hold("left", np.ones(())), net.hold("right", np.ones(()))], "one")
        net.add("Mul", ["first", "one"], "behind")
    net.add("MatMul", ["behind", net.normal("w1", WIDE, 4)], "out")
    return net.model({"x": (2, 3, WIDE)}, ["out"])


@pytest.mark.parametrize("op_type", ["BatchNormalization", "Gather", "Mul"])
def test_odd_forms_end_in_a_note_at_worst(op_type: str) -> None:
    transformed_alike(held(op_type), step("equalize"))
    transformed_alike(held(op_type), step("smooth", threshold=1.0))
