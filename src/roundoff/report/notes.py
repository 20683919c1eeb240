"""Lines below a table: what is not shown, what the reader should know, and where the rest is written."""

from collections.abc import Sequence

from rich.text import Text

from roundoff.report.words import sentence, told

__all__ = ["left_out_lines", "note_lines"]


def left_out_lines(rows: int) -> list[Text]:
    """Says that so many rows did not find room, if any; those shown matter most."""
    return [Text(told("terminal.left_out", count=rows), style="dim")] if rows else []


def note_lines(notes: Sequence[str], preparation: Sequence[str] = ()) -> list[Text]:
    """A line for each note, and a single one for all remarks on how the model was prepared.

    Args:
        notes: What is said of this run.
        preparation: What was said when the model was prepared and quantized. It is the same in every run that
            looks into the model, so that it is only counted here; documents hold it.
    """
    said = [*notes, *([told("terminal.preparation", count=len(preparation))] if preparation else [])]
    return [Text(told("terminal.note", text=sentence(text)), style="dim") for text in said]
