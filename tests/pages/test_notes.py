"""Notes and what did not find room, below a table; what is to be read first stands behind the verdict."""

import io
import shlex

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from roundoff.messages.catalogue import plain
from roundoff.messages.message import message
from roundoff.pages.blocks import Headline, Page, Paragraph, notes, preparation_note
from roundoff.pages.terminal import command_lines, left_out_lines, verdict_lines


def test_rows_without_room() -> None:
    assert left_out_lines(0) == []
    assert left_out_lines(1)[0].text == "1 row that matters less is left out; --top all shows them"
    assert left_out_lines(7)[0].text == "7 rows that matter less are left out; --top all shows them"


def test_what_is_said_first_stands_behind_the_verdict() -> None:
    first = message("check_calibration.said_first", text="raw pixels", fix="divide by 255")
    prepared = preparation_note(["folded", first, "checked"])
    assert [each.first for each in prepared] == [True, False]
    assert "2 remarks" in prepared[1].text.en
    assert preparation_note([first]) == notes([first])
    assert preparation_note([]) == ()
    verdict, other = Headline("good", plain("FINE")), Paragraph(plain("and so on"))
    page = Page("any", plain("any"), (verdict, other, *prepared))
    assert page.blocks == (verdict, prepared[0], other, prepared[1])


@given(st.lists(st.text(st.sampled_from("ab-/ '\"$é"), min_size=1, max_size=12), max_size=9), st.integers(20, 100))
def test_a_command_in_lines_is_the_same_command(words: list[str], width: int) -> None:
    text = shlex.join(["roundoff", "layers", *words])
    lines = command_lines(text, width)
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(text)


def test_a_path_that_is_longer_than_a_line_goes_on_beyond_its_edge() -> None:
    path = "/models/of/somebody/" + "deep/" * 12 + "network.onnx"
    words = ["roundoff", "layers", path, "--data", "samples.npy"]
    text = io.StringIO()
    Console(width=40, file=text).print(
        verdict_lines([("why", "9.7 dB"), ("next", shlex.join(words))]), crop=False, overflow="ignore"
    )
    first, *lines = text.getvalue().splitlines()
    assert first.split() == ["why", "9.7", "dB"]
    assert shlex.split("\n".join(lines).replace("\\\n", "").removeprefix("  next")) == words
