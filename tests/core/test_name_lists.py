"""Lists of names as people type them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.core.names import NameList, parse_name_list
from roundoff.errors import BadInput

NAMES = st.text(st.characters(exclude_characters="'\"", exclude_categories=["Cs", "Cc"]), max_size=8)


def quoted(names: NameList) -> str:
    return f"[{', '.join(repr_of(each) for each in names)}]"


def repr_of(each: str | NameList) -> str:
    return f"'{each}'" if isinstance(each, str) else quoted(each)


@given(
    st.recursive(NAMES, lambda inner: st.lists(inner, max_size=4).map(tuple)).filter(
        lambda x: not isinstance(x, str)
    )
)
def test_what_is_written_in_quotes_is_read_as_it_is(names: NameList) -> None:
    assert parse_name_list(quoted(names)) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[a,b]", ("a", "b")),
        ("['a', \"b\"]", ("a", "b")),
        ("[[a,b],[c]]", (("a", "b"), ("c",))),
        (" [ /f/f.0/Conv , b c ,] ", ("/f/f.0/Conv", "b c")),
        ("[block[3],[block[3],x]]", ("block[3]", ("block[3]", "x"))),
        ("a", ("a",)),
        ("a,b", ("a", "b")),
        ("", ()),
        ("[]", ()),
        ("[[]]", ((),)),
    ],
)
def test_spellings(text: str, names: NameList) -> None:
    assert parse_name_list(text) == names


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[a", "a bracket is not closed"),
        ("[[a]", "a bracket is not closed"),
        ("['a]", "the quote ' is not closed"),
        ("[a]b", "'b' follows the list"),
        ("['a' 'b']", 'a comma is missing before "\'"'),
    ],
)
def test_what_is_wrong_is_said(text: str, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_name_list(text)
    assert reason in caught.value.what
    assert "[[a],[a,b]]" in caught.value.fix
