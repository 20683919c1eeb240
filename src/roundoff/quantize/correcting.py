"""Corrections one after the other; what was computed before from the same numbers is not computed again."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

from roundoff.core.recipe import Step
from roundoff.graph.identity import ModelHashes, quantizer_hash
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.quantize.corrections import Corrected
from roundoff.quantize.work_context import WorkContext

__all__ = ["Corrections"]

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
