"""Whether ranges are for their values."""

import numpy as np
import pytest

from roundoff.tensors.ranges import excess_range, ranges_of_steps
from roundoff.tensors.stored import ToolScale


def _values(peak: float, scale: ToolScale, count: int = 500) -> list[np.ndarray]:
    flat = np.random.default_rng(0).uniform(0, peak, count)
    return [np.rint(flat / scale.scale) * scale.scale]


def test_a_range_that_is_the_operations_own_is_no_fault() -> None:
    """A range of 0..6 behind Clip(0, 6) is so whatever was seen; one of 0..5 that saw 1 is not."""
    own, other = ToolScale(6 / 255, 0.0, 6.0, (0.0, 1.0)), ToolScale(5 / 255, 0.0, 5.0, (0.0, 1.0))
    assert excess_range(own, 1.0, _values(1.0, own), bound=6.0) is None
    assert excess_range(other, 1.0, _values(1.0, other), bound=6.0) == pytest.approx(5.0)
    assert excess_range(other, 1.0, _values(1.0, other), bound=float("inf")) is None


def test_few_values_must_be_far_smaller() -> None:
    for times, found in ((6.0, None), (9.0, 9.0)):
        scale = ToolScale(times / 255, 0.0, times)
        assert excess_range(scale, 1.0, _values(1.0, scale, count=10)) == found


def test_ranges_by_steps() -> None:
    found = ranges_of_steps({"full": 0.01, "signed": 0.01, "wide": 0.1}, {
        "full": (0.0, 2.5), "signed": (-0.5, 2.0), "wide": (0.0, 2.55),
    })  # fmt: skip
    assert found["full"].low == 0.0
    assert found["full"].high == pytest.approx(2.55)
    assert [found["signed"].low, found["signed"].high] == pytest.approx([-0.51, 2.04])
    assert found["wide"].reach / 2.55 == pytest.approx(10.0)
    # Codes of which none is used beyond the half have a sign, whatever the values: 127 steps are all there are.
    signed = ranges_of_steps({"relu": 0.01, "sum": 0.01}, {"relu": (0.0, 1.27), "sum": (-1.2, 1.0)})
    assert signed["relu"].reach == pytest.approx(1.275)
