"""Balancing inputs and weights."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from roundoff.core.tensors import Array
from roundoff.graph.preparation.steps import prepare
from roundoff.vendors.amct.layers import find_layers
from roundoff.vendors.amct.quantizers import balance_factors, balanced_model, weight_peaks
from tests.graph.quantized_nets import run_model
from tests.models import loaded
from tests.vendors.amct.support import VECTORS, batches, mixed_net, vectors


@vectors
def test_factors_are_the_vendors() -> None:
    known = json.loads((VECTORS / "algo_golden_vectors.json").read_text(encoding="utf-8"))
    act, wts = (np.abs(known["dmq_input"][f"{side}_cin_by_n"]).max(axis=1) for side in ("act", "wts"))
    for case in known["dmq"]:
        found = balance_factors(act, wts, case["migration_strength"])
        np.testing.assert_allclose(found, case["tensor_balance_factor"], rtol=1e-6)


@given(
    arrays(np.float64, 5, elements=st.floats(0, 1e4)),
    arrays(np.float64, 5, elements=st.floats(0, 1e4)),
    st.floats(0.2, 0.8),
)
def test_factors_are_positive_and_finite(act: Array, wts: Array, strength: float) -> None:
    factors = balance_factors(act, wts, strength)
    assert np.all(np.isfinite(factors))
    assert np.all(factors > 0)
    assert np.all(factors[(act == 0) & (wts == 0)] == 1)


@pytest.mark.parametrize("side", [0, 1])
def test_a_side_that_is_zero_gives_ones(side: int) -> None:
    values = [np.ones(3), np.ones(3)]
    values[side] = np.zeros(3)
    np.testing.assert_array_equal(balance_factors(values[0], values[1], 0.5), np.ones(3))


def test_a_balanced_model_computes_the_same(tmp_path: Path) -> None:
    prepared = prepare(loaded(mixed_net(), tmp_path))
    layers = find_layers(prepared.model, prepared.origins)
    rng = np.random.default_rng(0)
    counts = {"conv1": 4, "grouped": 6, "up": 6, "product": 5, "classifier": 7}
    factors = {name: rng.uniform(0.2, 5, count).astype(np.float32) for name, count in counts.items()}
    balanced = balanced_model(prepared.model, layers, factors)
    feed = {"image": batches(1)[0]}
    np.testing.assert_allclose(
        run_model(balanced, feed)[0], run_model(prepared.model, feed)[0], rtol=1e-4, atol=1e-5
    )
    assert "grouped.mul" in [node.name for node in balanced.proto.graph.node]
    again = find_layers(balanced, prepared.origins)
    assert set(again) == set(layers)
    with pytest.raises(ValueError, match="3 balance factors for 4 input channels"):
        balanced_model(prepared.model, layers, {"conv1": np.ones(3, np.float32)})


def test_weights_of_groups_are_looked_at_apart(tmp_path: Path) -> None:
    prepared = prepare(loaded(mixed_net(), tmp_path))
    layer = find_layers(prepared.model, prepared.origins)["grouped"]
    values = np.zeros((6, 3, 3, 3))
    values[:3, 1], values[3:, 2] = 2, 5
    np.testing.assert_array_equal(weight_peaks(values, layer), [0, 2, 0, 0, 0, 5])
