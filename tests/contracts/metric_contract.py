"""What every metric promises; subclass it for a metric of your own."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from roundoff.core.tensors import Array
from roundoff.measure.metrics import Metric, get_metric
from roundoff.measure.pairs import measure_pair

_VALUES = st.floats(-100, 100, width=32).filter(lambda value: value == 0 or abs(value) > 1e-3)
_VECTORS = hnp.arrays(np.float32, st.integers(1, 40), elements=_VALUES)
# The tests are inherited, so each runs for several classes on purpose.
_SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.differing_executors])


class MetricContract:
    """Set `name`; `symmetric` and `scale_power` say how the value moves when sides swap or both are scaled."""

    name: str
    symmetric: bool = False
    # value(k x, k y) == k ** scale_power * value(x, y); None where that is not promised.
    scale_power: int | None = 0

    @property
    def metric(self) -> Metric:
        return get_metric(self.name)

    def value(self, reference: Array, candidate: Array) -> float:
        return self.metric.compute(measure_pair(reference, candidate, channel_axis=None))

    def test_it_describes_itself(self) -> None:
        assert self.metric.summary.endswith(".")
        assert self.metric.direction in ("higher", "lower", "none")

    @given(values=_VECTORS)
    @_SETTINGS
    def test_equal_tensors_are_perfect(self, values: Array) -> None:
        if self.metric.perfect is not None:
            assert self.value(values, values.copy()) == self.metric.perfect

    @given(values=_VECTORS, seed=st.integers(0, 1000))
    @_SETTINGS
    def test_nothing_beats_perfect(self, values: Array, seed: int) -> None:
        noisy = values + np.random.default_rng(seed).standard_normal(values.size).astype(np.float32)
        if self.metric.perfect is not None and self.metric.direction != "none":
            worse = self.metric.perfect - self.value(values, noisy)
            assert worse >= 0 if self.metric.direction == "higher" else worse <= 0

    @given(values=_VECTORS, seed=st.integers(0, 1000))
    @_SETTINGS
    def test_swapping_sides(self, values: Array, seed: int) -> None:
        other = values + np.random.default_rng(seed).standard_normal(values.size).astype(np.float32)
        if self.symmetric:
            assert self.value(values, other) == pytest.approx(self.value(other, values), rel=1e-6, abs=1e-9)

    @given(values=_VECTORS, seed=st.integers(0, 1000), power=st.integers(-4, 4))
    @_SETTINGS
    def test_scaling_both_sides(self, values: Array, seed: int, power: int) -> None:
        other = values + np.random.default_rng(seed).standard_normal(values.size).astype(np.float32)
        factor = np.float32(2.0**power)
        if self.scale_power is not None:
            expected = self.value(values, other) * float(factor) ** self.scale_power
            assert self.value(values * factor, other * factor) == pytest.approx(expected, rel=1e-6, abs=1e-9)
