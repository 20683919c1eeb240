"""A sound quantized model, and copies of it with one thing wrong."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.plan import NodePlan, PlannedQuantizer, Precision, QuantPlan
from roundoff.core.quantizers import Quantizer, QuantParams
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from tests.graph.quantized_nets import mixed_net, mixed_quantizers
from tests.models import loaded


def sound(folder: Path) -> QuantizedModel:
    """`mixed_net` with weights that use their codes and a scale for every tensor."""
    model: Model = loaded(mixed_net(), folder)
    return QuantizedModel(model, _with_bias_scales([_full_range(each) for each in mixed_quantizers()]))


def _full_range(quantizer: Quantizer) -> Quantizer:
    if quantizer.tensor == "w3":
        # One scale per row, like the weights of the convolutions.
        params = QuantParams(np.full(5, 2.0**-7, np.float32), np.zeros(5, np.int64))
        return replace(quantizer, spec=quantizer.spec.along(0), params=params)
    return scaled(quantizer, 2.0**-2) if quantizer.kind == "weight" else quantizer


def _with_bias_scales(quantizers: list[Quantizer]) -> tuple[Quantizer, ...]:
    """Biases at the product of input and weight scale."""
    at = {edge: quantizer for quantizer in quantizers for edge in quantizer.consumers}

    def matching(quantizer: Quantizer) -> Quantizer:
        if quantizer.kind != "bias":
            return quantizer
        (edge,) = quantizer.consumers
        source, weight = (at[replace(edge, input=place)] for place in (0, 1))
        scale = np.asarray(source.params.scale * weight.params.scale)
        params = QuantParams(scale, np.zeros(scale.shape, np.int64))
        return replace(quantizer, spec=quantizer.spec.along(0), params=params)

    return tuple(map(matching, quantizers))


def scaled(quantizer: Quantizer, factor: float) -> Quantizer:
    """A quantizer with other scales."""
    scale = (quantizer.params.scale * np.float32(factor)).astype(np.float32)
    return replace(quantizer, params=QuantParams(scale, quantizer.params.zero_point))


def changed(model: QuantizedModel, name: str, **changes: Any) -> QuantizedModel:
    """A model with one quantizer that is different."""
    quantizers = tuple(replace(each, **changes) if each.name == name else each for each in model.quantizers)
    return replace(model, quantizers=quantizers)


def without(model: QuantizedModel, *names: str) -> QuantizedModel:
    """A model that lacks some quantizers."""
    return replace(model, quantizers=tuple(each for each in model.quantizers if each.name not in names))


def plan_of(model: QuantizedModel) -> QuantPlan:
    """The plan that would have led to a model."""
    planned = tuple(
        PlannedQuantizer(
            each.name, each.tensor, each.kind, each.spec, each.consumers, output=each.output, after=each.after
        )
        for each in model.quantizers
    )
    wish = Precision("u8", "", "u8")
    nodes = tuple(
        NodePlan(node.name, node.op_type, node.name, wish, wish) for node in model.float_model.proto.graph.node
    )
    return QuantPlan("some chip", planned, nodes)
