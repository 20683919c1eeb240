"""The binary format: round trips, old ways of storing, and damage told with its place."""

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.core.text_proto import TextEntry, TextMessage
from roundoff.errors import BadInput
from roundoff.graph.caffe.net import blob_array, blob_message
from roundoff.graph.caffe.wire import Decoded, decode, encode, packed_varints, to_signed, varint, varints


def read(data: bytes, table: str = "NetParameter") -> Decoded:
    return decode(np.frombuffer(data, np.uint8), table, what="net.caffemodel")


def delimited(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_numbers_survive(numbers: list[int]) -> None:
    packed = packed_varints(np.array(numbers, np.uint64))
    assert varints(np.frombuffer(packed, np.uint8)).tolist() == numbers


@given(st.integers(-(2**63), 2**63 - 1))
def test_signed_numbers_survive(number: int) -> None:
    assert to_signed(int(varints(np.frombuffer(varint(number), np.uint8))[0])) == number


@pytest.mark.parametrize("data", [b"\x80", b"\x01\x80", b"\xff" * 10 + b"\x01"])
def test_cut_and_overlong_numbers_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"cut short|64 bits"):
        varints(np.frombuffer(data, np.uint8))


scalars: dict[str, st.SearchStrategy[Any]] = {
    "name": st.text(max_size=20),
    "type": st.sampled_from(["Convolution", "ReLU"]),
    "bottom": st.text(max_size=5),
    "loss_weight": st.floats(width=32, allow_nan=False),
    "propagate_down": st.booleans(),
    "phase": st.sampled_from(["TRAIN", "TEST"]),
}


@given(st.data())
def test_messages_survive(data: st.DataObject) -> None:
    single = {"name", "type", "phase"}
    drawn = data.draw(st.lists(st.sampled_from(sorted(scalars)), max_size=8))
    names = [name for place, name in enumerate(drawn) if name not in single or name not in drawn[:place]]
    entries = tuple(TextEntry(name, data.draw(scalars[name])) for name in names)
    pooling = TextEntry("pooling_param", TextMessage((TextEntry("pool", "AVE"), TextEntry("kernel_size", 3))))
    message = TextMessage((*entries, pooling))
    found = read(b"".join(encode(message, "LayerParameter")), "LayerParameter")
    assert found == Decoded(message, 0)


@pytest.mark.parametrize("dtype", ["float32", "int8", "int32", "uint64"])
def test_blobs_survive(dtype: str) -> None:
    array = np.arange(-6 if dtype != "uint64" else 0, 6, dtype=dtype)
    wanted = array.reshape(2, -1)
    stored = read(b"".join(encode(blob_message(wanted), "BlobProto")), "BlobProto").message
    found = blob_array(stored, owner="it")
    assert found.dtype == array.dtype
    assert np.array_equal(found, wanted)


def blob(body: bytes) -> Array:
    return blob_array(read(body, "BlobProto").message, owner="it")


def test_weights_are_windows_on_the_file() -> None:
    data = np.frombuffer(b"".join(encode(blob_message(np.ones(1000, np.float32)), "BlobProto")), np.uint8)
    stored = decode(data, "BlobProto", what="it").message.get("data")
    assert isinstance(stored, np.ndarray)
    assert np.shares_memory(stored, data)


def test_values_each_with_a_tag_and_shapes_of_four_numbers() -> None:
    body = b"".join(varint(number << 3) + varint(size) for number, size in ((1, 1), (2, 1), (3, 2), (4, 3)))
    body += b"".join(b"\x2d" + np.float32(value).tobytes() for value in range(6))
    assert blob(body).tolist() == [[[[0, 1, 2], [3, 4, 5]]]]
    apart = b"\x2d" + np.float32(7).tobytes() + body[:8] + b"\x2d" + np.float32(8).tobytes()
    apart = apart.replace(body[:8], delimited(7, b"\x08\x02"))
    assert blob(apart).tolist() == [7, 8]


def test_double_values_become_float32() -> None:
    body = delimited(7, b"\x0a\x01\x02") + delimited(8, np.array([0.1, 2], "<f8").tobytes())
    found = blob(body)
    assert found.dtype == np.float32
    assert found.tolist() == np.array([0.1, 2], np.float32).tolist()


def test_unknown_fields_are_skipped_and_counted() -> None:
    group = varint(900 << 3 | 3) + varint(1 << 3) + b"\x05" + varint(900 << 3 | 4)
    unknown = (
        varint(800 << 3) + b"\x05" + varint(801 << 3 | 1) + bytes(8) + varint(802 << 3 | 5) + bytes(4) + group
    )
    found = read(delimited(1, b"net") + unknown + delimited(803, b"xyz"))
    assert found == Decoded(TextMessage((TextEntry("name", "net"),)), 5)


def test_the_last_value_of_a_single_field_counts() -> None:
    assert read(delimited(1, b"old") + delimited(1, b"new")).message.all("name") == ["new"]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (delimited(1, b"net")[:-1], "at byte 1 of 4, 3 bytes should follow, but only 2 are left"),
        (varint(5) * 0 + b"\x9a", "in the middle of a number"),
        (b"\xff" * 11, "more than 64 bits"),
        (delimited(100, delimited(7, delimited(5, b"abc"))), "no whole number of values"),
        (delimited(100, delimited(7, b"\x2d\x00")), "in the middle of a value"),
        (varint(1 << 3 | 5) + bytes(4), "another way than its type"),
        (varint(900 << 3 | 7), "unknown kind 7"),
        (varint(900 << 3 | 3) * 100, "nested too deeply"),
        (delimited(1, b"\xff\xfe"), "not UTF-8"),
        (delimited(100, delimited(7, b"\x2a" + varint(2**40))), f"{2**40} bytes should follow"),
    ],
)
def test_damage_is_told_with_its_place(data: bytes, told: str) -> None:
    with pytest.raises(BadInput, match=told) as caught:
        read(data)
    assert "at byte" in str(caught.value)


def test_absurdly_many_fields_are_refused() -> None:
    with pytest.raises(BadInput, match="fields"):
        read(delimited(100, b"") * ((1 << 18) + 1))


@given(st.binary(max_size=200))
@settings(max_examples=600)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(BadInput):
        read(data)


@given(st.data())
@settings(max_examples=300)
def test_a_damaged_file_is_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(sound_file())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(whole) - 1))
        whole[place] = data.draw(st.integers(0, 255))
    try:
        net = read(bytes(whole[: data.draw(st.integers(0, len(whole)))])).message
        for layer in net.messages("layer"):
            for stored in layer.messages("blobs"):
                blob_array(stored, owner="it")
    except BadInput:
        pass


def sound_file() -> bytes:
    layer = TextMessage((
        TextEntry("name", "conv"), TextEntry("type", "Convolution"),
        TextEntry("blobs", blob_message(np.ones((2, 3), np.float32))),
        TextEntry("convolution_param", TextMessage((TextEntry("num_output", 2), TextEntry("kernel_size", 3)))),
    ))  # fmt: skip
    return b"".join(encode(TextMessage((TextEntry("name", "net"), TextEntry("layer", layer))), "NetParameter"))
