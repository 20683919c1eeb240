"""What of a network's outputs a verdict rests on, as data."""

from dataclasses import dataclass
from typing import Literal

from roundoff.messages.message import Message

__all__ = ["OutputCoverage", "Unjudged", "WhyUnjudged"]

WhyUnjudged = Literal["missing", "unmatched", "shape", "nonfinite", "unreadable", "not_numbers"]


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A tensor of which nothing can be said.

    Attributes:
        name: Its name in the reference.
        why: ``missing``: nothing of its size is left on the other side. ``unmatched``: something is, and it is not
            certain that it is this tensor. ``shape``: the shapes differ. ``nonfinite``: it holds, or is computed
            from, NaN or infinite values. ``unreadable``: a sample of it cannot be read. ``not_numbers``: it holds
            no real numbers, or codes without a scale.
        detail: More of it; empty when there is no more.
    """

    name: str
    why: WhyUnjudged
    detail: str | Message = ""


@dataclass(frozen=True, slots=True)
class OutputCoverage:
    """Which outputs of a network were judged; a verdict is good only when all of them were.

    Attributes:
        judged: Outputs that have a partner of the same shape and scores that are numbers.
        not_judged: The others.
        known: Whether it is known which tensors are outputs; where it is not, any tensor may be one.
    """

    judged: tuple[str, ...]
    not_judged: tuple[Unjudged, ...] = ()
    known: bool = True

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self.judged) + len(self.not_judged)

    @property
    def complete(self) -> bool:
        """Whether there are outputs, and every one was judged."""
        return bool(self.judged) and not self.not_judged
