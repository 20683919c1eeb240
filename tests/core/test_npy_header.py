"""Headers of .npy files; what each damage is called is tested where files are read."""

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from roundoff.core.array_files import MAX_HEADER_BYTES, Unreadable, parse_header
from roundoff.core.tensors import Array

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


def with_header(literal: str, *, version: int = 1) -> bytes:
    text = literal.encode("latin-1")
    return b"\x93NUMPY" + bytes((version, 0)) + len(text).to_bytes(2 if version == 1 else 4, "little") + text


@pytest.mark.parametrize("version", [1, 2, 3])
def test_all_versions_of_the_format_are_read(version: int) -> None:
    start = with_header("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3)}\n", version=version)
    header = parse_header(start, length=len(start) + 12)
    assert (header.dtype, header.shape, header.fortran) == (np.dtype(">i2"), (2, 3), True)
    assert header.offset == len(start)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_what_numpy_writes_in_every_version_is_read(version: tuple[int, int]) -> None:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.arange(6, dtype="<f4").reshape(2, 3), version=version)
    header = parse_header(stream.getvalue(), length=len(stream.getvalue()))
    assert header.values(np.frombuffer(stream.getvalue(), np.uint8)).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("descr", "problem"),
    [
        ("'|O'", "holds Python objects (a pickle), which are never loaded"),
        ("[('a', '|O')]", "holds Python objects (a pickle), which are never loaded"),
        ("[('a', '<f4'), ('b', '<i4')]", "holds records of several fields"),
        ("[('\xe9', '<f4')]", "holds records of several fields"),
        ("('<f4', (2, 3))", "holds records of several fields"),
        ("'3f4'", "holds records of several fields"),
        ("'f4,f4'", "holds records of several fields"),
        ("'V0'", "holds values of type '|V0', not numbers"),
        ("'V1000000'", "holds values of type '|V1000000', not numbers"),
        ("'S4'", "holds values of type '|S4', not numbers"),
        ("'no such type'", "the .npy header is damaged: "),
        ("'V99999999999999999999'", "the .npy header is damaged: "),
        ("{'a': 1}", "the .npy header is damaged: "),
        ("[]", "holds records of several fields"),
        ("[[]]", "the .npy header is damaged: "),
        ("[('a', '<f4', (-1,))]", "the .npy header is damaged: "),
        ("[('a', '<f4'), ('a', '<f4')]", "the .npy header is damaged: "),
        ("[" * 150 + "]" * 150, "the .npy header is damaged: "),
        ("None", "the .npy header is damaged: "),
    ],
)
def test_types_that_are_not_plain_numbers_are_refused(descr: str, problem: str) -> None:
    start = with_header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': (1,)}}", version=3)
    with pytest.raises(Unreadable) as caught:
        parse_header(start, length=len(start) + 4)
    assert caught.value.problem.startswith(problem)
    assert len(caught.value.problem) < 200


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["<f4", "|O", "V8", "x", ""])


@settings(max_examples=300)
@given(
    st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner), max_leaves=8),
    st.none() | st.tuples(st.integers()) | st.text(max_size=3),
)
def test_any_literal_is_a_header_or_unreadable(descr: object, shape: object) -> None:
    start = with_header(ascii({"descr": descr, "fortran_order": False, "shape": shape}))
    with contextlib.suppress(Unreadable):
        assert parse_header(start, length=len(start)).size_bytes == 0
