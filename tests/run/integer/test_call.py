"""What registers of every width hold of sums of any size, against Python's integers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.core.quantizers import QuantSpec
from roundoff.core.target import WIDEST, Arithmetic
from roundoff.core.tensors import Array
from roundoff.run.integer.call import KernelCall, KernelContext
from roundoff.run.integer.convolution import plan_for_bounds
from roundoff.run.integer.results import AccumulatorOverflow, Recorder, Wide
from tests.run.integer.support import U8, U16, Codes, params, run_node

S16 = QuantSpec(16, signed=True, symmetric=True)


def accumulated(total: Array, arithmetic: Arithmetic) -> tuple[Array, tuple[AccumulatorOverflow, ...]]:
    recorder = Recorder(("node",))
    call = KernelCall("node", "MatMul", {}, (), 1, lambda arrays: [], KernelContext(arithmetic, 17, recorder))
    return call.accumulated(total), recorder.report().overflows


def in_register(number: int, bits: int, overflow: str) -> int:
    limit = 1 << (bits - 1)
    if overflow == "saturate":
        return min(max(number, -limit), limit - 1)
    return (number + limit) % (2 * limit) - limit


@given(
    st.lists(st.integers(-(2**70), 2**70), min_size=1, max_size=8),
    st.sampled_from([8, 16, 32, 48, 53, 54, 63, 64]),
    st.sampled_from(["wrap", "saturate"]),
)
def test_sums_in_float64(numbers: list[int], bits: int, overflow: Any) -> None:
    total = np.array(numbers, dtype=np.float64)
    exact = [in_register(int(each), bits, overflow) for each in total]

    found, events = accumulated(total, Arithmetic(accumulator_bits=bits, overflow=overflow))

    limit = 1 << (bits - 1)
    assert all(-limit <= int(each) < limit for each in found)
    # The ends of registers wider than a float64's digits lie between two floats.
    ends = 0 if bits <= 53 else limit >> 52
    assert all(abs(int(each) - expected) <= ends for each, expected in zip(found, exact, strict=True))
    beyond = sum(not -limit <= int(each) < limit for each in total)
    assert sum(event.count for event in events) == beyond


@given(
    st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=8),
    st.sampled_from([8, 32, 54, 62, 63, 64]),
    st.sampled_from(["wrap", "saturate"]),
)
def test_sums_in_int64_are_held_exactly(numbers: list[int], bits: int, overflow: Any) -> None:
    found, _ = accumulated(np.array(numbers), Arithmetic(accumulator_bits=bits, overflow=overflow))

    assert found.tolist() == [in_register(each, bits, overflow) for each in numbers]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("requantization", ["float", "fixed_point"])
def test_the_widest_sums_saturate_to_the_right_end(sign: int, requantization: Any) -> None:
    held, [event] = accumulated(np.array([sign * 2.0**64]), WIDEST)
    arithmetic = Arithmetic(requantization=requantization)

    codes = [Wide(sums, np.ones(())).codes_for(params(1e-3, 100), U8, arithmetic) for sums in (held, -held)]

    assert [each.item() for each in codes] == ([255, 0] if sign > 0 else [0, 255])
    assert event.worst_ratio == 2


def test_the_widest_arithmetic_holds_what_32_bits_do_not() -> None:
    x = Codes(np.full((1, 3), 65535), params(1.0), spec=U16)
    w = Codes(np.full((3, 1), 32767), params(1.0), S16, constant=True, kind="weight")

    sums = run_node("MatMul", {"x": x, "w": w}, arithmetic=WIDEST)

    assert sums.values.item() == np.float32(3 * 65535 * 32767)
    assert sums.is_integer
    assert not sums.report.overflows


def test_products_whose_sums_64_bits_may_not_hold_are_refused() -> None:
    assert plan_for_bounds(1 << 10, 1 << 26, 1 << 26) is not None
    assert plan_for_bounds((1 << 10) + 1, 1 << 26, 1 << 26) is None
