"""Element types as people write them."""

import re

import ml_dtypes
import numpy as np
import pytest

from roundoff.core.tensors import as_values, is_extended, parse_dtype, why_refused


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("float32", np.float32),
        (" FP16 ", np.float16),
        ("float", np.float32),
        ("double", np.float64),
        ("f64", np.float64),
        ("i32", np.int32),
        ("s8", np.int8),
        ("uint8_t", np.uint8),
        ("bool", np.bool_),
        ("tensor(float)", np.float32),
        ("torch.bfloat16", ml_dtypes.bfloat16),
        ("np.int64", np.int64),
        ("bf16", ml_dtypes.bfloat16),
        ("float8_e4m3fn", ml_dtypes.float8_e4m3fn),
        ("int4", ml_dtypes.int4),
        (">f4", ">f4"),
        ("|u1", np.uint8),
        ("<i8", np.int64),
    ],
)
def test_names_are_understood(text: str, dtype: object) -> None:
    assert parse_dtype(text) == np.dtype(dtype)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flot32", "unknown dtype 'flot32'; did you mean 'float32'?"),
        ("object", "unknown dtype 'object'; choose one of: float16, float32, "),
        ("str", "unknown dtype 'str'"),
        ("", "unknown dtype ''"),
        ("<f3", "unknown dtype '<f3'"),
        ("i8", "dtype 'i8' could count bits or bytes; write it out, as in 'int8' or 'int64'"),
        ("u4", "dtype 'u4' could count bits or bytes"),
    ],
)
def test_other_names_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        parse_dtype(text)


def test_extended_types_become_float32_and_byte_order_native() -> None:
    assert is_extended(np.dtype(ml_dtypes.bfloat16))
    assert not is_extended(np.dtype(np.float32))
    assert as_values(np.array([1.5], ml_dtypes.bfloat16)).dtype == np.float32
    swapped = as_values(np.array([1.5], ">f4"))
    assert swapped.dtype.isnative
    assert swapped.tolist() == [1.5]
    plain = np.array([1, 2])
    assert as_values(plain) is plain


@pytest.mark.parametrize("dtype", [np.float16, np.bool_, ml_dtypes.float8_e5m2, ml_dtypes.int4, np.complex128])
def test_numbers_are_written(dtype: type) -> None:
    assert why_refused(np.dtype(dtype)) == ""


@pytest.mark.parametrize(
    ("dtype", "reason"),
    [
        ("O", "holds Python objects (a pickle), which are never loaded"),
        ("f4,i4", "holds records of several fields, not plain numbers"),
        ("U3", "holds str96, not numbers"),
        ("V2", "holds void16, not numbers"),
    ],
)
def test_other_things_are_not(dtype: str, reason: str) -> None:
    assert why_refused(np.dtype(dtype)) == reason
