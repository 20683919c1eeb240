"""Numbers of things in words."""

__all__ = ["counted"]


def counted(number: int, noun: str) -> str:
    """A number and its noun, with an s unless there is exactly one: ``1 tensor``, ``2 tensors``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
