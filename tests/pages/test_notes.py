"""Lines below tables."""

from roundoff.pages.terminal import left_out_lines, note_lines


def test_remarks_on_the_preparation_are_counted_not_repeated() -> None:
    lines = [line.plain for line in note_lines(["one sample only"], ["folded", "checked"])]
    assert lines == [
        "note: one sample only",
        "note: for 2 remarks on how the model was prepared see the document (--json, -o)",
    ]
    assert note_lines([], []) == []


def test_rows_without_room() -> None:
    assert left_out_lines(0) == []
    assert left_out_lines(1)[0].plain == "1 row that matters less is left out; --top all shows them"
    assert left_out_lines(7)[0].plain == "7 rows that matter less are left out; --top all shows them"
