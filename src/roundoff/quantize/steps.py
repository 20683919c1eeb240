"""Transforms and corrections as a recipe names them: which there are, and applying one of them."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

from roundoff.core.plan import Step
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import ModelHashes, QuantizedModel, quantizer_hash
from roundoff.quantize.corrections.registry import Corrected, apply_correction, correction_names
from roundoff.quantize.step_table import WorkContext
from roundoff.quantize.transforms.registry import Transformed, apply_transform, transform_names

__all__ = [
    "INSTALLED",
    "Corrections",
    "Workshop",
]


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


# Corrections one after the other; what was computed before from the same numbers is not computed again.

# Each holds the codes of all weights.
_MOST_KEPT = 6


class _Corrects(Protocol):
    def correct(self, step: Step, quantized: QuantizedModel, context: WorkContext) -> Corrected: ...


@dataclass(frozen=True, slots=True)
class _Key:
    step: Step
    model: str
    quantizers: str


class Corrections:
    """Applies corrections to quantized models with the same samples for the same chip.

    Args:
        workshop: Knows them.
        context: What they work with.
    """

    def __init__(self, workshop: _Corrects, context: WorkContext) -> None:
        self._workshop, self._context = workshop, context
        self._known: OrderedDict[_Key, Corrected] = OrderedDict()
        # There is one float model for each chain of transforms.
        self._hashes = ModelHashes()

    def apply(self, step: Step, quantized: QuantizedModel) -> Corrected:
        """A quantized model with other codes.

        Raises:
            BadInput: There is no such correction, option or node, or the samples do not fit the model.
            ModelFailed: The model cannot be run.
        """
        key = _Key(step, self._hashes.of(quantized.float_model), quantizer_hash(quantized.quantizers))
        if key not in self._known:
            self._known[key] = self._workshop.correct(step, quantized, self._context)
            while len(self._known) > _MOST_KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]
