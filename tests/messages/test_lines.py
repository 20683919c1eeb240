# ruff: noqa: RUF001
"""Lines of a terminal: nothing is lost, nothing reaches beyond the edge, numbers stay with their units."""

import re

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from roundoff.messages.lines import longest_atom, wrapped_lines

WORDS = st.lists(
    st.sampled_from(
        ["SQNR", "9.7 dB", "100 %", "block4/pointwise_norm", "0 .. 6.3", "12 个样本", "量程为", "（其输入", "），"]
    ),
    max_size=12,
)


@given(words=WORDS, width=st.integers(24, 60), blank=st.sampled_from([" ", "", "  "]))
def test_nothing_is_lost_and_nothing_reaches_beyond_the_edge(words: list[str], width: int, blank: str) -> None:
    text = blank.join(words)
    lines = wrapped_lines(text, width, others="  ", torn=True)
    assert re.sub(r"\s", "", "".join(lines)) == re.sub(r"\s", "", text)
    assert all(cell_len(line) <= width for line in lines)


@given(words=WORDS.filter(bool), width=st.integers(24, 60))
def test_numbers_stay_with_their_units(words: list[str], width: int) -> None:
    for line in wrapped_lines(" ".join(words), width):
        assert not re.search(r"^(?:dB|%|个|\.\.)|\d$|\.\.$", line) or line.rstrip().endswith("6.3")


def test_chinese_breaks_between_characters_but_not_before_its_marks() -> None:
    text = "'block3/relu' (Relu) 被截断：量程为 0 .. 1.26，数值达到 0 .. 6.3（10.7 % 在量程之外）"
    assert wrapped_lines(text, 30) == [
        "'block3/relu' (Relu) 被截断：",
        "量程为 0 .. 1.26，数值达到",
        "0 .. 6.3（10.7 % 在量程之外）",
    ]


def test_a_long_name_is_torn_only_where_it_may_be() -> None:
    assert wrapped_lines("a averylongname b", 6) == ["a", "averylongname", "b"]
    assert wrapped_lines("a averylongname b", 6, torn=True) == ["a", "averyl", "ongnam", "e b"]
    assert longest_atom("9.7 dB, cosine") == 7


def test_lines_that_are_there_stay() -> None:
    assert wrapped_lines("one\n\n  two", 20, first="- ", others="  ") == ["- one", "", "    two"]
    assert wrapped_lines("", 20) == [""]
