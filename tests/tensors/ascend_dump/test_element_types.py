"""Bytes as numbers, for every element type."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.core.array_files import Unreadable
from roundoff.tensors.ascend_dump.element_types import element_type, values_of
from roundoff.tensors.ascend_dump.header import ELEMENT_TYPES, GE_TYPES

NOT_NUMBERS = {"STRING", "STRING_REF", "VARIANT"}


def values(name: str, *codes: int, count: int) -> list[float]:
    found: list[float] = values_of(element_type(name), np.array(codes, np.uint8), count).tolist()
    return found


@pytest.mark.parametrize("name", sorted(set(ELEMENT_TYPES) - NOT_NUMBERS))
def test_every_type_of_numbers_is_read(name: str) -> None:
    kind = element_type(name)
    raw = np.arange(1, 1 + kind.bytes_for(5), dtype=np.uint8)
    assert values_of(kind, raw, 5).shape == (5,)


@pytest.mark.parametrize("name", sorted(NOT_NUMBERS))
def test_others_are_refused(name: str) -> None:
    with pytest.raises(Unreadable, match=name):
        element_type(name)


def test_both_numberings_name_the_same_types() -> None:
    assert set(GE_TYPES) - {None} == set(ELEMENT_TYPES)


@pytest.mark.parametrize(
    ("code", "value"),
    [(0x00, 0.0), (0x01, 2.0**-22), (0x07, 2.0**-16), (0x08, 1.0), (0x6E, 2.0**15), (0x6F, math.inf),
     (0xEF, -math.inf), (0x88, -1.0), (0x0F, 1.875), (0x7F, 1.5 * 2.0**-15)],
)  # fmt: skip
def test_hifloat8(code: int, value: float) -> None:
    assert values("HIFLOAT8", code, count=1) == [value]


def test_hifloat8_has_one_not_a_number_and_else_distinct_values() -> None:
    found = values("HIFLOAT8", *range(256), count=256)
    assert [code for code, value in enumerate(found) if math.isnan(value)] == [0x80]
    assert len({value for value in found if not math.isnan(value)}) == 255


def test_signs_of_eight_bit_infinities_and_not_numbers_are_kept() -> None:
    assert values("FLOAT8_E5M2", 0x7C, 0xFC, 0x7B, count=3) == [math.inf, -math.inf, 57344.0]
    assert all(map(math.isnan, values("FLOAT8_E4M3FN", 0x7F, 0xFF, count=2)))


@given(st.lists(st.integers(-8, 7), min_size=1, max_size=9))
def test_packed_int4(numbers: list[int]) -> None:
    codes = [number & 15 for number in [*numbers, 0]]
    packed = [codes[place] | codes[place + 1] << 4 for place in range(0, len(numbers), 2)]
    assert values("INT4", *packed, count=len(numbers)) == numbers


@given(st.lists(st.integers(0, 63), min_size=1, max_size=9))
def test_packed_float6(codes: list[int]) -> None:
    stream = sum(code << 6 * place for place, code in enumerate(codes))
    packed = stream.to_bytes(-(-len(codes) * 6 // 8), "little")
    truth = np.array(codes, np.uint8).view(ml_dtypes.float6_e3m2fn).astype(np.float32)
    assert values("FLOAT6_E3M2", *packed, count=len(codes)) == truth.tolist()


def test_bits_come_from_the_top() -> None:
    assert values("UINT1", 0b10110000, count=4) == [1, 0, 1, 1]


def test_small_types_may_take_a_byte_each() -> None:
    assert values("INT4", 1, 15, 8, count=3) == [1, -1, -8]
    assert values("FLOAT4_E2M1", 1, 15, 8, count=3) == [0.5, -6.0, -0.0]
    assert values("FLOAT4_E1M2", 1, 15, 4, count=3) == [0.25, -1.75, 1.0]


def test_any_byte_but_zero_is_true() -> None:
    assert values("BOOL", 0, 1, 255, count=3) == [False, True, True]


def test_bfloat16_becomes_float32() -> None:
    truth = np.array([1.5, -3.0], ml_dtypes.bfloat16)
    found = values_of(element_type("BF16"), truth.view(np.uint8), 2)
    assert found.dtype == np.float32
    assert found.tolist() == [1.5, -3.0]


def test_half_complex_numbers() -> None:
    raw = np.array([1, 2, 3, 4], np.float16).view(np.uint8)
    assert values_of(element_type("COMPLEX32"), raw, 2).tolist() == [1 + 2j, 3 + 4j]
