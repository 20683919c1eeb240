"""The model of noise and the search for its least value."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.quantize.transforms.equalize import DenseNoise, NoiseTerm, PairedNoise, least_noise

CHANNELS = 8


def terms(seed: int) -> list[NoiseTerm]:
    rng = np.random.default_rng(seed)
    inputs, outputs = rng.integers(0, CHANNELS, 4), rng.integers(0, CHANNELS, 3)
    return [
        *(
            DenseNoise.of(
                np.abs(rng.normal(size=(3, 4))) * 10.0 ** rng.integers(-2, 3, (3, 1)),
                inputs=inputs,
                outputs=outputs,
                energy=rng.uniform(0, 2, 4),
                gain=rng.uniform(0, 2, 3),
                per_output=per_output,
            )
            for per_output in (False, True)
        ),
        PairedNoise(
            rng.uniform(0, 5, 6),
            rng.integers(0, CHANNELS, 6),
            rng.integers(0, CHANNELS, 6),
            rng.uniform(0, 1, 6),
        ),
    ]


@given(seed=st.integers(0, 10_000))
def test_slopes_are_those_of_the_noise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    at = rng.normal(size=CHANNELS)
    for term in terms(seed):
        slope = np.zeros(CHANNELS)
        value = term.add_to(at, slope)
        for channel in range(CHANNELS):
            step = np.zeros(CHANNELS)
            step[channel] = 1e-5
            ignored = np.zeros(CHANNELS)
            expected = (term.add_to(at + step, ignored) - term.add_to(at - step, ignored)) / 2e-5
            np.testing.assert_allclose(slope[channel], expected, rtol=1e-3, atol=1e-4 * value)


@given(seed=st.integers(0, 10_000))
def test_it_is_convex_in_the_logarithms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(2, CHANNELS))
    ignored = np.zeros(CHANNELS)
    for term in terms(seed):
        middle, ends = (
            term.add_to((left + right) / 2, ignored),
            [term.add_to(each, ignored) for each in (left, right)],
        )
        assert middle <= np.mean(ends) * (1 + 1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_what_is_found_is_no_worse_and_within_bounds(seed: int) -> None:
    free = np.random.default_rng(seed).random(CHANNELS) < 0.7
    low, high = np.full(CHANNELS, -1.0), np.full(CHANNELS, 2.0)
    found, before, after = least_noise(terms(seed), free=free, low=low, high=high, iterations=60)
    assert after <= before
    assert not found[~free].any()
    assert ((found >= low) & (found <= high)).all()


def test_two_channels_of_a_chain_are_balanced() -> None:
    """A writer whose second row is 100 times the first, and a reader that weighs both alike."""
    writer = DenseNoise.of(
        np.array([[1.0], [100.0]]),
        inputs=np.array([0]),
        outputs=np.array([1, 2]),
        energy=np.ones(1),
        gain=np.array([1e4, 1.0]),
        per_output=False,
    )
    free = np.array([False, True, True])
    bounds = np.full(3, 20.0)
    found, before, after = least_noise([writer], free=free, low=-bounds, high=bounds, iterations=2000)
    # Both rows fill the range: the second is divided by 100 times more than the first.
    np.testing.assert_allclose(found[2] - found[1], np.log(100), atol=0.1)
    assert after < before / 1000
