"""How much quantization hurts each layer alone: the same input through the layer in float, and quantized."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from roundoff.core.quantizer import Consumer
from roundoff.graph.blocks import BlockModels
from roundoff.graph.cutting import Block
from roundoff.graph.shapes import values
from roundoff.runtime.session import Session, open_session
from roundoff.vendors.amct.common.auto_calibration.sensitivity import SensitivityBase
from roundoff.vendors.amct.gathering import Gathering
from roundoff.vendors.amct.layers import Layer
from roundoff.vendors.amct.quantizers import quantizers_of
from roundoff.vendors.amct.records import LayerRecord
from roundoff.vendors.amct.workflow import Opened
from roundoff.vendors.errors import CannotRun

__all__ = ["rank_layers"]

_AT_ONCE = 16
"""Layers whose inputs are held together."""


def rank_layers(
    gathering: Gathering, opened: Opened, records: Mapping[str, LayerRecord], *, sensitivity: SensitivityBase
) -> dict[str, float]:
    """The mean over batches of what a sensitivity says of each layer.

    Args:
        gathering: What calibration has seen, with the batches kept; its model may name tensors in its own way,
            and its weights may be rounded.
        opened: The float model.
        records: Of the layers that are quantized.
        sensitivity: Compares both outputs.

    Raises:
        CannotRun: No batch was kept.
        ModelFailed: A layer cannot be run.
    """
    layers = [opened.layers[name] for name in records if name in opened.layers]
    found: dict[str, float] = {}
    for start in range(0, len(layers), _AT_ONCE):
        some = layers[start : start + _AT_ONCE]
        scores = {layer.name: [] for layer in some}  # type: dict[str, list[float]]
        pairs = dict(_pairs(opened, records, some))
        seen = {layer.name: [tensor for tensor, _ in gathering.layers[layer.name].inputs] for layer in some}
        tensors = list(dict.fromkeys(tensor for names in seen.values() for tensor in names))
        for batch in gathering.values(tensors):
            for layer in some:
                read = zip(layer.inputs, seen[layer.name], strict=True)
                feed = {tensor: batch[name] for (tensor, _), name in read}
                plain, quantized = (session.run(feed)[0].ravel() for session in pairs[layer.name])
                scores[layer.name].append(float(sensitivity.compare(plain, quantized)))
        if any(not each for each in scores.values()):
            what = "calibration() ran the modified model where it cannot be seen, so that layers cannot be ranked."
            raise CannotRun(what, fix=opened.flavour.how_to_run)
        found |= {name: float(np.mean(each)) for name, each in scores.items()}
    return found


def _pairs(
    opened: Opened, records: Mapping[str, LayerRecord], layers: Sequence[Layer]
) -> Iterator[tuple[str, tuple[Session, Session]]]:
    models = BlockModels(opened.model, values(opened.model))
    for layer in layers:
        own = quantizers_of(opened.model, opened.layers, {layer.name: records[layer.name]})
        # Sums have 32 bits: what the bias loses is nothing against the rest.
        readings = {
            Consumer(layer.name, each.input): (quantizer,)
            for quantizer in own
            if quantizer.kind != "bias"
            for each in quantizer.consumers
        }
        nodes = dict.fromkeys((layer.name, *((layer.bias.node,) if layer.bias is not None else ())))
        reads = dict.fromkeys(tensor for tensor, _ in layer.inputs)
        block = Block(tuple(nodes), tuple(reads), (layer.output,), 0.0)
        yield layer.name, (open_session(models.make(block)), open_session(models.make(block, readings)))
