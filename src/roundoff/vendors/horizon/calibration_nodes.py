"""Quantizers under the names of calibration nodes: ``<tensor>_HzCalibration``."""

from collections.abc import Iterable, Sequence

import numpy as np

from roundoff.core.quantizers import Quantizer
from roundoff.errors import BadInput, nearest
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.studies.switches import Switches
from roundoff.vendors.errors import WrongValue

__all__ = ["CalibrationNodes", "bits_of", "threshold_of"]

_ENDING = "_HzCalibration"


class CalibrationNodes:
    """The quantizers of a model by the names Horizon's tools give them.

    Where a tensor has several quantizers, those after the first get a number behind their names.

    Args:
        quantized: The model.

    Attributes:
        by_name: Each quantizer by its name, in execution order.
    """

    by_name: dict[str, Quantizer]

    def __init__(self, quantized: QuantizedModel) -> None:
        self._switches = Switches(quantized)
        self._op_types: dict[str, str] = {
            node.name: node.op_type for node in quantized.float_model.proto.graph.node
        }
        self.by_name = {}
        for quantizer in quantized.quantizers:
            name, number = f"{quantizer.tensor}{_ENDING}", 0
            while name in self.by_name:
                number += 1
                name = f"{quantizer.tensor}{_ENDING}_{number}"
            self.by_name[name] = quantizer
        self._names = {quantizer.name: name for name, quantizer in self.by_name.items()}

    @property
    def ordinary(self) -> tuple[str, ...]:
        """Ordinary nodes that own calibration nodes, in execution order."""
        return self._switches.nodes

    def name_of(self, quantizer: str) -> str:
        """What the quantizer is called here."""
        return self._names[quantizer]

    def calibrating(self, tensor: str, quantizer: str) -> str:
        """What the quantizer of a tensor is called here, which is named only where the tensor has several."""
        return self._names.get(quantizer, f"{tensor}{_ENDING}")

    def of_kind(self, kind: str) -> tuple[str, ...]:
        """All calibration nodes of weights or of activations."""
        return tuple(name for name, quantizer in self.by_name.items() if quantizer.kind == kind)

    def quantizers(self, names: Iterable[str]) -> tuple[str, ...]:
        """Our names of all quantizers that these nodes, or these words, stand for.

        Raises:
            WrongValue: A name means none.
        """
        wanted: set[str] = set()
        for name in names:
            wanted.update(self._quantizers(name))
        return tuple(each for each in self._switches.names if each in wanted)

    def _quantizers(self, name: str) -> tuple[str, ...]:
        if name in self.by_name:
            return (self.by_name[name].name,)
        try:
            return self._switches.find(name)
        except BadInput as error:
            raise WrongValue(error.what, fix=self.suggestion(name, error.fix)) from error

    def suggestion(self, name: str, otherwise: str) -> str:
        """Which name was probably meant."""
        if name in self._op_types:
            return otherwise
        return nearest(name, (*self.by_name, *self.ordinary))

    def without(self, quantizers: Iterable[str]) -> tuple[str, ...]:
        """Our names of all other quantizers."""
        return self._switches.complement(quantizers)

    def is_ordinary(self, name: str) -> bool:
        """Whether it is a node of the network, and not a calibration node."""
        return name in self._op_types

    def op_type(self, name: str) -> str:
        """The operation of an ordinary node, or of the first that reads what a calibration node quantizes."""
        if name in self.by_name:
            consumers = self.by_name[name].consumers
            name = consumers[0].node if consumers else ""
        return self._op_types.get(name, "")

    def feeding(self, nodes: Sequence[str]) -> list[str]:
        """The calibration nodes of weights and activations that belong to these nodes, each once."""
        found: dict[str, None] = {}
        for node in nodes:
            if node in self.by_name:
                found[node] = None
            else:
                names = (self.name_of(each) for each in self.quantizers([node]))
                found |= dict.fromkeys(name for name in names if self.by_name[name].kind != "bias")
        return list(found)


def threshold_of(quantizer: Quantizer) -> float:
    """The largest magnitude it represents; of several channels the smallest."""
    spec, params = quantizer.spec, quantizer.params
    # The lowest code of symmetric ones has no counterpart, and is not what the scale was made from.
    lowest = -spec.code_max if spec.signed and spec.symmetric else spec.code_min
    limits = [
        np.abs((code - params.zero_point) * params.scale.astype(np.float64)) for code in (lowest, spec.code_max)
    ]
    return float(np.maximum(*limits).min())


def bits_of(quantizer: Quantizer) -> int:
    """Width of its codes."""
    return quantizer.spec.bits
