"""Transforms and corrections as a recipe names them: which there are, and applying one of them."""

from typing import Protocol

from roundoff.core.recipe import Step
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.quantize.corrections import Corrected, apply_correction, correction_names
from roundoff.quantize.transforms import Transformed, apply_transform, transform_names
from roundoff.quantize.work_context import WorkContext

__all__ = ["INSTALLED", "Workshop"]


class Workshop(Protocol):
    """Applies the steps of recipes."""

    def transforms(self) -> tuple[str, ...]:
        """Names of the transforms there are."""
        ...

    def corrections(self) -> tuple[str, ...]:
        """Names of the corrections there are."""
        ...

    def transform(self, step: Step, model: Model, context: WorkContext) -> Transformed:
        """The changed model, who took part, and notes."""
        ...

    def correct(self, step: Step, quantized: QuantizedModel, context: WorkContext) -> Corrected:
        """The changed numbers, who took part, and notes."""
        ...


class _Installed:
    def transforms(self) -> tuple[str, ...]:
        return transform_names()

    def corrections(self) -> tuple[str, ...]:
        return correction_names()

    def transform(self, step: Step, model: Model, context: WorkContext) -> Transformed:
        return apply_transform(step, model, context)

    def correct(self, step: Step, quantized: QuantizedModel, context: WorkContext) -> Corrected:
        return apply_correction(step, quantized, context)


INSTALLED: Workshop = _Installed()
"""The transforms and corrections that come with roundoff."""
