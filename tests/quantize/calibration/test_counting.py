import numpy as np
import pytest

from roundoff.core.tensors import Array
from roundoff.quantize.calibration import histogram as counting
from roundoff.quantize.calibration.histogram import TENSOR_GRID, ChannelCounter, Grid, TensorCounter, histogram_of

RNG = np.random.default_rng(0)
SPECIAL = np.array([0.0, -0.0, 1e-45, -1e-45, np.nan, -np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1.0], np.float32)


def spread(size: int) -> Array:
    return (RNG.standard_normal(size) * 10.0 ** RNG.integers(-6, 6, size)).astype(np.float32)


@pytest.mark.parametrize(
    "values",
    [
        spread(1000),
        np.abs(spread(1000)),
        SPECIAL,
        np.empty(0, np.float32),
        np.zeros(5, np.float32),
        spread(200_001),
    ],
    ids=["both signs", "one sign", "special", "empty", "zeros", "several blocks"],
)
def test_both_ways_of_counting_agree(values: Array) -> None:
    counter = TensorCounter()
    for part in np.array_split(values, 3):
        counter.add(np.ascontiguousarray(part))
    fast, slow = counter.histogram(), histogram_of(values[None], TENSOR_GRID)
    np.testing.assert_array_equal(fast.exponent, slow.exponent)
    np.testing.assert_array_equal(fast.counts, slow.counts)
    assert fast.counts.sum() == np.count_nonzero(np.isfinite(values))


def test_counts_beyond_32_bits_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    values = spread(1000)
    monkeypatch.setattr(counting, "_MOST_COUNTED", 300)
    counter = TensorCounter()
    for part in np.array_split(values, 7):
        counter.add(part.copy())
    np.testing.assert_array_equal(counter.histogram().counts, histogram_of(values[None], TENSOR_GRID).counts)


@pytest.mark.parametrize(
    "shape", [(1, 3, 70_000), (5, 3, 7), (40_000, 3, 1), (2, 70_000, 1), (0, 3, 2), (2, 3, 0)]
)
def test_channels_in_blocks(shape: tuple[int, int, int]) -> None:
    grid = Grid(2, 5)
    values = spread(int(np.prod(shape))).reshape(shape)
    counter = ChannelCounter(grid, shape[1])
    counter.add(values)
    found = counter.histogram()
    for row in {0, shape[1] // 2, shape[1] - 1}:
        alone = histogram_of(values[:, row].reshape(1, -1), grid)
        assert found.exponent[row] == alone.exponent[0]
        np.testing.assert_array_equal(found.counts[row, : alone.counts.shape[1]], alone.counts[0])


def test_channels_leave_out_what_is_not_finite() -> None:
    counter = ChannelCounter(Grid(2, 5), 2)
    counter.add(np.array([[[1.0, np.nan], [np.inf, 0.0]]], np.float32))
    assert counter.histogram().counts.sum(axis=(1, 2)).tolist() == [1, 1]
