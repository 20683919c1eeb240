"""What a layer-by-layer run cannot tell, so that nobody takes it for good."""

from dataclasses import replace

import numpy as np

from roundoff.core.layer_scores import LayerVerdict
from roundoff.core.quantization import dequantize, fake_quantize
from roundoff.core.quantizer import Quantizer
from roundoff.core.tensors import Array
from roundoff.core.wording import counted
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.weights import Weights

__all__ = ["with_limits"]

# Values that are this part of a step away from a code are on it but for the last bits.
_ON_THE_GRID = 1e-3
# Of what is in the file this is not in the quantizers that were run.
_UNREAD = ("not_represented", "disagreement")
_LISTED = 3


def with_limits(verdict: LayerVerdict, quantized: QuantizedModel) -> LayerVerdict:
    """The verdict with what it does not cover; without anything it covers it is left open."""
    unjudged = []
    weights = [each for each in quantized.quantizers if each.kind == "weight"]
    rounded = bool(weights) and _all_rounded(quantized, weights)
    if rounded:
        unjudged.append("weights are not judged: no float model with unrounded weights was given")
    dynamic = len({each.node for each in quantized.oddities if each.kind == "dynamic"})
    if dynamic:
        nodes = counted(dynamic, "node")
        unjudged.append(f"activations of {nodes} are not judged: their scales are computed while it runs")
    unread = list(dict.fromkeys(each.text for each in quantized.oddities if each.kind in _UNREAD))
    unjudged += unread[:_LISTED]
    if len(unread) > _LISTED:
        unjudged.append(
            f"and {counted(len(unread) - _LISTED, 'more place')} like these; roundoff audit lists them"
        )
    activations = any(each.kind == "activation" for each in quantized.quantizers)
    nothing = rounded and not activations
    kind = "open" if nothing or (unread and verdict.kind == "fine") else verdict.kind
    return replace(verdict, kind=kind, not_judged=tuple(unjudged))


def _all_rounded(quantized: QuantizedModel, quantizers: list[Quantizer]) -> bool:
    """Whether quantizing changes no weight: then the float ones are not known."""
    values = Weights(quantized.float_model)
    return all(each.tensor in values.protos and not _changes(each, values[each.tensor]) for each in quantizers)


def _changes(quantizer: Quantizer, values: Array) -> bool:
    params, spec = quantizer.params, quantizer.spec
    if quantizer.codes is not None:
        rounded = dequantize(quantizer.codes, params, spec.axis)
    else:
        rounded = fake_quantize(values, params, spec)
    # What half precision cannot hold is no rounding to codes.
    lost = np.abs(rounded - rounded.astype(values.dtype)).max(initial=0.0)
    apart = np.abs(rounded - values.astype(np.float32, copy=False)).max(initial=0.0)
    return bool(apart > _ON_THE_GRID * float(params.scale.min()) + lost)
