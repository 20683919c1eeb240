"""Smoothing: factors, strengths, and what a transformer with outlier channels gains."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.steps import apply_transform
from roundoff.quantize.targets.files import load_target
from roundoff.quantize.transforms.smooth import (
    Balance,
    ChannelReader,
    best_alpha,
    expected_noise,
    smoothing_factors,
)
from tests.quantize.transforms.nets import Net, context_for, samples_for, step

WIDTH, TOKENS, HEADS = 16, 12, 2


def transformer() -> Model:
    """One block of attention and a product, with two channels of its normalizations far louder than others."""
    net = Net(3)
    for name in ("norm1", "norm2"):
        gain = net.rng.uniform(0.5, 1.0, WIDTH)
        gain[[3, 11]] = 60.0, 90.0
        net.hold(f"{name}_gain", gain)
    net.add("LayerNormalization", ["x", "norm1_gain", net.normal("norm1_bias", WIDTH)], "norm1", axis=-1)
    # What is loud there is weighed little, as in trained networks: it does not drown the rest.
    quiet = np.ones((WIDTH, 1))
    quiet[[3, 11]] = 1 / 60
    heads = net.hold("heads", np.array([1, TOKENS, HEADS, WIDTH // HEADS]))
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        net.add(
            "MatMul", ["norm1", net.hold(f"{name}_w", net.rng.normal(size=(WIDTH, WIDTH)) * quiet * 0.3)], name
        )
        net.add("Reshape", [name, heads], f"{name}_heads")
        net.add("Transpose", [f"{name}_heads"], f"{name}_turned", perm=order)
    net.add("MatMul", ["q_turned", "k_turned"], "scores")
    net.add("Softmax", ["scores"], "shares", axis=-1)
    net.add("MatMul", ["shares", "v_turned"], "mixed")
    net.add("Transpose", ["mixed"], "back", perm=[0, 2, 1, 3])
    net.add("Reshape", ["back", net.hold("flat", np.array([1, TOKENS, WIDTH]))], "joined")
    net.add("MatMul", ["joined", net.normal("o_w", WIDTH, WIDTH)], "attended")
    net.add("Add", ["attended", "x"], "residual")
    net.add("LayerNormalization", ["residual", "norm2_gain", net.normal("norm2_bias", WIDTH)], "norm2", axis=-1)
    net.add("MatMul", ["norm2", net.hold("up_w", net.rng.normal(size=(WIDTH, 32)) * quiet * 0.3)], "up")
    net.add("Relu", ["up"], "relu")
    net.add("MatMul", ["relu", net.normal("down_w", 32, WIDTH)], "down")
    return net.model({"x": (1, TOKENS, WIDTH)}, ["down"])


@pytest.mark.parametrize("options", [{}, {"alpha": "auto"}, {"power_of_two": True}])
def test_a_transformer_with_outlier_channels_gains(options: dict[str, str | bool]) -> None:
    model = transformer()
    done = apply_transform(step("smooth", **options), model, context_for(model, "generic-int8", count=6))
    assert {"norm1", "q", "k", "v", "norm2", "up"} <= {each.node for each in done.taken}
    before, after = (
        quantize_model(
            each, samples_for(model, count=6), QuantizeSettings(load_target("generic-int8"))
        ).best.sqnr_db
        for each in (model, done.model)
    )
    assert after > before + 6


def balance(peaks: Array, matrix: Array, *, per_channel: bool = True) -> Balance:
    places = np.broadcast_to(np.arange(peaks.size), matrix.shape)
    rows = np.broadcast_to(np.arange(len(matrix))[:, None], matrix.shape)
    return Balance(peaks.size, (ChannelReader(np.arange(peaks.size), peaks, places, matrix, rows),), per_channel)


@given(
    seed=st.integers(0, 1000),
    alpha=st.floats(0, 1),
)
def test_factors_follow_the_formula(seed: int, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    peaks, matrix = rng.uniform(0.1, 10, 5), rng.uniform(0.1, 10, (3, 5))
    factors = smoothing_factors(balance(peaks, matrix), alpha)
    expected = peaks**alpha / matrix.max(axis=0) ** (1 - alpha)
    np.testing.assert_allclose(factors / factors[0], expected / expected[0], rtol=1e-9)
    np.testing.assert_allclose(np.log(factors).mean(), 0, atol=1e-9)


def test_readers_share_the_larger_weight() -> None:
    matrices = np.array([[1.0, 4.0]]), np.array([[9.0, 1.0]])
    numbers = np.arange(2)
    readers = tuple(
        ChannelReader(numbers, np.ones(2), numbers[None], matrix, np.zeros((1, 2), int)) for matrix in matrices
    )
    factors = smoothing_factors(Balance(2, readers, per_channel=True), 0.5)
    np.testing.assert_allclose(factors[0] / factors[1], np.sqrt(4 / 9))


def test_channels_without_signal_or_weight_have_the_factor_one() -> None:
    factors = smoothing_factors(balance(np.array([0.0, 4.0, 1.0]), np.array([[1.0, 1.0, 0.0]])), 0.5)
    np.testing.assert_allclose(factors, 1)


@given(seed=st.integers(0, 1000))
def test_the_best_strength_leaves_the_least_noise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    peaks = 10.0 ** rng.uniform(-2, 2, 6)
    found = balance(peaks, np.abs(rng.normal(size=(4, 6))), per_channel=bool(seed % 2))
    best = best_alpha(found)
    noise = {alpha: expected_noise(found, smoothing_factors(found, alpha)) for alpha in (0.3, 0.5, best, 0.85)}
    assert min(noise, key=lambda alpha: noise[alpha]) == best or noise[best] == min(noise.values())
