import numpy as np
import pytest

from roundoff.core.quantizers import QuantSpec
from roundoff.core.tensors import Array
from roundoff.quantize.calibration.calibration import observed_range, range_error
from tests.contracts.calibration import CalibrationContract
from tests.quantize.calibration.observing import observed

SYMMETRIC = QuantSpec(8, True, True)


class TestEntropy(CalibrationContract):
    name = "entropy"
    # Of few elements the distribution is known badly, so the range is not settled by them.
    close_to_exact = 0.1


def normal(size: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [False, True])
def test_outliers_are_clipped(bits: int, symmetric: bool) -> None:
    values = np.append(normal(400_000), [300, -700]).astype(np.float32)
    low, high = observed_range(observed(values), QuantSpec(bits, True, symmetric), "entropy")
    assert 2 < max(-low, high) < 8
    if not symmetric:
        assert 2 < min(-low, high) < 8


def test_asymmetric_quantizers_follow_the_data() -> None:
    values = np.abs(normal(200_000)) ** 2 - 0.25
    values = np.append(values, 400).astype(np.float32)
    low, high = observed_range(observed(values), QuantSpec(8, False, False), "entropy")
    assert low == pytest.approx(-0.25, abs=0.05)
    assert 5 < high < 30


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("bits", [12, 13, 14, 16])
def test_many_levels_need_no_clipping(bits: int, symmetric: bool) -> None:
    values = normal(200_000, seed=1)
    low, high = observed_range(observed(values), QuantSpec(bits, True, symmetric), "entropy")
    assert low == pytest.approx(values.min(), rel=0.05)
    assert high == pytest.approx(values.max(), rel=0.05)


def test_fewer_levels_clip_more() -> None:
    values = np.random.default_rng(2).laplace(size=300_000).astype(np.float32)
    reach = [
        max(abs(float(end)) for end in observed_range(observed(values), QuantSpec(bits, True, True), "entropy"))
        for bits in (3, 4, 6, 8, 16)
    ]
    assert reach == sorted(reach)
    assert reach[0] < reach[-1] / 2


def test_values_that_are_few_and_far_between_are_not_clipped() -> None:
    """Pixels have 256 values; what lies between them is no structure that rounding destroys."""
    pixels = (np.random.default_rng(3).integers(0, 256, 300_000) / 255).astype(np.float32)
    for spec in (SYMMETRIC, QuantSpec(8, False, False), QuantSpec(4, True, True)):
        low, high = observed_range(observed(pixels), spec, "entropy")
        assert low == 0
        assert high > 0.97


def test_probabilities_are_not_clipped() -> None:
    """The few large ones are what matters, however many small ones there are."""
    rng = np.random.default_rng(4)
    logits = rng.standard_normal((200, 1000)) * 4
    logits[:, 0] += 12
    shares = np.exp(logits)
    shares = (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)
    for spec in (SYMMETRIC, QuantSpec(8, False, False)):
        _, high = observed_range(observed(shares), spec, "entropy")
        assert high > 0.95


@pytest.mark.parametrize("bits", [4, 6, 8])
@pytest.mark.parametrize("symmetric", [False, True])
def test_never_much_worse_than_the_whole_range(bits: int, symmetric: bool) -> None:
    rng = np.random.default_rng(5)
    spec = QuantSpec(bits, True, symmetric)
    for values in (rng.laplace(size=70_000), rng.standard_t(3, 70_000), rng.lognormal(0, 2, 70_000)):
        seen = observed(values.astype(np.float32))
        ours = range_error(seen, spec, *observed_range(seen, spec, "entropy"))
        whole = range_error(seen, spec, *observed_range(seen, spec, "minmax"))
        assert ours.mse <= whole.mse * 1.05 or ours.clipped <= 1.1e-5
