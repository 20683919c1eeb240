"""What every way of finding sensitivities offers."""

from collections.abc import Generator, Sequence
from typing import Protocol

from roundoff.core.progress import SILENT, Progress
from roundoff.core.sensitivity import Engine, Subject
from roundoff.core.tensors import Array

__all__ = ["Measurement", "SensitivityEngine"]

Measurement = tuple[Subject, Array]
"""A subject, and its scores of shape (samples, outputs, metrics)."""


class SensitivityEngine(Protocol):
    """Scores subjects on the samples it was last given."""

    @property
    def name(self) -> Engine:
        """What its results are called."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader should know of how it measures."""
        ...

    def load(self, samples: Sequence[int], subjects: Sequence[Subject], *, progress: Progress = SILENT) -> None:
        """Take other samples, in this order, and get ready to measure these subjects on them."""
        ...

    @property
    def loaded(self) -> tuple[int, ...]:
        """The samples that are loaded, in the order of the scores."""
        ...

    def key(self, subject: Subject) -> str:
        """A hash of everything that the scores of a subject on these samples depend on."""
        ...

    def cost(self, subject: Subject) -> int:
        """Steps of progress that measuring a subject on these samples takes."""
        ...

    def measure(
        self, subjects: Sequence[Subject], *, deadline: float | None = None
    ) -> Generator[Measurement, None, None]:
        """Score subjects on these samples, each as soon as it is done, without those not done by the deadline."""
        ...

    def close(self) -> None:
        """Give back memory, files and sessions."""
        ...
