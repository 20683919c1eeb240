import math

import numpy as np
import pytest

from roundoff.core.quantizers import QuantSpec, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.quantize.calibration.calibration import observed_range
from tests.contracts.calibration import CalibrationContract, skewed
from tests.quantize.calibration.observing import counted, observed


class TestHfmg(CalibrationContract):
    name = "hfmg"
    settled_bits = 8  # the whole range is never among its candidates


def by_definition(values: Array, bins: int, bits: int) -> tuple[float, float]:
    """The best range in plain loops over bins and cells."""
    low, high = float(values.min()), float(values.max())
    counts, _ = np.histogram(values.astype(np.float64), bins, (low, high))
    step = max(1, math.ceil(counts.sum() / 100_000))
    left, right = 0, bins - 1
    best, chosen = math.inf, (0, bins - 1)
    while right - left > math.ceil(bins / 4):
        begin, end = left, right
        passed = 0
        while begin < right and passed < step:
            passed += counts[begin]
            begin += 1
        passed = 0
        while end > begin and passed < step:
            passed += counts[end]
            end -= 1
        left, right = (begin, right) if begin - left > right - end else (left, end)
        cells = [cell_loss(index - left, right - left + 1, bits) for index in range(bins)]
        loss = sum(cell * count for cell, count in zip(cells, counts, strict=True))
        if loss < best:
            best, chosen = loss, (left, right)
    width = (high - low) / bins
    return low + chosen[0] * width, low + (chosen[1] + 1) * width


def cell_loss(begin: float, length: int, bits: int) -> float:
    """Mean squared distance of a bin from the centres of the cells it lies in, cell by cell."""
    cell = length / 2**bits
    place, total = float(begin), 0.0
    while place < begin + 1:
        number = min(max(math.floor(place / cell + 1e-9), 0), 2**bits - 1)
        outer = place / cell + 1e-9 < 0 or number == 2**bits - 1
        stop = begin + 1 if outer and (place >= 0 or begin + 1 <= 0) else min(begin + 1, (number + 1) * cell)
        if place < 0:
            stop = min(begin + 1, 0.0)
        centre = (number + 0.5) * cell
        total += ((stop - centre) ** 3 - (place - centre) ** 3) / 3
        place = stop
    return total


@pytest.mark.parametrize("bits", [3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_by_definition(seed: int, bits: int) -> None:
    values = skewed(seed, 300)
    low, high = observed_range(observed(values), QuantSpec(bits, True, False), "hfmg", {"num_of_bins": 64})
    assert (low, high) == pytest.approx(by_definition(values, 64, bits), rel=1e-9)


def test_the_order_of_batches_does_not_matter() -> None:
    """Spreading old bins over new ones with every batch would make the result depend on the order."""
    batches = [skewed(seed, 5000) * (seed + 1) for seed in range(5)]
    spec = QuantSpec(8, True, False)
    assert observed_range(observed(*batches), spec, "hfmg") == observed_range(
        observed(*batches[::-1]), spec, "hfmg"
    )


@pytest.mark.parametrize("bins", [1024, 2048, 4096, 8192])
@pytest.mark.parametrize("bits", [4, 8])
def test_of_many_elements_it_is_nearly_the_same(bits: int, bins: int) -> None:
    values = skewed(3, 60_000)
    spec = QuantSpec(bits, True, False)
    scales = [
        float(parameters_from_range(*observed_range(known, spec, "hfmg", {"num_of_bins": bins}), spec).scale)
        for known in (observed(values), counted(observed(values)))
    ]
    assert scales[0] == pytest.approx(scales[1], rel=0.06)
