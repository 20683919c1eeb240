"""Which noise a layer makes, by its kind and by what shares a scale."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.graph.weights import Weights
from roundoff.quantize.transforms.equalize import importance_of, weight_noise
from roundoff.quantize.transforms.factors import channel_statistics
from roundoff.quantize.transforms.rules import map_scaling
from tests.quantize.transforms.nets import Net, context_for

KINDS = {"dense": (6, 6, 1), "grouped": (6, 3, 2), "depthwise": (6, 1, 6)}


def expected(
    weight: Array, reads: Array, energy: Array, counts: Array, factors: tuple[Array, Array], rows: bool
) -> float:
    """The noise by its definition: squared steps times the energy of inputs times what noise in outputs counts."""
    into, out = factors
    scaled = np.abs(weight).reshape(*weight.shape[:2], -1).max(axis=-1) * into[reads] / out[:, None]
    # The mean of high power that stands for the largest.
    powers = scaled**16
    steps = (powers.sum(axis=1) if rows else np.full(len(weight), powers.sum())) ** (1 / 16)
    taps = weight[0, 0].size
    return float((steps**2 * taps * (energy / into[reads] ** 2).sum(axis=1) * counts * out**2).sum())


@pytest.mark.parametrize("per_output", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000))
def test_it_is_what_its_definition_says(kind: str, per_output: bool, seed: int) -> None:
    outputs, inputs, groups = KINDS[kind]
    net = Net(seed)
    net.add("Conv", ["x", net.uneven("w0", 6, 3, 1, 1)], "first")
    net.add("Relu", ["first"], "act")
    net.add("Conv", ["act", net.uneven("w1", outputs, inputs, 3, 3)], "middle", group=groups)
    net.add("Conv", ["middle", net.normal("w2", 4, 6, 1, 1)], "out")
    model = net.model({"x": (1, 3, 6, 6)}, ["out"])
    context = context_for(model)
    found = map_scaling(model, context.samples)
    seen = channel_statistics(model, context, {layer.source: layer.axis for layer in found.layers}, title="")
    importance = importance_of(found, Weights(model), seen)
    layer = found.layers[1]
    weight = Weights(model)["w1"].astype(np.float64)
    terms = list(weight_noise(found, layer, weight, importance=importance, unit=1.0, per_output=per_output))

    def noise(logarithms: Array) -> float:
        return sum(term.add_to(logarithms, np.zeros(found.size)) for term in terms)

    rng = np.random.default_rng(seed)
    logarithms = rng.normal(size=found.size)
    logarithms[0] = 0
    reads = np.searchsorted(layer.inputs, layer.reads)
    into, out = (np.exp(logarithms[found.roots(each)]) for each in (layer.inputs, layer.writes[:, 0]))
    energy, counts = importance.energy["middle"], importance.at_result["middle"][:, 0]
    wanted = expected(weight, reads, energy, counts, (into, out), per_output)
    if kind == "depthwise" and per_output:
        assert terms == []
        still = expected(weight, reads, energy, counts, (np.ones(6), np.ones(6)), per_output)
        np.testing.assert_allclose(wanted, still, rtol=1e-9)
    else:
        np.testing.assert_allclose(noise(logarithms), wanted, rtol=1e-4)
