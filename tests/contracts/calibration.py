"""What every calibration method promises; subclass it for a method of your own.

class TestMyMethod(CalibrationContract):
    name = "mine"
"""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from roundoff.core.quantizers import QuantSpec, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.quantize.calibration.calibration import observed_range, range_error
from roundoff.quantize.calibration.methods import get_method
from roundoff.quantize.calibration.observer import Observation
from tests.quantize.calibration.observing import counted, observed

SPECS = [
    QuantSpec(4, False, False),
    QuantSpec(4, True, True, narrow=True),
    QuantSpec(8, False, False),
    QuantSpec(8, True, False, narrow=True),
    QuantSpec(8, False, True),
    QuantSpec(8, True, True),
    QuantSpec(16, False, False),
    QuantSpec(16, True, True),
]
SPEC_NAMES = [
    f"{spec.dtype}{'-symmetric' if spec.symmetric else ''}{'-narrow' if spec.narrow else ''}" for spec in SPECS
]
DEGENERATE = {
    "zeros": np.zeros((2, 3), np.float32),
    "negative zeros": -np.zeros(4, np.float32),
    "constant": np.full((2, 2), 0.7, np.float32),
    "constant below zero": np.full(5, -3.0, np.float32),
    "single": np.array(1e-3, np.float32),
    "empty": np.empty((0, 3), np.float32),
    "only NaN": np.full(3, np.nan, np.float32),
    "with NaN and infinity": np.array([np.nan, 1.0, -np.inf, 0.5, np.inf, -0.25], np.float32),
    "subnormal": np.array([1e-42, -1e-43], np.float32),
    "huge": np.array([3e38, -3e38, 1.0], np.float32),
    "two values": np.array([-1.0, 1.0] * 50, np.float32),
}
_VALUES = hnp.arrays(np.float32, st.integers(1, 60), elements=st.floats(-100, 100, width=32))
# The tests are inherited, so each runs for several classes on purpose.
_SETTINGS = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.differing_executors])


def skewed(seed: int, size: int = 6_000) -> Array:
    """More above zero than below, with a few values far out."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(size) + 0.5
    values[: size // 1000] *= 8
    return rng.permutation(values).astype(np.float32)


class CalibrationContract:
    """Set `name`; `widest` is how far a range may exceed what was observed, as a factor."""

    name: str
    widest: float = 1.0
    # The range found for elements in a histogram and for the same elements kept one by one.
    close_to_exact: float = 0.02
    # Beyond so many bits its error depends on where a single outermost element lies, which no histogram tells.
    settled_bits: int = 16

    def range(self, observation: Observation, spec: QuantSpec) -> tuple[Array, Array]:
        return observed_range(observation, spec, self.name)

    def test_it_describes_itself(self) -> None:
        method = get_method(self.name)
        assert method.summary.endswith(".")
        assert all(option.least <= option.default <= option.most for option in method.options.values())

    @pytest.mark.parametrize("kind", DEGENERATE)
    def test_every_tensor_gets_a_usable_scale(self, kind: str) -> None:
        observation = observed(DEGENERATE[kind])
        for known, spec in itertools.product((observation, counted(observation)), SPECS):
            low, high = self.range(known, spec)
            assert low.shape == high.shape == ()
            assert np.isfinite(low)
            assert np.isfinite(high)
            assert low <= high
            params = parameters_from_range(low, high, spec)
            assert 0 < params.scale < np.inf

    @pytest.mark.parametrize("spec", SPECS, ids=SPEC_NAMES)
    def test_the_range_is_within_what_was_observed(self, spec: QuantSpec) -> None:
        values = skewed(1)
        for known in (observed(values), counted(observed(values))):
            low, high = self.range(known, spec)
            assert min(0, values.min()) * self.widest <= low <= 0
            assert 0 < high <= values.max() * self.widest

    @pytest.mark.parametrize("spec", SPECS, ids=SPEC_NAMES)
    def test_values_of_one_sign(self, spec: QuantSpec) -> None:
        values = np.abs(skewed(2))
        values[::2] = 0  # as after a Relu
        for sign in (1, -1):
            low, high = self.range(counted(observed(sign * values)), spec)
            inner, outer = (low, high) if sign > 0 else (-high, -low)
            assert 0 <= inner < values.max() / 1000  # widened to zero with the scale
            assert values.max() / 10 < outer <= values.max() * self.widest

    @given(values=_VALUES, cut=st.integers(0, 60), seed=st.integers(0, 100))
    @_SETTINGS
    def test_order_and_batches_do_not_matter(self, values: Array, cut: int, seed: int) -> None:
        shuffled = np.random.default_rng(seed).permutation(values)
        together = observed(values)
        merged = observed(shuffled[:cut]).merge(observed(shuffled[cut:]))
        for spec in (SPECS[0], SPECS[5]):
            for left, right in ((together, merged), (counted(together), counted(merged))):
                assert self.range(left, spec) == self.range(right, spec)

    @pytest.mark.parametrize("spec", SPECS[2:6:3], ids=SPEC_NAMES[2:6:3])
    def test_order_and_batches_of_many_elements_do_not_matter(self, spec: QuantSpec) -> None:
        values = np.concatenate([skewed(seed, 30_000) for seed in range(4)])
        once = observed(values)
        pieces = [observed(part) for part in np.split(values[::-1].copy(), (10, 70_000, 70_100))]
        merged = pieces[2].merge(pieces[0]).merge(pieces[3].merge(pieces[1]))
        assert once.elements is None
        assert self.range(once, spec) == self.range(merged, spec)

    @pytest.mark.parametrize("spec", SPECS, ids=SPEC_NAMES)
    def test_the_unit_does_not_matter(self, spec: QuantSpec) -> None:
        values = skewed(3, 3000)
        for known, scaled in (
            (observed(values), observed(values * np.float32(2.0**-20))),
            (counted(observed(values)), counted(observed(values * np.float32(2.0**-20)))),
        ):
            plain = self.range(known, spec)
            tiny = self.range(scaled, spec)
            np.testing.assert_allclose(np.multiply(tiny, 2.0**20), plain, rtol=1e-6)

    @pytest.mark.parametrize("spec", SPECS, ids=SPEC_NAMES)
    def test_channels_are_independent(self, spec: QuantSpec) -> None:
        values = np.stack([skewed(seed, 400) * factor for seed, factor in enumerate((1, 100, 1e-3))])
        values[1] = np.abs(values[1])
        array = (
            np.concatenate([values, np.zeros((1, 400))]).astype(np.float32).reshape(4, 20, 20).transpose(1, 0, 2)
        )
        low, high = self.range(observed(array, axis=1), spec.along(1))
        assert low.shape == high.shape == (4,)
        alone = [self.range(observed(array[:, channel]), spec) for channel in range(4)]
        np.testing.assert_allclose(low, [each[0] for each in alone], rtol=1e-9, atol=0)
        np.testing.assert_allclose(high, [each[1] for each in alone], rtol=1e-9, atol=0)

    @pytest.mark.parametrize("spec", SPECS, ids=SPEC_NAMES)
    def test_a_histogram_is_as_good_as_the_elements(self, spec: QuantSpec) -> None:
        if spec.bits > self.settled_bits:
            pytest.skip("see settled_bits")
        exact = observed(skewed(4))
        low, high = self.range(counted(exact), spec)
        ours = range_error(exact, spec, low, high).mse
        best = range_error(exact, spec, *self.range(exact, spec)).mse
        assert ours <= best * (1 + self.close_to_exact)
