"""What is known of a quantized network before anything is changed in it."""

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from roundoff.analysis.channel_axes import weight_axis
from roundoff.core.quantization import representable_range
from roundoff.core.quantizer import Quantizer
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.diagnosis.observing import Damage, Observed, quantize_values
from roundoff.diagnosis.suspects import Suspect, find_suspects
from roundoff.graph.codes import codes_of
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import Value
from roundoff.graph.weights import Weights

__all__ = ["Facts"]

# Samples that were not looked at may reach so many times as far.
_UNSEEN = 2.0


class Facts:
    """A quantized network and what its tensors hold.

    Args:
        quantized: The network.
        everything: All its tensors, with their shapes.
        observed: What each activation that is quantized holds.
        arithmetic: How its hardware computes.
        asked: Quantizers that were to be wider, with the bits that were asked for.
        partly: Whether some of the samples were not looked at, so that tensors may hold more.
    """

    def __init__(
        self,
        quantized: QuantizedModel,
        everything: tuple[Value, ...],
        *,
        observed: Mapping[str, Observed],
        arithmetic: Arithmetic,
        asked: Mapping[str, int],
        partly: bool = False,
    ) -> None:
        self.quantized, self.everything = quantized, everything
        self.observed, self.arithmetic, self.asked = observed, arithmetic, asked
        self._partly = partly
        self.quantizers = {each.name: each for each in quantized.quantizers}
        self.weights = Weights(quantized.float_model)
        self._damage: dict[int, tuple[Quantizer, Damage]] = {}

    @cached_property
    def suspects(self) -> tuple[Suspect, ...]:
        """Who can be to blame."""
        return find_suspects(self.quantized)

    @cached_property
    def nodes(self) -> dict[str, Any]:
        """Nodes of the float model by name."""
        return {node.name: node for node in self.quantized.float_model.proto.graph.node}

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of tensors in the first sample, constants among them."""
        found = {each.name: each.shape for each in self.everything if each.shape is not None}
        return found | {name: self.weights.shape(name) for name in self.weights}

    @cached_property
    def _bits(self) -> dict[str, Counter[int]]:
        found: dict[str, Counter[int]] = {}
        for each in self.quantized.quantizers:
            found.setdefault(each.kind, Counter())[each.spec.bits] += 1
        return found

    def prevailing_bits(self, quantizer: Quantizer) -> int:
        """The width that was asked for it, else the one that most of its kind have; its own where that is more."""
        usual = self._bits[quantizer.kind].most_common(1)[0][0]
        return max(quantizer.spec.bits, self.asked.get(quantizer.name, usual))

    def values(self, tensor: str) -> Array:
        """A constant, as float32."""
        return self.weights[tensor].astype(np.float32, copy=False)

    def channel_axis(self, quantizer: Quantizer) -> int | None:
        """The axis of a constant that has a slice for each channel of the result; None where it has one axis."""
        rank = len(self.shapes.get(quantizer.tensor, ()))
        node = self.nodes.get(quantizer.consumers[0].node) if quantizer.consumers else None
        if node is None or rank < 2:
            return None
        transposed = any(each.name == "transB" and each.i for each in node.attribute)
        return weight_axis(node.op_type, rank, transposed=transposed)

    def constant_damage(self, quantizer: Quantizer) -> Damage:
        """What a quantizer does to its constant, with the codes it has."""
        known = self._damage.get(id(quantizer))
        if known is None:
            known = quantizer, self._constant_damage(quantizer)
            self._damage[id(quantizer)] = known
        return known[1]

    def _constant_damage(self, quantizer: Quantizer) -> Damage:
        values, axis = self.values(quantizer.tensor), self.channel_axis(quantizer)
        return quantize_values(values, quantizer, axis)

    def rounded_codes(self, quantizer: Quantizer) -> Array:
        """The codes that rounding the constant gives."""
        return codes_of(self.values(quantizer.tensor), quantizer.params, quantizer.spec)

    def damage(self, suspect: Suspect) -> Damage | None:
        """What the quantizer of a suspect does to its tensor; None where that was not seen."""
        quantizer = self.quantizers[suspect.name]
        if quantizer.tensor in self.weights:
            return self.constant_damage(quantizer)
        found = [
            self.observed[each.tensor].damage[each.name]
            for each in (self.quantizers[name] for name in suspect.quantizers)
            if each.tensor in self.observed
        ]
        return max(found, key=lambda each: each.channel_loss, default=None)

    def value_range(self, suspect: Suspect) -> tuple[float, float]:
        """Smallest and largest value of all tensors of a suspect, zero included."""
        if suspect.tensor in self.weights:
            values = self.values(suspect.tensor)
            return float(values.min(initial=0.0)), float(values.max(initial=0.0))
        ranges = [self.observed[name].range for name in suspect.tensors if name in self.observed]
        low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
        quantizer = self.quantizers[suspect.name]
        if not self._partly or quantizer.params.scale.size != 1:
            return low, high
        own = (float(each) for each in representable_range(quantizer.params, quantizer.spec))
        low, high = (_not_narrower(seen, end) for seen, end in zip((low, high), own, strict=True))
        return low, high

    def tensor_range(self, tensor: str) -> tuple[float, float] | None:
        """Smallest and largest value of a tensor, zero included; None where it was not seen."""
        if tensor in self.weights:
            values = self.values(tensor)
            return float(values.min(initial=0.0)), float(values.max(initial=0.0))
        return self.observed[tensor].range if tensor in self.observed else None

    def channel_ranges(self, suspect: Suspect) -> list[tuple[int, Array, Array]]:
        """Channel axes, each with the smallest and largest value of each channel.

        A weight has two, if it is of rank 2 or more: that of what it writes first, then that of what it reads.
        """
        if suspect.tensor in self.weights:
            axis, values = self.channel_axis(self.quantizers[suspect.name]), self.values(suspect.tensor)
            if axis is None or not values.size:
                return []
            axes = [axis, 1 - axis] if axis < 2 else [axis]
            return [_slice_ranges(values, each) for each in axes]
        seen = self.observed.get(suspect.tensor)
        return [] if seen is None or seen.axis is None else [(seen.axis, seen.low, seen.high)]


def _not_narrower(seen: float, end: float) -> float:
    """The end of a range: its own where samples that were not looked at may reach so far."""
    return end if abs(seen) < abs(end) <= _UNSEEN * abs(seen) and seen * end > 0 else seen


def _slice_ranges(values: Array, axis: int) -> tuple[int, Array, Array]:
    axes = tuple(at for at in range(values.ndim) if at != axis)
    return axis, values.min(axis=axes), values.max(axis=axes)
