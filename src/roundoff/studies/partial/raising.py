"""Raising quantizers to 16 bits: the same range, in finer steps."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from roundoff.core.quantizers import Quantizer, QuantParams, QuantSpec
from roundoff.core.tensors import Array
from roundoff.studies.partial.result import Raise

__all__ = ["WIDE_BITS", "Changes", "raised"]

WIDE_BITS = 16
"""What quantizers are raised to."""


def raised(quantizer: Quantizer, *, signed: bool) -> Quantizer:
    """A quantizer with codes of 16 bits for the range it has; one that has as many bits already stays as it is.

    The step shrinks by what the number of codes grows: 65,535 / 255 = 257 for 8 bits, 32,767 / 127 where the scale
    is the largest magnitude over the largest code. Scales that are powers of two, or were chosen by the side of
    the larger magnitude, shrink by 256, which keeps them what they are.

    Args:
        quantizer: The quantizer.
        signed: Whether the new codes can be negative.
    """
    old = quantizer.spec
    if old.bits >= WIDE_BITS:
        return quantizer
    spec = replace(old, bits=WIDE_BITS, signed=signed)
    params = quantizer.params
    scale = params.scale.astype(np.float64) * _shrinking(old, spec)
    if old.symmetric:
        zero_point = np.full(params.zero_point.shape, 0 if signed else 1 << (WIDE_BITS - 1), dtype=np.int64)
    else:
        zero_point = _zero_point(old, spec, params)
    return replace(quantizer, spec=spec, params=QuantParams(scale.astype(np.float32), zero_point), codes=None)


def _shrinking(old: QuantSpec, new: QuantSpec) -> float:
    if old.power_of_two or (old.symmetric and old.symmetric_scale == "larger_side"):
        return 2.0 ** (old.bits - new.bits)
    if old.symmetric and old.symmetric_scale == "max_code":
        return _positive_codes(old) / _positive_codes(new)
    return (2.0**old.bits - 1) / (2.0**new.bits - 1)


def _positive_codes(spec: QuantSpec) -> float:
    return 2.0 ** (spec.bits - 1) - 1


def _zero_point(old: QuantSpec, new: QuantSpec, params: QuantParams) -> Array:
    """The code for zero, as far from the lowest code as before, in values."""
    lowest = -(1 << (old.bits - 1)) if old.signed else 0
    steps = (params.zero_point - lowest) / _shrinking(old, new)
    new_lowest = -(1 << (new.bits - 1)) if new.signed else 0
    return np.asarray(np.clip(np.rint(new_lowest + steps), new.code_min, new.code_max).astype(np.int64))


class Changes:
    """The quantizers of a model with some of them off, or raised to 16 bits.

    Weights get signed codes, as on any chip. Biases of nodes with a raised input stay in float: sums of products
    of 16 bits are kept in more than the 32 bits that biases have, and their steps are that much finer.

    Args:
        quantizers: All of them.
        to: What those that are changed become.
    """

    def __init__(self, quantizers: Sequence[Quantizer], to: Raise) -> None:
        self._quantizers, self._to = quantizers, to
        # Made once: whoever runs several choices knows by them what the choices have in common.
        self._raised = {
            each.name: raised(each, signed=to == "s16" or each.kind == "weight")
            for each in quantizers
            if to != "float" and each.kind != "bias"
        }

    def with_changed(self, names: Iterable[str]) -> tuple[Quantizer, ...]:
        """The quantizers that are on when these are changed."""
        chosen = frozenset(names)
        if self._to == "float":
            return tuple(each for each in self._quantizers if each.name not in chosen)
        nodes = {consumer.node for each in self._quantizers if each.name in chosen for consumer in each.consumers}
        found = []
        for each in self._quantizers:
            if each.kind == "bias":
                if not any(consumer.node in nodes for consumer in each.consumers):
                    found.append(each)
            else:
                found.append(self._raised[each.name] if each.name in chosen else each)
        return tuple(found)
