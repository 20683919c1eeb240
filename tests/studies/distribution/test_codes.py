"""What a quantizer makes of values, against plain numpy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from roundoff.core.quantizers import (
    Quantizer,
    QuantParams,
    QuantSpec,
    fake_quantize,
    parameters_from_range,
    quantize,
    representable_range,
)
from roundoff.core.tensors import Array
from roundoff.studies.distribution.records import CodeRecord

SPECS = [
    QuantSpec(bits=8, signed=False, symmetric=False),
    QuantSpec(bits=8, signed=True, symmetric=True, narrow=True),
    QuantSpec(bits=4, signed=True, symmetric=True),
    QuantSpec(bits=16, signed=True, symmetric=False),
]


def one_scale(scale: float, zero_point: int) -> QuantParams:
    return QuantParams(np.array(scale, np.float32), np.array(zero_point))


def quantizer(spec: QuantSpec, params: QuantParams, codes: Array | None = None) -> Quantizer:
    return Quantizer("q", "t", "weight", spec, params, (), codes=codes)


@settings(deadline=None)
@given(
    st.sampled_from(SPECS),
    arrays(np.float32, (3, 4, 5), elements=st.floats(-8, 8, width=32)),
    st.sampled_from([None, 0, 1, -1]),
    st.floats(0.1, 6),
)
def test_facts_are_those_of_the_definition(spec: QuantSpec, values: Array, axis: int | None, limit: float) -> None:
    spec = spec.along(axis)
    shape = () if axis is None else (values.shape[axis],)
    limits = limit * np.linspace(1, 2, math.prod(shape)).reshape(shape)
    params = parameters_from_range(-limits, limits, spec)
    record = CodeRecord(quantizer(spec, params))
    for part in [values] if axis == 0 else values[:, np.newaxis]:
        record.add(part)
    facts = record.facts()
    codes = quantize(values, params, spec)
    used, times = np.unique(codes, return_counts=True)
    assert (facts.levels_used, facts.levels) == (used.size, spec.code_max - spec.code_min + 1)
    shares = times / times.sum()
    assert facts.entropy_bits == pytest.approx(-(shares * np.log2(shares)).sum(), abs=1e-12)
    low, high = representable_range(params, spec)
    half = params.scale.astype(np.float64) / 2
    broadcast = [1] * 3
    if axis is not None:
        broadcast[axis] = -1
    below, above = (each.reshape(broadcast) for each in (low - half, high + half))
    assert facts.clipped_low == pytest.approx(np.mean(values < below))
    assert facts.clipped_high == pytest.approx(np.mean(values > above))
    zeroed = int(np.count_nonzero(values[fake_quantize(values, params, spec) == 0]))
    assert facts.zeroed == pytest.approx(zeroed / max(1, int(np.count_nonzero(values))))
    assert (facts.low, facts.high) == (low.max(), high.min())
    assert facts.scale_ratio == pytest.approx(params.scale.max() / np.median(params.scale))
    error = values.astype(np.float64) - fake_quantize(values, params, spec)
    energy = float(np.square(values.astype(np.float64)).sum())
    if error.any() and energy:
        assert facts.sqnr_db == pytest.approx(10 * math.log10(energy / np.square(error).sum()), rel=1e-9)


def test_codes_that_are_given_count() -> None:
    values = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    codes = np.array([1, 2, 2, 2], np.int8)
    params = one_scale(0.1, 0)
    facts = CodeRecord(quantizer(SPECS[1], params, codes)).facts()
    assert facts.levels_used == 0
    record = CodeRecord(quantizer(SPECS[1], params, codes))
    record.add(values)
    facts = record.facts()
    assert facts.levels_used == 2
    assert facts.entropy_bits == pytest.approx(-(0.25 * math.log2(0.25) + 0.75 * math.log2(0.75)))


def test_codes_of_32_bits_are_counted_too() -> None:
    spec = QuantSpec(bits=32, signed=True, symmetric=True, axis=0)
    params = QuantParams(np.array([1e-6, 1e-3, 1.0], np.float32), np.zeros(3, np.int64))
    record = CodeRecord(quantizer(spec, params))
    record.add(np.array([0.5, 0.5, 7.0], np.float32))
    facts = record.facts()
    assert (facts.levels_used, facts.levels) == (3, 2**32)
    assert facts.entropy_bits == pytest.approx(math.log2(3))
    assert facts.scales == pytest.approx((1e-6, 1.0))


def test_what_is_not_finite_is_left_out_and_nothing_lost_is_infinite() -> None:
    params = one_scale(0.5, 3)
    record = CodeRecord(quantizer(SPECS[0], params))
    record.add(np.array([1.0, np.nan, np.inf, 2.0], np.float32))
    facts = record.facts()
    assert (facts.levels_used, facts.clipped, facts.sqnr_db, facts.zero_point) == (2, 0, math.inf, 3)
    empty = CodeRecord(quantizer(SPECS[0], params))
    empty.add(np.array([np.nan], np.float32))
    assert empty.facts().sqnr_db is None
    assert empty.facts().entropy_bits == 0


def test_signal_of_nothing_but_noise() -> None:
    record = CodeRecord(quantizer(SPECS[0], one_scale(1, 0), np.array([4], np.uint8)))
    record.add(np.zeros(1, np.float32))
    assert record.facts().sqnr_db == -math.inf
