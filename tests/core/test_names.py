"""File stems for tensor names, and natural order."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.core.names import MAX_STEM_BYTES, FileNames, names_by_stem, natural_key, shown

PORTABLE = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9_.+-]*(?<!\.)")

# Short alphabets make clashes likely; whole Unicode makes everything else likely.
NAMES = st.one_of(
    st.text(alphabet="aA_/.: -", max_size=4),
    st.text(max_size=30),
    st.text(alphabet="ab/", min_size=140, max_size=400),
    st.sampled_from(["con", "CON.x", "nul", "lpt1", "com9.tar.gz", ".", "..", "", " ", ".hidden", "-rf"]),
)


@given(st.lists(NAMES, unique=True, max_size=30))
def test_every_name_gets_a_unique_portable_stem(names: list[str]) -> None:
    book = FileNames()
    stems = [book.stem(name) for name in names]
    assert len({stem.casefold() for stem in stems}) == len(names)
    assert all(PORTABLE.fullmatch(stem) for stem in stems), stems
    assert all(len(stem.encode()) <= MAX_STEM_BYTES for stem in stems)


@given(st.lists(NAMES, max_size=20))
def test_stems_are_deterministic_and_the_same_name_keeps_its_stem(names: list[str]) -> None:
    first, second = FileNames(), FileNames()
    stems = [first.stem(name) for name in names]
    assert stems == [second.stem(name) for name in names]
    assert stems == [first.stem(name) for name in names]


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("conv1.weight", "conv1.weight"),
        ("/model/conv 1:0", "_model_conv_1_0"),
        ("", "_"),
        ("..", "__"),
        (".hidden", "_hidden"),
        ("-rf", "_rf"),
        ("end.", "end_"),
        ("con", "_con"),
        ("NUL.x", "_NUL.x"),
        ("\u5377\u79ef1", "__1"),
    ],
)
def test_stems_stay_readable(name: str, stem: str) -> None:
    assert FileNames().stem(name) == stem


def test_clashes_and_long_names_get_a_hash() -> None:
    book = FileNames()
    stems = [book.stem(name) for name in ("a/b", "a_b", "A/B", "x" * 300, "x" * 299 + "y")]
    assert stems[0] == "a_b"
    assert re.fullmatch(r"a_b-[0-9a-f]{8}", stems[1])
    assert re.fullmatch(r"A_B-[0-9a-f]{8}", stems[2])
    assert all(re.fullmatch(r"x{141}-[0-9a-f]{8}", stem) for stem in stems[3:])


def test_reserved_stems_are_not_handed_out() -> None:
    assert FileNames(reserved=["Tensors.JSON"]).stem("tensors.json") != "tensors.json"


def test_other_alphabets_and_limits_count_bytes() -> None:
    book = FileNames(illegal=re.compile(r"[\x00]"), limit=20)
    assert book.stem("a/b\0") == "a/b_"
    assert len(book.stem("\u5377" * 30).encode()) <= 20


def test_a_stem_means_the_name_it_is_most_like() -> None:
    names = ["/conv/out:0", "conv_out_0", "/a", "a", "_b", "/b"]
    assert names_by_stem(names) == {
        **{name: name for name in names},
        "conv/out:0": "/conv/out:0",
        "b": "/b",
        "_conv_out_0": "/conv/out:0",
        "_a": "/a",
        FileNames(reserved=["_b"]).stem("/b"): "/b",
    }


@given(st.lists(NAMES, unique=True, max_size=20))
def test_every_name_is_found_by_itself_and_every_stem_leads_to_a_name(names: list[str]) -> None:
    book, known = FileNames(), names_by_stem(names)
    assert all(known[name] == name for name in names)
    assert {book.stem(name) for name in names} <= set(known)
    assert set(known.values()) == set(names)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("plain \u5377/a.npy", "plain \u5377/a.npy"),
        (os.fsdecode(b"caf\xe9/\x80\xff"), "caf\\xe9/\\x80\\xff"),
        ("lone \ud800 \udfff", "lone \\ud800 \\udfff"),
        (Path("a") / os.fsdecode(b"\xc4"), "a/\\xc4"),
    ],
)
def test_any_path_can_be_printed(path: Path | str, text: str) -> None:
    assert shown(path) == text


@given(st.text(st.characters(min_codepoint=0xD700, max_codepoint=0xE0FF), max_size=20))
def test_what_is_shown_can_be_encoded_and_stays_as_it_is(text: str) -> None:
    assert shown(text).encode().decode() == shown(text) == shown(shown(text))


def test_numbers_sort_as_numbers() -> None:
    names = ["layer10", "layer2", "layer2.1", "layer", "2", "10", "01", "b", "a9z", "a10"]
    ordered = ["01", "2", "10", "a9z", "a10", "b", "layer", "layer2", "layer2.1", "layer10"]
    assert sorted(names, key=natural_key) == ordered


@given(st.lists(st.text(alphabet="ab019.", max_size=8), max_size=10))
def test_natural_order_is_total_and_stable(names: list[str]) -> None:
    backwards = names[::-1]
    assert sorted(names, key=natural_key) == sorted(backwards, key=natural_key)


@given(st.integers(0, 10**30), st.integers(0, 10**30))
def test_natural_order_compares_any_numbers(left: int, right: int) -> None:
    assert (natural_key(f"x{left}") < natural_key(f"x{right}")) == (left < right)


def test_thousands_of_digits_are_no_number_to_parse() -> None:
    assert natural_key("9" * 5000) > natural_key("8" * 5000)
