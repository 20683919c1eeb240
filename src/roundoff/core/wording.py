"""Numbers of things in words."""

from collections.abc import Sequence

__all__ = ["EXACT_DB", "counted", "decibels_text", "nonfinite_note"]

EXACT_DB = 150.0
"""Float32 itself keeps less: above this two sides are equal but for what nobody sees."""

_MOST_NAMED = 3


def counted(number: int, noun: str) -> str:
    """A number and its noun, with an s unless there is exactly one: ``1 tensor``, ``2 tensors``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def decibels_text(value: float) -> str:
    """Decibels in a sentence, no more than mean something: ``31.5 dB``, ``>150 dB``."""
    return f">{EXACT_DB:.0f} dB" if value > EXACT_DB else f"{value:.1f} dB"


def nonfinite_note(noun: str, names: Sequence[str]) -> tuple[str, ...]:
    """A note on things whose values are not all finite; none when there are no such things.

    Args:
        noun: What they are, as ``tensor``.
        names: What they are called.
    """
    if not names:
        return ()
    named = ", ".join(names[:_MOST_NAMED]) + (" ..." if len(names) > _MOST_NAMED else "")
    return (f"{counted(len(names), noun)} with NaN or infinite values, which are left out: {named}",)
