"""Pickles of arrays are followed on paper; whatever else they ask for is refused by name."""

import contextlib
import io
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from roundoff.core.pickled_arrays import read_pickled
from roundoff.core.unreadable import Unreadable

NUMBERS = st.sampled_from(
    ["bool", "int8", "uint8", ">i2", "<u4", "int64", "float16", ">f4", "float64", "complex64"]
)
ARRAYS = NUMBERS.flatmap(lambda dtype: hnp.arrays(np.dtype(dtype), hnp.array_shapes(min_dims=0, min_side=0)))


def saved(thing: Any) -> bytes:
    """The pickle that numpy.save makes of something, without the header in front."""
    stream = io.BytesIO()
    np.save(stream, thing, allow_pickle=True)
    content = stream.getvalue()
    return content[10 + int.from_bytes(content[8:10], "little") :]


def text(word: str) -> bytes:
    return b"\x8c" + bytes([len(word)]) + word.encode()


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), ARRAYS, max_size=3))
def test_dictionaries_of_arrays_come_back(arrays: dict[str, Any]) -> None:
    found = read_pickled(saved(arrays))
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_fortran_order_scalars_and_one_array_twice() -> None:
    turned = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    found = read_pickled(saved({"a": turned, "b": turned, "c": np.float32(2.5), "d": 3, "e": [1, "x"]}))
    np.testing.assert_array_equal(found["a"], turned)
    np.testing.assert_array_equal(found["b"], turned)
    assert (found["c"], found["d"], found["e"]) == (2.5, 3, [1, "x"])


# Written by Python 2 and by protocols 0 to 5; {"a": float32 [1, 2]} each time.
OLD = (
    b"(dp0\nVa\np1\ncnumpy.core.multiarray\n_reconstruct\np2\n(cnumpy\nndarray\np3\n(I0\ntp4\nc_codecs\nencode\n"
    b"(Vb\nVlatin1\ntRtp5\nRp6\n(I1\n(I2\ntp7\ncnumpy\ndtype\np8\n(Vf4\nI00\nI01\ntRp9\n(I3\nV<\nNNNI-1\nI-1\nI0\n"
    b"tbI00\nc_codecs\nencode\n(V\\u0000\\u0000\\u0080\\u003f\\u0000\\u0000\\u0000\\u0040\nVlatin1\ntRtbs."
)
FIFTH = b"".join(
    (
        *(
            b"\x80\x05}\x94",
            text("a"),
            b"\x94",
            text("numpy._core.numeric"),
            b"\x94",
            text("_frombuffer"),
            b"\x94\x93",
        ),
        *(b"(\x96", struct.pack("<Q", 8), np.array([1, 2], "<f4").tobytes(), b"\x94"),
        *(text("numpy"), text("dtype"), b"\x93", text("f4"), b"\x89\x88\x87R(K\x03", text("<")),
        *(b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb", b"K\x02\x85", text("C"), b"tRs."),
    )
)


@pytest.mark.parametrize("content", [OLD, FIFTH], ids=["protocol 0", "protocol 5"])
def test_other_protocols(content: bytes) -> None:
    np.testing.assert_array_equal(read_pickled(content)["a"], np.array([1, 2], np.float32))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"cos\nsystem\n(S'true'\ntR.", "asks to run os.system; nothing is ever run"),
        (
            b"\x80\x04" + text("builtins") + text("eval") + b"\x93.",
            "asks to run builtins.eval; nothing is ever run",
        ),
        (b"cnumpy.core.multiarray\nfromfile\n.", "asks to run numpy.core.multiarray.fromfile"),
        (b"cnumpy\nndarray\n(I3\ntR.", "asks to make a numpy.ndarray in an unusual way"),
        (b"\x80\x05\x97.", "with the step NEXT_BUFFER, which plain arrays do not need"),
        (b"\x80\x02]\x81.", "with the step NEWOBJ, which plain arrays do not need"),
        (b"}N}s.", "of a dictionary whose keys are no names"),
        (b"t.", "is a damaged pickle"),
        (b"R.", "is a damaged pickle"),
        (b"", "is a damaged pickle"),
        (b"\x80\x04", "is a damaged pickle"),
        (b".", "is a damaged pickle"),
        (b"h\x07.", "is a damaged pickle"),
        (OLD.replace(b"(I2\n", b"(I3\n"), "holds 8 bytes for float32 [3]"),
        (OLD.replace(b"Vf4\n", b"VO8\n"), "an array of objects, not of a dictionary"),
        (OLD.replace(b"Vf4\n", b"VU4\n"), "holds values of type 'U4', not numbers"),
        (OLD.replace(b"NNNI-1", b"NVx\nNI-1"), "holds records of several fields"),
        (OLD.replace(b"Vlatin1\ntRtb", b"Vutf-7\ntRtb"), "is a damaged pickle"),
    ],
)
def test_anything_else_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read_pickled(content)
    assert message in caught.value.problem


BASES = [saved({"a": np.arange(3, dtype=np.float32), "b": np.zeros((2, 0), np.int8)}), OLD, FIFTH]


@settings(max_examples=600)
@given(
    st.sampled_from(BASES),
    st.lists(st.tuples(st.integers(0, 10_000), st.binary(max_size=4)), max_size=5),
    st.integers(0, 10_000),
)
def test_no_damage_escapes(base: bytes, changes: list[tuple[int, bytes]], end: int) -> None:
    content = bytearray(base)
    for place, piece in changes:
        at = place % len(content)
        content[at : at + len(piece)] = piece
    if end % 3 == 0:
        del content[end % len(content) :]
    with contextlib.suppress(Unreadable):
        read_pickled(bytes(content))


@settings(max_examples=300)
@given(st.binary(max_size=60))
def test_no_noise_escapes(content: bytes) -> None:
    with contextlib.suppress(Unreadable):
        read_pickled(content)
