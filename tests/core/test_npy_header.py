"""Headers of .npy files; what each damage is called is tested where files are read."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from roundoff.core.npy_header import MAX_HEADER_BYTES, parse_header
from roundoff.core.tensors import Array
from roundoff.core.unreadable import Unreadable

NUMBERS = st.sampled_from(["?", "<f4", ">f8", "<f2", "|i1", "<u8", ">i2", "<c8"])


def npy_bytes(array: Array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


@settings(max_examples=50)
@given(hnp.arrays(NUMBERS, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)), st.booleans())
def test_what_numpy_writes_is_read_back(array: Array, fortran: bool) -> None:
    content = npy_bytes(np.array(array, order="F" if fortran else "C"))
    header = parse_header(content[:MAX_HEADER_BYTES], length=len(content))
    assert (header.dtype, header.shape, header.size_bytes) == (array.dtype, array.shape, array.nbytes)
    assert header.offset == len(content) - array.nbytes
    np.testing.assert_array_equal(header.values(np.frombuffer(content, np.uint8)), array)


@settings(max_examples=50)
@given(st.binary(max_size=40), st.integers(0, 100))
def test_any_bytes_behind_the_magic_are_a_header_or_unreadable(text: bytes, claimed: int) -> None:
    start = b"\x93NUMPY\x01\x00" + claimed.to_bytes(2, "little") + text
    with pytest.raises(Unreadable) as caught:
        parse_header(start, length=len(start))
    assert caught.value.problem
    assert caught.value.fix


@given(st.integers(0, 100).filter(lambda there: there != 24))
def test_the_values_must_be_all_there_and_nothing_else(there: int) -> None:
    content = npy_bytes(np.zeros((2, 3), np.float32))[:-24]
    with pytest.raises(Unreadable) as caught:
        parse_header(content, length=len(content) + there)
    assert caught.value.problem == (
        f"truncated: {there} of 24 bytes" if there < 24 else f"{there} bytes of values where the header says 24"
    )
    assert (caught.value.dtype, caught.value.shape) == ("float32", (2, 3))
