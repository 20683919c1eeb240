"""Tests of texts for the screen."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.messages.message import (
    cell_text,
    escape_control,
    safe_cell,
    sanitize_for_display,
    short_name,
)


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    more: tuple[str, ...] = ()
    reasons: Mapping[str, str] | None = None
    value: float = 0.0


@given(st.text())
def test_nothing_that_steers_a_terminal_is_left(text: str) -> None:
    shown = escape_control(text)
    assert all(0x20 <= ord(letter) < 0x7F or ord(letter) >= 0xA0 for letter in shown)
    assert not set(shown) & set("\u2028\u2029\u202e\u2066\u200b\ufeff")
    assert escape_control(shown) == shown
    assert escape_control(text, newlines=True).replace("\n", "\\n") == shown


@pytest.mark.parametrize("name", ["block.1/conv_2:0", "Gewichte (größer)", "层/卷积", "a b", "C:\\new"])
def test_ordinary_names_stay_as_they_are(name: str) -> None:
    assert escape_control(name) == name


@given(st.text())
def test_json_means_the_same_after_it(text: str) -> None:
    assert json.loads(escape_control(json.dumps({text: text}, ensure_ascii=False, indent=1), newlines=True)) == {
        text: text
    }


def test_texts_are_changed_wherever_they_are() -> None:
    report = (Row("a\x1b[1m", ("b\nc",), {"d\r": "e\x07"}, 1.5), [Row("fine")])
    changed, [same] = sanitize_for_display(report)
    assert changed == Row("a\\x1b[1m", ("b\\nc",), {"d\\r": "e\\x07"}, 1.5)
    assert same is report[1][0]


def test_a_report_without_such_texts_is_not_copied() -> None:
    report = (Row("größe", ("x",), {"a": "b"}), frozenset({"y"}))
    assert sanitize_for_display(report) is report


@given(st.text(alphabet="abc/", max_size=400))
def test_names_in_tables_keep_both_ends(name: str) -> None:
    short = short_name(name)
    assert len(short) <= 84
    assert name.startswith(short[:40])
    assert name.endswith(short[-40:])
    assert (short == name) == (len(name) <= 84)


@given(st.text())
def test_a_cell_is_neither_computed_nor_steers_anything(text: str) -> None:
    cell = safe_cell(text)
    assert not cell.lstrip().startswith(("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20"))
    assert escape_control(cell, newlines=True) == cell
    assert cell_text(cell) == escape_control(text, newlines=True) or text.startswith("'")


@pytest.mark.parametrize(
    ("name", "cell"),
    [("=cmd()", "'=cmd()"), (" +1", "' +1"), ("\uff1dcmd", "'\uff1dcmd"), ("a\x1b[2J", "a\\x1b[2J"),
     ("\x07=1", "\\x07=1"), ("\u202etxt.exe", "\\u202etxt.exe"), ("\tx", "\\tx"),
     ("conv_1:0", "conv_1:0"), ("a\nb", "a\nb")],
)  # fmt: skip
def test_cells(name: str, cell: str) -> None:
    assert safe_cell(name) == cell
