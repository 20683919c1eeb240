"""Networks that differ only in scales and zero points of activations share a session, which is fed these."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.graph.qdq import code_element, uses_every_code


def is_tunable(quantizer: Quantizer) -> bool:
    """Whether all that a network holds of a quantizer's range are scale and zero point."""
    spec = quantizer.spec
    if quantizer.kind != "activation" or spec.rounding != "half_even" or not uses_every_code(spec):
        return False
    element = code_element(spec)
    return element.widened == element.dtype  # others cannot be fed


def structure(quantizer: Quantizer) -> tuple[Any, ...]:
    """What two quantizers of one place have in common when the same nodes do for both."""
    if not is_tunable(quantizer):
        return quantizer.name, id(quantizer)
    return quantizer.name, quantizer.spec, _tuned_shape(quantizer)


def _tuned_shape(quantizer: Quantizer) -> tuple[int, ...]:
    return () if quantizer.spec.axis is None else quantizer.params.scale.shape


def make_tunable(model: Model, names: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Make scales and zero points of quantizers inputs that have a value; their names, by quantizer.

    Args:
        model: Whose graph is changed.
        names: Quantizers, by what they are called in the graph.
    """
    graph = model.proto.graph
    by_node = {f"{inside}_QuantizeLinear": name for inside, name in names.items()}
    found = {by_node[node.name]: (node.input[1], node.input[2]) for node in graph.node if node.name in by_node}
    wanted = {name for pair in found.values() for name in pair}
    for tensor in graph.initializer:
        if tensor.name in wanted:
            value = graph.input.add(name=tensor.name)
            value.type.tensor_type.elem_type = tensor.data_type
            value.type.tensor_type.shape.SetInParent()
            for size in tensor.dims:
                value.type.tensor_type.shape.dim.add(dim_value=size)
    return found


def tuned_feed(quantizers: Iterable[Quantizer], places: Mapping[str, tuple[str, str]]) -> dict[str, Array]:
    """What a session is fed beside a sample: scales and zero points of quantizers, from `make_tunable`."""
    found: dict[str, Array] = {}
    for each in quantizers:
        scale, zero = places[each.name]
        kind, shape = code_element(each.spec).dtype, _tuned_shape(each)
        found[scale] = np.asarray(np.asarray(each.params.scale, np.float32).reshape(shape))
        found[zero] = np.asarray(np.asarray(each.params.zero_point, kind).reshape(shape))
    return found
