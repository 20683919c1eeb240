"""Texts of protocol buffers: arrays, numbers of all digits, and texts that are absurdly large."""

import time

import numpy as np
import pytest

from roundoff.core.text_proto import Field, FieldTable, TextEntry, TextMessage, parse_text_proto, text_proto_text
from roundoff.errors import BadInput

TABLE = FieldTable("Table", {"many": Field("float", repeated=True), "one": Field("float")})


def test_an_array_is_written_as_a_list() -> None:
    text = text_proto_text(TextMessage((TextEntry("many", np.array([1.5, -2], np.float32)),)), TABLE)
    assert text == "many: [1.5, -2]\n"
    assert parse_text_proto(text, TABLE, what="it").all("many") == [1.5, -2.0]


def test_a_number_may_be_given_as_it_is_to_be_written() -> None:
    text = text_proto_text(TextMessage((TextEntry("one", repr(1 / 3)),)), TABLE)
    assert parse_text_proto(text, TABLE, what="it").get("one") == 1 / 3


def test_more_values_than_allowed_are_refused() -> None:
    assert len(parse_text_proto("many: 1 " * 10, TABLE, what="it", most_fields=10).entries) == 10
    with pytest.raises(BadInput, match="absurdly many values"):
        parse_text_proto("many: 1 " * 11, TABLE, what="it", most_fields=10)


def test_long_numbers_take_no_square_of_their_length() -> None:
    began = time.process_time()
    with pytest.raises(BadInput, match="has no meaning here"):
        parse_text_proto("one: " + "9" * 100_000 + "x", TABLE, what="it")
    assert time.process_time() - began < 5  # it was minutes
    for text in ("1.", ".5", "1.5e-3f", "0x1F", "7f", "1e5"):
        assert parse_text_proto(f"one: {text}", TABLE, what="it").get("one") is not None


def test_long_words_are_cut_in_messages() -> None:
    with pytest.raises(BadInput) as caught:
        parse_text_proto("one: " + "x" * 1000, TABLE, what="it")
    assert "x..." in str(caught.value)
    assert len(str(caught.value)) < 200
