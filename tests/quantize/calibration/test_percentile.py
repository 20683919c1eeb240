import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.quantizers import QuantSpec
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.quantize.calibration.calibration import observed_range
from tests.contracts.calibration import CalibrationContract, skewed
from tests.quantize.calibration.observing import counted, observed

ASYMMETRIC = QuantSpec(8, False, False)
SYMMETRIC = QuantSpec(8, True, True)


class TestPercentile(CalibrationContract):
    name = "percentile"
    # A histogram knows where to cut up to the width of a bin; at 16 bits that alone decides the error.
    close_to_exact = 0.05


def by_counting(values: Array, share: float, *, symmetric: bool) -> tuple[float, float]:
    """Drop elements one by one, from the outside, as long as enough stay."""
    ordered = sorted(map(float, values))
    allowed = (1 - share) * len(ordered) + 1e-9
    if symmetric:
        ordered.sort(key=abs)
        while allowed >= 1:
            ordered.pop()
            allowed -= 1
        return min(ordered), max(ordered)
    two_sided = ordered[0] < 0 < ordered[-1]
    left = right = allowed / 2 if two_sided else allowed
    if ordered[0] >= 0:
        left = 0
    if ordered[-1] <= 0:
        right = 0
    while left >= 1:
        ordered.pop(0)
        left -= 1
    while right >= 1:
        ordered.pop()
        right -= 1
    return ordered[0], ordered[-1]


@given(
    st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=200),
    st.sampled_from([0.5, 0.9, 0.99, 0.995, 1.0]),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_of_all_elements(values: list[float], share: float, symmetric: bool) -> None:
    array = np.array(values, np.float32)
    spec = SYMMETRIC if symmetric else ASYMMETRIC
    low, high = observed_range(observed(array), spec, "percentile", {"percentile": share})
    expected = by_counting(array, share, symmetric=symmetric)
    if symmetric:
        assert max(-low, high, 0) == max(-expected[0], expected[1], 0)
    else:
        assert (float(low), float(high)) == expected


def test_it_is_not_a_mean_over_batches() -> None:
    """Batches of fewer than 10,000 elements have no outermost 0.01 %; their extremes must not be averaged."""
    batches = [np.linspace(-1, 1, 100, dtype=np.float32) * scale for scale in range(1, 11)]
    for spec in (ASYMMETRIC, SYMMETRIC):
        low, high = observed_range(observed(*batches), spec, "percentile", {"percentile": 0.9999})
        assert (float(low), float(high)) == (-10, 10)


@pytest.mark.parametrize("spec", [ASYMMETRIC, SYMMETRIC], ids=["asymmetric", "symmetric"])
def test_each_channel_has_its_own(spec: QuantSpec) -> None:
    values = np.stack([skewed(seed, 2000) * 10.0**seed for seed in range(3)], axis=1).astype(np.float32)
    low, high = observed_range(observed(values, axis=1), spec.along(1), "percentile", {"percentile": 0.99})
    inside = (values >= low) & (values <= high)
    np.testing.assert_allclose(inside.mean(axis=0), 0.99, atol=1e-3)


@pytest.mark.parametrize("share", [0.9, 0.999, 0.9999])
@pytest.mark.parametrize("spec", [ASYMMETRIC, SYMMETRIC], ids=["asymmetric", "symmetric"])
def test_of_many_elements(spec: QuantSpec, share: float) -> None:
    values = np.concatenate([skewed(seed, 50_000) for seed in range(4)])
    low, high = observed_range(observed(values), spec, "percentile", {"percentile": share})
    assert np.mean((values >= low) & (values <= high)) == pytest.approx(share, abs=(1 - share) / 5)


def test_a_huge_value_does_not_blur_the_others() -> None:
    values = np.append(skewed(1, 99_999), 1e10).astype(np.float32)
    _, exact = by_counting(values, 0.999, symmetric=False)
    _, high = observed_range(observed(values), ASYMMETRIC, "percentile", {"percentile": 0.999})
    assert high == pytest.approx(exact, rel=1e-2)


def test_share_and_percentage_mean_the_same() -> None:
    seen = counted(observed(skewed(0)))
    assert observed_range(seen, ASYMMETRIC, "percentile", {"percentile": 0.999}) == observed_range(
        seen, ASYMMETRIC, "percentile", {"percentile": 99.9}
    )


@pytest.mark.parametrize("value", [0.1, 2.0, 101.0, float("nan")])
def test_a_share_that_makes_no_sense(value: float) -> None:
    with pytest.raises(BadInput, match="The option percentile is") as caught:
        observed_range(observed(skewed(0)), ASYMMETRIC, "percentile", {"percentile": value})
    assert "give" in caught.value.fix
