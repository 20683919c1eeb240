"""Carrying out the changes of remedies on the quantizers of a network."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from roundoff.core.findings import Change
from roundoff.core.quantizer import Quantizer, QuantParams
from roundoff.core.tensors import Array
from roundoff.diagnosis.alternatives import rounded_again, with_bits, with_range, with_slice_ranges
from roundoff.diagnosis.case import Case, Fixes
from roundoff.diagnosis.ideal import at_its_range
from roundoff.diagnosis.suspects import Suspect
from roundoff.graph.edges import Edges

__all__ = ["edit", "retied"]

# Two float32 products of the same scales differ by less.
_SAME_SCALE = 1e-4
_BIAS_INPUT = 2


def edit(case: Case, change: Change) -> Fixes:
    """The quantizers that a change puts in the place of others; none when it cannot be made in this way.

    Args:
        case: The network.
        change: One change of a remedy.
    """
    found: dict[str, Quantizer | None] = {}
    for suspect in _named(case, change):
        found |= _edited(case, suspect, change)
    return found


def _named(case: Case, change: Change) -> Iterator[Suspect]:
    tensors = set(change.tensors)
    for suspect in case.facts.suspects:
        everyone = change.kind == "recalibrate" and not tensors and suspect.kind == "activation"
        if everyone or tensors & set(suspect.tensors):
            yield suspect


def _edited(case: Case, suspect: Suspect, change: Change) -> Fixes:
    members = [case.facts.quantizers[name] for name in suspect.quantizers]
    found: Fixes = {}
    match change.kind:
        case "range" | "recalibrate":
            found = _ranges(case, suspect, change)
        case "codes":
            found = {each.name: rounded_again(each) for each in members}
        case "bits":
            bits = int(change.value[1:])
            found = {name: with_bits(each, bits) for name, each in _at_data(case, suspect).items()}
        case "float":
            found = dict.fromkeys(suspect.quantizers)
        case "per_channel" if suspect.kind == "weight":
            found = _per_channel(case, suspect, change)
    return found


def _ranges(case: Case, suspect: Suspect, change: Change) -> Fixes:
    if suspect.tensor in case.facts.observed and change.low is not None and change.high is not None:
        members = (case.facts.quantizers[name] for name in suspect.quantizers)
        return {each.name: with_range(each, change.low, change.high) for each in members}
    return _at_data(case, suspect)


def _at_data(case: Case, suspect: Suspect) -> dict[str, Quantizer]:
    """The quantizers of a suspect over the range of its values; each slice of a weight keeps its own."""
    members = [case.facts.quantizers[name] for name in suspect.quantizers]
    if suspect.kind == "weight":
        return {each.name: at_its_range(each, case.facts.values(each.tensor)) for each in members}
    if suspect.tensor not in case.facts.observed:
        return {}
    return {each.name: with_range(each, *case.facts.value_range(suspect)) for each in members}


def _per_channel(case: Case, suspect: Suspect, change: Change) -> Fixes:
    quantizer = case.facts.quantizers[suspect.name]
    axis = case.facts.channel_axis(quantizer)
    if axis is None or (change.axis is not None and change.axis != axis):
        return {}
    values = case.facts.values(quantizer.tensor)
    axes = tuple(at for at in range(values.ndim) if at != axis)
    return {quantizer.name: with_slice_ranges(quantizer, axis, values.min(axis=axes), values.max(axis=axes))}


def retied(case: Case, fixes: Fixes) -> Fixes:
    """The fixes, with biases that follow: integers add biases at the product of the scales of input and weight."""
    before = Edges(case.facts.quantized.float_model, case.facts.quantized.quantizers)
    found = dict(fixes)
    for node in case.facts.quantized.float_model.proto.graph.node:
        read = [before.read_by(node.name, at) for at in range(min(len(node.input), _BIAS_INPUT + 1))]
        if len(read) <= _BIAS_INPUT or any(each is None for each in read):
            continue
        source, weight, bias = (each for each in read if each is not None)
        if bias.kind != "bias" or bias.name in fixes or not _touched((source, weight), fixes):
            continue
        if _product(source, weight).shape == bias.params.scale.shape and np.allclose(
            _product(source, weight), bias.params.scale, rtol=_SAME_SCALE
        ):
            found[bias.name] = _tied(bias, found.get(source.name, source), found.get(weight.name, weight))
    return found


def _touched(quantizers: Iterable[Quantizer], fixes: Fixes) -> bool:
    return any(each.name in fixes for each in quantizers)


def _product(source: Quantizer, weight: Quantizer) -> Array:
    return np.asarray(source.params.scale * weight.params.scale, dtype=np.float32)


def _tied(bias: Quantizer, source: Quantizer | None, weight: Quantizer | None) -> Quantizer | None:
    """A bias at the new product of scales; in float where there is none."""
    if source is None or weight is None:
        return None
    scale = _product(source, weight)
    params = QuantParams(scale, np.zeros(scale.shape, dtype=np.int64))
    return replace(bias, params=params, spec=bias.spec.along(0 if scale.ndim else None), codes=None)
