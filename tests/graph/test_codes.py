"""Codes by blocks are the codes of the whole."""

import numpy as np
import pytest

from roundoff.core.quantizers import QuantParams, QuantSpec, quantize
from roundoff.graph.weights import codes_of


@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1])
@pytest.mark.parametrize("shape", [(3, 5, 2), (300, 5, 70), (2, 3, 90000), (70000, 1, 2), (0, 4, 4)])
def test_blocks_join_to_the_whole(axis: int | None, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    spec = QuantSpec(8, signed=True, symmetric=False, axis=axis, rounding="half_up")
    length = () if axis is None else (shape[axis],)
    params = QuantParams(rng.uniform(0.01, 0.1, length).astype(np.float32), rng.integers(-9, 9, length))
    values = rng.standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(codes_of(values, params, spec), quantize(values, params, spec))


def test_scalars_and_other_floats() -> None:
    params = QuantParams(np.array(1.0, np.float32), np.array(0))
    spec = QuantSpec(8, signed=True, symmetric=True)
    assert codes_of(np.array(1.6, np.float16), params, spec) == 2
    # Just below one half in float64; in float32, which operators compute in, it is one half and rounds to even.
    almost = np.array([1.5 - 1e-12])
    assert quantize(almost, params, spec) == 1
    assert codes_of(almost, params, spec) == 2
