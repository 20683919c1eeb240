"""What a configuration file says, before anybody asks whether it makes sense; and what is wrong with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from roundoff.core.wording import counted
from roundoff.errors import BadInput

__all__ = ["Document", "Place", "Problem", "problem_of", "refuse", "spelled"]

Place: TypeAlias = "tuple[str | int, ...]"
"""The keys and numbers that lead to a value."""

_MOST_LISTED = 100
"""Whoever has more errors than this has given the wrong file."""

_FIX = "correct the configuration; docs/reference/pulsar2-config.md lists every key"


@dataclass(frozen=True, slots=True)
class Document:
    """Plain values, and where each of them was said.

    Attributes:
        name: What the document is called in messages.
        value: Dictionaries, lists, texts, numbers, truth values and None.
        origins: Where a value was said, as ``line 3`` or ``--quant.check``; not known for every value.
    """

    name: str
    value: Any
    origins: Mapping[Place, str] = field(default_factory=dict)

    def origin(self, place: Place) -> str:
        """Where a value, or else the nearest around it, was said; empty when that is not known."""
        return next(
            (self.origins[place[:end]] for end in range(len(place), 0, -1) if place[:end] in self.origins), ""
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    place: Place
    text: str


def problem_of(place: Place, error: BadInput, *, called: str = "") -> Problem:
    """What an error says, as one of many.

    Args:
        place: What in the configuration it is about.
        error: The error.
        called: How its text starts, which the place says already.
    """
    what = error.what.removeprefix(called).strip()
    return Problem(place, f"{what.rstrip('.')}; {error.fix}" if error.fix else what.rstrip("."))


def spelled(place: Place) -> str:
    """A place as people write it: ``quant.layer_configs[0].data_type``."""
    return (
        "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".") or "the file"
    )


def refuse(document: Document, problems: Sequence[Problem]) -> None:
    """Raise an error that lists everything that is wrong; nothing when nothing is.

    Raises:
        BadInput: There are problems.
    """
    if not problems:
        return
    lines = [f"  {_line(document, problem)}" for problem in problems[:_MOST_LISTED]]
    if len(problems) > _MOST_LISTED:
        lines.append(f"  ... and {len(problems) - _MOST_LISTED} more")
    raise BadInput("\n".join([f"{document.name} has {counted(len(problems), 'error')}:", *lines]), fix=_FIX)


def _line(document: Document, problem: Problem) -> str:
    origin = document.origin(problem.place)
    return f"{f'{origin}: ' if origin else ''}{spelled(problem.place)}: {problem.text}"
