"""Protocol buffers' text format by our own field tables."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.core.text_proto import (
    Field,
    FieldTable,
    TextEntry,
    TextMessage,
    TextValue,
    parse_text_proto,
    text_proto_text,
)
from roundoff.errors import BadInput

INNER = FieldTable("Inner", {"x": Field("int"), "deep": Field("message")})
TABLE = FieldTable(
    "Outer",
    {
        "flag": Field("bool"),
        "count": Field("int"),
        "ratio": Field("float"),
        "ratios": Field("float", repeated=True),
        "name": Field("string"),
        "names": Field("string", repeated=True),
        "raw": Field("bytes"),
        "mode": Field("enum", names={"SLOW": 0, "FAST": 1}),
        "inner": Field("message", table=INNER, repeated=True),
        "either": Field("int"),
        "other": Field("int"),
    },
    one_of=(("either", "other"),),
)


def parse(text: str, table: FieldTable = TABLE) -> TextMessage:
    return parse_text_proto(text, table, what="file.cfg")


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        ("flag: true", "flag", True),
        ("flag : f", "flag", False),
        ("count: -0x10", "count", -16),
        ("count: 010", "count", 8),
        ("ratio: 1.5e-3f", "ratio", 1.5e-3),
        ("ratio: .5", "ratio", 0.5),
        ("ratio: -inf", "ratio", -math.inf),
        ("ratio: 3", "ratio", 3.0),
        ("name: 'a' \"b\" # comment\n 'c'", "name", "abc"),
        (r'name: "\101\x42\t\"\u00e9"', "name", 'AB\t"é'),
        (r'raw: "\377\000"', "raw", b"\xff\x00"),
        ("mode: FAST", "mode", "FAST"),
        ("mode: 0", "mode", "SLOW"),
        ("name: 'é'", "name", "é"),
    ],
)
def test_values(text: str, field: str, expected: object) -> None:
    found = parse(text).get(field)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "text",
    ["inner { x: 1 } inner { x: 2 }", "inner: { x: 1; }, inner < x: 2 >", "inner: [{x: 1}, <x: 2>]"],
)
def test_messages_in_every_form(text: str) -> None:
    assert [each.get("x") for each in parse(text).messages("inner")] == [1, 2]


def test_lists_and_repeats_are_the_same() -> None:
    assert parse("ratios: [1, 2.5]").all("ratios") == parse("ratios: 1 ratios: 2.5").all("ratios") == [1.0, 2.5]
    assert parse("ratios: []").all("ratios") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flag: maybe", "line 1: 'flag' takes true or false, not 'maybe'"),
        ("\ncount: 1.5", "line 2: 'count' takes a whole number, not '1.5'"),
        ("count: '1'", "'count' takes a whole number, not a text"),
        ("ratio: x", "takes a number"),
        ("name: 3", "'name' takes a text in quotes, not '3'"),
        ("mode: MEDIUM", "takes one of SLOW, FAST"),
        ("nmae: 'x'", "Outer has no field 'nmae'"),
        ("count: 1\ncount: 2", "line 2: 'count' is given twice (also in line 1)"),
        ("either: 1 other: 2", "'other' and 'either' exclude each other"),
        ("inner { x: 1", "line 1: the text ends inside Inner, which begins at line 1"),
        ("inner { x: 1 > ", "there is a '>' too many"),
        ("inner { x: 1 } }", "there is a '}' too many"),
        ("count 1", "a ':' is expected behind 'count'"),
        ("inner: 3", "'inner' takes a message in braces"),
        ("count { }", "'count' takes a value"),
        ("count: [1]", "has one value, not a list"),
        ("ratios: [1 2]", "a ',' or a ']' is expected"),
        ("names: 'open\n'", "has no meaning here"),
        (r"name: '\q'", r"the escape '\\q' means nothing"),
        ("name: '\\377'", "not UTF-8"),
        ("count:", "not the end of the text"),
        ("5: 1", "the name of a field is expected"),
        ("count: 5abc", "has no meaning here"),
    ],
)
def test_what_is_refused_names_the_line(text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(text)
    assert message in caught.value.what
    assert "file.cfg" in caught.value.what


def test_a_required_field_is_missed() -> None:
    table = FieldTable("Named", {"name": Field("string", required=True)})
    with pytest.raises(BadInput, match="Named needs 'name'"):
        parse("", table)


def test_unknown_fields_are_kept_where_the_table_is_open() -> None:
    table = FieldTable("Layer", {"name": Field("string")}, open=True)
    found = parse("name: 'a' custom_param { pool: MAX k: 3 r: 0.5 bias: true t: 'x' } custom_param: {}", table)
    first, second = found.messages("custom_param")
    assert [(entry.name, entry.value) for entry in first.entries] == [
        ("pool", "MAX"), ("k", 3), ("r", 0.5), ("bias", True), ("t", "x")
    ]  # fmt: skip
    assert second == TextMessage()


def test_nesting_is_limited() -> None:
    deep = "deep {" * 5000
    with pytest.raises(BadInput, match="nested more than"):
        parse(f"inner {{ {deep}")


@given(st.floats(width=32, allow_nan=False), st.integers(-(2**63), 2**63), st.text(), st.binary(), st.booleans())
def test_what_is_written_is_read_back(ratio: float, count: int, name: str, raw: bytes, flag: bool) -> None:
    inner = TextMessage((TextEntry("x", count),))
    values: dict[str, TextValue] = {
        "ratio": ratio,
        "count": count,
        "name": name,
        "raw": raw,
        "flag": flag,
        "mode": "FAST",
        "inner": inner,
    }
    message = TextMessage(tuple(TextEntry(key, each) for key, each in values.items()))
    text = text_proto_text(message, TABLE)
    found = parse(text)
    assert np.float32(found.get("ratio")) == np.float32(ratio)  # type: ignore[arg-type]
    for key in ("count", "name", "raw", "flag", "mode"):
        assert found.get(key) == values[key]
    assert [each.get("x") for each in found.messages("inner")] == [count]


@given(st.text(alphabet="ab:{}<>[],;'\"\\0.#-\n", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse(text, FieldTable("Any", {}, open=True))
    except BadInput as error:
        assert "file.cfg" in error.what  # noqa: PT017 - either outcome is fine, a traceback is not
