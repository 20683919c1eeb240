"""Lines below a table: what is not shown, what the reader should know, and where the rest is written."""

from collections.abc import Sequence

from rich.text import Text

from roundoff.core.wording import counted

__all__ = ["left_out_lines", "note_lines"]


def left_out_lines(rows: int) -> list[Text]:
    """Says that so many rows did not find room, if any; those shown matter most."""
    if not rows:
        return []
    matters = "matters less is" if rows == 1 else "matter less are"
    return [Text(f"{counted(rows, 'row')} that {matters} left out; --top all shows them", style="dim")]


def note_lines(notes: Sequence[str], preparation: Sequence[str] = ()) -> list[Text]:
    """A line for each note, and a single one for all remarks on how the model was prepared.

    Args:
        notes: What is said of this run.
        preparation: What was said when the model was prepared and quantized. It is the same in every run that
            looks into the model, so that it is only counted here; documents hold it.
    """
    lines = [f"note: {note}" for note in notes]
    if preparation:
        remarks = counted(len(preparation), "remark")
        lines.append(f"note: for {remarks} on how the model was prepared see the document (--json, -o)")
    return [Text(line, style="dim") for line in lines]
