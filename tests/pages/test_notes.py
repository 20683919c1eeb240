"""Notes and what did not find room, below a table; what is to be read first stands behind the verdict."""

from roundoff.messages.catalogue import plain
from roundoff.messages.message import message
from roundoff.pages.blocks import Headline, Page, Paragraph, notes, preparation_note
from roundoff.pages.terminal import left_out_lines


def test_rows_without_room() -> None:
    assert left_out_lines(0) == []
    assert left_out_lines(1)[0].plain == "1 row that matters less is left out; --top all shows them"
    assert left_out_lines(7)[0].plain == "7 rows that matter less are left out; --top all shows them"


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
