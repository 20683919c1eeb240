"""The parts that interventions on devices are made of."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmarks.planted.device import Device, few_samples
from benchmarks.planted.subject import subject
from hypothesis import assume, given
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.diagnosis.causes.device_tensors import StaleTensor, robust_line, slice_order
from roundoff.diagnosis.devices.expectation import Expected, Golden, in_half, is_emulated
from roundoff.diagnosis.devices.proof import pattern
from roundoff.diagnosis.devices.replay import Pair
from roundoff.diagnosis.devices.study import diagnose_device
from roundoff.diagnosis.devices.suspects import DeviceSuspect, LocalError, fitted_input
from roundoff.samples.sample_set import ArraySamples
from tests.diagnosis.devices.devices import HeldDumps

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.floats(0.2, 5), st.floats(-3, 3))
def test_a_line_is_found_although_ends_are_cut_off(seed: int, gain: float, offset: float) -> None:
    exact = np.random.default_rng(seed).standard_normal(400)
    line = gain * exact + offset
    found = np.clip(line, np.quantile(line, 0.1), np.quantile(line, 0.9))
    fitted = robust_line(exact, found)
    assert fitted is not None
    assert fitted == pytest.approx((gain, offset), abs=1e-6)


def test_no_line_through_too_few_or_equal_values() -> None:
    assert robust_line(np.arange(3.0), np.arange(3.0)) is None
    assert robust_line(np.ones(100), np.arange(100.0)) is None


@given(SEEDS, st.integers(0, 2))
def test_slices_in_another_order_are_told(seed: int, axis: int) -> None:
    rng = np.random.default_rng(seed)
    exact = rng.standard_normal((4, 5, 6))
    order = rng.permutation(exact.shape[axis])
    assume(not np.array_equal(order, np.arange(len(order))))
    found = slice_order([exact], [np.take(exact, order, axis=axis)], axis)
    assert found is not None
    assert np.array_equal(found, order)


def test_slices_in_their_places_are_not() -> None:
    exact = np.random.default_rng(0).standard_normal((4, 5))
    assert slice_order([exact], [exact], 0) is None
    # Slices of zeros are alike, and stay where they are.
    exact[1:3] = 0
    assert slice_order([exact], [exact.copy()], 0) is None


def test_the_span_of_a_tensor_ends_at_known_ones() -> None:
    golden = Golden(subject("plain", 0).model)
    span = golden.span("conv3/relu_out", {"conv2/relu_out"})
    assert span.nodes == ("conv3/relu", "conv3", "pool1")
    assert span.reads == ("conv2/relu_out",)
    assert span.hidden == ("conv3_out", "pool1_out")


def test_what_depends_on_a_tensor() -> None:
    golden = Golden(subject("two-sided", 0).model)
    behind = golden.behind("eye/conv1_out")
    assert {"join/concat_out", "regressor_out"} <= behind
    assert "sensor/dense1_out" not in behind


def test_a_part_is_computed_from_what_it_is_given() -> None:
    network = subject("plain", 0)
    golden = Golden(network.model)
    given_ = {"conv4/relu_out": network.values["conv4/relu_out"][:1]}
    made = golden.compute("conv5/relu_out", given_)
    assert np.allclose(made, network.values["conv5/relu_out"][:1], atol=1e-4)


def pairs_of(exact: Array, found: Array) -> tuple[Pair, ...]:
    return (Pair(found, exact, Expected(np.asarray(0.01), 1e-6)),)


def test_patterns_of_errors() -> None:
    exact = np.random.default_rng(0).standard_normal((1, 8, 10, 10))
    one = exact.copy()
    one[:, 3] += 1
    assert "channel 3 of 8" in str(pattern(pairs_of(exact, one)))
    border = exact.copy()
    border[..., 0] += 1
    assert "its padding" in str(pattern(pairs_of(exact, border)))
    moved = np.roll(exact, (1, 0), (-2, -1))
    assert "shifted by +1 rows and +0 columns" in str(pattern(pairs_of(exact, moved)))
    assert str(pattern(pairs_of(exact, exact + 1))) == "100.0 % of its values are off by more than that, offset +1"


def test_squares_that_do_not_fit_half_precision() -> None:
    rng = np.random.default_rng(0)
    x, gain, shift = rng.standard_normal((2, 3, 16)), np.ones(16), np.zeros(16)
    usual = in_half("LayerNormalization", {"axis": -1}, [x, gain, shift])
    assert usual is not None
    centred = x - x.mean(axis=-1, keepdims=True)
    assert np.allclose(usual, centred / centred.std(axis=-1, keepdims=True), atol=0.02)
    large = in_half("LayerNormalization", {"axis": -1}, [x * 1000, gain, shift])
    assert large is not None
    assert np.abs(large).max() == 0


def test_means_and_softmax_in_half_precision() -> None:
    pooled = in_half("GlobalAveragePool", {}, [np.full((1, 2, 8, 8), 2000.0)])
    assert pooled is not None
    assert np.isinf(pooled).all()
    risen = in_half("Softmax", {}, [np.array([[0.0, 20.0]])])
    assert risen is not None
    assert np.isnan(risen).any()
    assert in_half("Conv", {}, [np.zeros(3)]) is None
    assert not is_emulated("Conv")


@given(SEEDS, st.floats(0.2, 4), st.floats(-1, 1))
def test_gain_and_offset_of_an_input_follow_from_what_is_computed(seed: int, gain: float, offset: float) -> None:
    rng = np.random.default_rng(seed)
    given_, weight = rng.standard_normal((64, 4)), rng.standard_normal((4, 6))

    def computed(values: Array) -> Array:
        return np.asarray(np.maximum(values @ weight + 0.5, 0))

    fitted = fitted_input(computed, given_, computed(given_ * gain + offset))
    assert fitted == pytest.approx((gain, offset), abs=0.05)


def test_no_gain_of_an_input_without_values() -> None:
    assert fitted_input(lambda x: x, np.ones(5), np.ones(5)) is None
    assert fitted_input(lambda x: x, np.arange(5.0), np.full(5, np.nan)) is None


def test_an_operation_with_several_results_is_judged_on_a_float_device() -> None:
    network = subject("shuffle", 0)
    split = [node for node in network.model.proto.graph.node if len(node.output) > 1]
    assert split
    rows = Device(network, half=True).run(few_samples(network))
    found = diagnose_device(network.model, ArraySamples(few_samples(network)), HeldDumps(rows))
    assert found.kind == "healthy"


def test_what_is_only_nearer_to_another_sample_is_not_stale() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((2, 200)).astype(np.float32)
    case: Any = SimpleNamespace(
        inputs=(), indices=(0, 1), readout=SimpleNamespace(samples=(("0", "0"), ("1", "1")))
    )
    for found, stale in ((first, True), (first + np.float32(0.1) * second, False)):
        expected = Expected(np.asarray(1e-2), 1e-6)
        pairs = Pair(first, first, expected), Pair(found, second, expected)
        error = LocalError()
        for each in pairs:
            error.add(each.exact, each.found, expected)
        suspect = DeviceSuspect("x", ("node",), error, "flows on", pairs, (0, 1))
        assert StaleTensor().signal(case, suspect) is not None
        assert (StaleTensor().intervene(case, suspect) is not None) == stale
