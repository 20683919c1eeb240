"""Random chains: whatever takes part, the network computes what it did."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.graph.load import Model
from roundoff.quantize.transforms.factors import rescaled
from roundoff.quantize.transforms.rules import map_scaling
from tests.quantize.transforms.nets import Net, context_for, same_bits, step, transformed_alike

LAYERS = ("conv", "depthwise", "grouped", "transposed")
BETWEEN = (
    "Relu",
    "LeakyRelu",
    "MaxPool",
    "AveragePool",
    "Sigmoid",
    "relu6",
    "norm",
    "residual",
    "branch",
    "none",
    "scale",
    "gain",
    "gated",
)
SIZE = 8


@st.composite
def chains(draw: Any) -> Model:
    net = Net(draw(st.integers(0, 1000)))
    current, channels = "x", 4
    for index in range(draw(st.integers(2, 5))):
        before = current
        current, channels = _layer(net, draw(st.sampled_from(LAYERS)), current, channels, index)
        current = _between(net, draw(st.sampled_from(BETWEEN)), current, before, channels, index)
    net.add("Conv", [current, net.normal("last_w", 3, channels, 1, 1)], "out")
    return net.model({"x": (1, 4, SIZE, SIZE)}, ["out"])


def _layer(net: Net, kind: str, source: str, channels: int, index: int) -> tuple[str, int]:
    name = f"layer{index}"
    if kind == "depthwise":
        weight, more = net.uneven(f"{name}_w", channels, 1, 3, 3), {"group": channels, "pads": [1] * 4}
    elif kind == "grouped":
        weight, more = net.uneven(f"{name}_w", channels, channels // 2, 1, 1), {"group": 2}
    elif kind == "transposed":
        weight, more = net.uneven(f"{name}_w", channels, channels, 1, 1), {}
    else:
        weight, more = net.uneven(f"{name}_w", 4, channels, 3, 3), {"pads": [1] * 4}
    op_type = "ConvTranspose" if kind == "transposed" else "Conv"
    inputs = [source, weight]
    if index % 2:
        inputs.append(net.normal(f"{name}_b", 4))
    return net.add(op_type, inputs, name, **more), 4


def _between(  # noqa: PLR0911 - one for each kind
    net: Net, kind: str, current: str, before: str, channels: int, index: int
) -> str:
    name = f"between{index}"
    if kind == "none":
        return current
    if kind in ("MaxPool", "AveragePool"):
        return net.add(kind, [current], name, kernel_shape=[3, 3], pads=[1] * 4)
    if kind == "relu6":
        low, high = net.hold(f"{name}_low", np.float32(0)), net.hold(f"{name}_high", np.float32(6))
        return net.add("Clip", [current, low, high], name)
    if kind == "norm":
        parts = [
            net.uneven(f"{name}_g", channels),
            net.normal(f"{name}_b", channels),
            net.normal(f"{name}_m", channels),
        ]
        return net.add("BatchNormalization", [current, *parts, net.hold(f"{name}_v", np.ones(channels))], name)
    if kind in ("scale", "gain"):
        factor = (
            net.hold(f"{name}_f", np.float32(0.5)) if kind == "scale" else net.uneven(f"{name}_f", channels, 1, 1)
        )
        return net.add("Mul", [current, factor], name)
    if kind == "gated":
        return net.add("Mul", [current, net.add("Sigmoid", [current], f"{name}_sigmoid")], name)
    if kind in ("residual", "branch"):
        other = before
        if kind == "branch":
            other = net.add("Conv", [current, net.normal(f"{name}_w", channels, channels, 1, 1)], f"{name}_branch")
        return net.add("Add", [other, current], name)
    return net.add(kind, [current], name)


@pytest.mark.parametrize("name", ["smooth", "equalize"])
@settings(max_examples=20, deadline=None)
@given(model=chains())
def test_powers_of_two_keep_every_bit(name: str, model: Model) -> None:
    more = {"threshold": 1.0} if name == "smooth" else {"iterations": 20}
    done = transformed_alike(model, step(name, power_of_two=True, **more))
    assert not any("undone" in str(note) for note in done.notes)
    assert same_bits(model, done.model)
    # Also where values go beyond all that was seen: limits of Relu6 are exact, not observed.
    assert same_bits(model, done.model, scale=64.0)


@pytest.mark.parametrize("name", ["smooth", "equalize", "explicit_bias"])
@settings(max_examples=25, deadline=None)
@given(model=chains())
def test_any_factors_keep_the_function(name: str, model: Model) -> None:
    options = {"smooth": {"threshold": 1.0, "alpha": "auto"}, "equalize": {"iterations": 20}, "explicit_bias": {}}
    done = transformed_alike(model, step(name, **options[name]))  # type: ignore[arg-type]
    assert not any("undone" in str(note) for note in done.notes)


@settings(max_examples=30, deadline=None)
@given(model=chains(), seed=st.integers(0, 1000))
def test_any_factor_of_any_channel_that_is_free_is_taken_up(model: Model, seed: int) -> None:
    """Not only those that a transform would choose."""
    context = context_for(model, count=1)
    found = map_scaling(model, context.samples)
    rng = np.random.default_rng(seed)
    roots = {int(root) for channels in found.channels.values() for root in found.roots(channels).ravel()} - {0}
    changed = rescaled(model, found, {root: float(2.0 ** rng.integers(-4, 5)) for root in sorted(roots)})
    assert same_bits(model, changed)


@settings(max_examples=10, deadline=None)
@given(model=chains())
def test_the_same_input_gives_the_same_bits(model: Model) -> None:
    first, second = (
        transformed_alike(model, step("equalize", iterations=20), context_for(model)) for _ in range(2)
    )
    assert first.model.proto.SerializeToString() == second.model.proto.SerializeToString()
    assert (first.taken, first.notes) == (second.taken, second.notes)
