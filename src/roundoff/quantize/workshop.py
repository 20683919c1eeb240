"""Transforms and corrections as a recipe names them: which there are, and applying one of them."""

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

from roundoff.core.progress import Progress
from roundoff.core.recipe import Step
from roundoff.core.target import Target
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.runtime.feeds import Samples

__all__ = ["INSTALLED", "Job", "Workshop"]


@dataclass(frozen=True, slots=True)
class Job:
    """What a step may work with.

    Attributes:
        target: For which chip.
        samples: What activations are observed on.
        threads: Threads to use; all cores when None.
        max_memory: Bytes the process may take; most of the free memory when None.
        progress: Told how far it is.
    """

    target: Target
    samples: Samples
    threads: int | None
    max_memory: int | None
    progress: Progress


class Workshop(Protocol):
    """Applies the steps of recipes."""

    def transforms(self) -> tuple[str, ...]:
        """Names of the transforms there are."""
        ...

    def corrections(self) -> tuple[str, ...]:
        """Names of the corrections there are."""
        ...

    def transform(self, step: Step, model: Model, job: Job) -> Any:
        """The changed model, who took part, and notes: ``model``, ``taken`` and ``notes``."""
        ...

    def correct(self, step: Step, quantized: QuantizedModel, job: Job) -> Any:
        """The changed numbers, who took part, and notes: ``quantized``, ``taken`` and ``notes``."""
        ...


class _Installed:
    """The steps that come with roundoff; a search does without those that an installation lacks."""

    def transforms(self) -> tuple[str, ...]:
        module = _module("transforms")
        return () if module is None else tuple(module.transform_names())

    def corrections(self) -> tuple[str, ...]:
        module = _module("corrections")
        return () if module is None else tuple(module.correction_names())

    def transform(self, step: Step, model: Model, job: Job) -> Any:
        return importlib.import_module(f"{_PACKAGE}.transforms").apply_transform(step, model, _context(job))

    def correct(self, step: Step, quantized: QuantizedModel, job: Job) -> Any:
        return importlib.import_module(f"{_PACKAGE}.corrections").apply_correction(step, quantized, _context(job))


_PACKAGE = "roundoff.quantize"
INSTALLED: Workshop = _Installed()
"""The transforms and corrections that come with roundoff."""


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(f"{_PACKAGE}.{name}")
    except ModuleNotFoundError:
        return None


def _context(job: Job) -> Any:
    made = importlib.import_module(f"{_PACKAGE}.work_context").WorkContext
    return made(job.target, job.samples, threads=job.threads, max_memory=job.max_memory, progress=job.progress)
