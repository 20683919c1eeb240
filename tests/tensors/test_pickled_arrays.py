"""Pickles of arrays are read; whatever else they ask for is refused by name, and nothing of it is run."""

import contextlib
import io
import pickle  # noqa: TID251 - only to write what is read
import struct
import subprocess
import sys
import tracemalloc
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from roundoff.core.array_files import Unreadable
from roundoff.tensors import pickled as pickled_arrays
from roundoff.tensors.pickled import read_pickled

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


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_that_python_writes(protocol: int) -> None:
    arrays = OrderedDict(
        a=np.arange(6, dtype=">f4").reshape(2, 3), b=np.asfortranarray(np.eye(3)), c=np.zeros((0, 2), bool)
    )
    for thing in (arrays, dict(arrays)):
        found = read_pickled(pickle.dumps(thing, protocol=protocol))
        assert list(found) == ["a", "b", "c"]
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)


# What Python 2 writes of {"a": float32 [1, 2]} and of an OrderedDict: its texts are bytes.
PYTHON2 = (
    b"\x80\x02}q\x00U\x01aq\x01cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03K\x00\x85"
    b"U\x01b\x87Rq\x04(K\x01K\x02\x85cnumpy\ndtype\nq\x05U\x02f4K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff"
    b"\xffJ\xff\xff\xff\xffK\x00tb\x89U\x08\x00\x00\x80?\x00\x00\x00@tbs."
)
PYTHON2_ORDERED = b"\x80\x02ccollections\nOrderedDict\n](](" + b"U\x01bK\x02e](U\x01aK\x01ee\x85R."


def test_pickles_of_python_2() -> None:
    np.testing.assert_array_equal(read_pickled(PYTHON2)["a"], np.array([1, 2], np.float32))
    assert list(read_pickled(PYTHON2_ORDERED).items()) == [("b", 2), ("a", 1)]


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


# What would set attributes of a function that the pickle may name: a part of ours, changed for all who come later.
ATTACKS = {
    "attributes of a function": b"c_codecs\nencode\n(N}Vx\nI1\nstb.",
    "defaults of a function": b"ccollections\nOrderedDict\n(N}V__defaults__\n)stb.",
    "state of a number": b"I1\n(N}Vx\nI1\nstb.",
    "a function as a function's argument": b"cnumpy\ndtype\n(cnumpy\ndtype\ntR.",
    "a call of no function": b"(dI1\n\x85R.",
    "a call with no arguments in a tuple": b"ccollections\nOrderedDict\n]R.",
    "reconstructing another class": b"cnumpy.core.multiarray\n_reconstruct\n(ccollections\nOrderedDict\ntR.",
    "a persistent thing": b"Pabc\n.",
    "a persistent thing, binary": b"NQ.",
    "an extension": b"\x82\x01.",
    "another extension": b"\x84\x01\x00\x00\x00.",
    "an instance": b"(ios\nsystem\n.",
    "an instance of a class on the stack": b"(cnumpy\ndtype\no.",
    "a new object": b"cnumpy\nndarray\n)\x81.",
    "a new object with keywords": b"cnumpy\nndarray\n)}\x92.",
    "a set": b"\x80\x04\x8f.",
    "an attribute of what is allowed": b"\x80\x04" + text("numpy") + text("dtype.__globals__") + b"\x93.",
    "bytes of a claimed number": b"c__builtin__\nbytes\n(I1099511627776\ntR.",
    "a module of what is allowed": b"cnumpy.core\nmultiarray._reconstruct.__class__\n.",
    "a name that is no text": b"\x80\x04K\x01K\x02\x93.",
    "an array of a claimed size": OLD.replace(b"(I2\n", b"(I1099511627776\n"),
    "a shape beyond all numbers": OLD.replace(b"(I2\n", b"(I0\nI" + b"9" * 30 + b"\n"),
    "a negative shape": OLD.replace(b"(I2\n", b"(I-2\n"),
    "too many axes": OLD.replace(b"(I2\n", b"(" + b"I1\n" * 65),
    "a number of more digits than Python reads": b"I" + b"9" * 5000 + b"\n.",
    "a value put into a list by name": b"]Va\nI1\ns.",
    "a dictionary with an odd count": b"(Va\nI1\nVb\nd.",
    "an array in itself": b"cnumpy.core.multiarray\n_reconstruct\np0\n(cnumpy\nndarray\n(I0\ntVb\ntRp1\n(I1\n(t"
    b"cnumpy\ndtype\n(VO8\nI00\nI01\ntRI00\n(lg1\natb.",
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_are_refused(attack: str) -> None:
    functions = dict(pickled_arrays._FUNCTIONS)
    with pytest.raises(Unreadable):
        read_pickled(ATTACKS[attack])
    assert functions == pickled_arrays._FUNCTIONS
    assert all(not vars(each) and not (each.__defaults__ or ((),))[0] for each in functions.values())


TUPLES = b"\x80\x02})" + b"\x85" * 1_000_000 + b"Ns."
BOMBS = {
    "a memo slot": b"\x80\x02Nr\xff\xff\xff\x7f.",
    "a memo slot in digits": b"Np99999999999999\n.",
    "bytes that are not there": b"\x80\x04\x8e" + struct.pack("<Q", 2**36) + b".",
    "changeable bytes that are not there": b"\x80\x05\x96" + struct.pack("<Q", 2**33) + b".",
    "a frame that is not there": b"\x80\x04\x95" + struct.pack("<Q", 2**36) + b".",
    "a text again and again": b"c_codecs\nencode\np0\n0(lp1\n0V" + b"x" * 100_000 + b"\np2\n0g1\n"
    + b"g0\n(g2\nVlatin1\ntRa" * 2000 + b".",
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_small_files_do_not_take_much_memory(bomb: str) -> None:
    tracemalloc.start()
    try:
        with contextlib.suppress(Unreadable):
            read_pickled(BOMBS[bomb])
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()


def test_one_piece_of_bytes_under_many_names_is_not_copied() -> None:
    content = bytes(1_000_000)
    step = b"\x80\x05cnumpy._core.numeric\n_frombuffer\nq\x00\x96" + struct.pack("<Q", len(content)) + content
    kind = b"q\x01cnumpy\ndtype\n(Vu1\ntRq\x02000}"
    names = b"".join(
        b"V%d\nh\x00(h\x01h\x02" % index + number(len(content)) + b"\x85VC\ntRs" for index in range(300)
    )
    tracemalloc.start()
    try:
        assert len(read_pickled(step + kind + names + b".")) == 300
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()


def test_tuples_in_tuples_as_a_key_do_not_end_the_process() -> None:
    """Hashing them would overflow the stack of C, so another process tries."""
    script = "import sys; from roundoff.tensors.pickled import read_pickled; read_pickled(sys.stdin.buffer.read())"
    done = subprocess.run([sys.executable, "-c", script], input=TUPLES, capture_output=True, check=False)
    assert done.returncode == 1
    assert b"whose keys are no names" in done.stderr


def test_absurdly_many_steps_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickled_arrays, "_MOST_STEPS", 1000)
    with pytest.raises(Unreadable, match="absurdly many steps"):
        read_pickled(b"]" * 1001 + b".")


BASES = [saved({"a": np.arange(3, dtype=np.float32), "b": np.zeros((2, 0), np.int8)}), OLD, FIFTH, PYTHON2]


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
