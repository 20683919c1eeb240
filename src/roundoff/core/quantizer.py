"""Quantizers as data: how one tensor is turned into integer codes at one place of a network."""

from dataclasses import dataclass, replace
from typing import Literal

from roundoff.core.tensors import Array

__all__ = ["Consumer", "Kind", "QuantParams", "QuantSpec", "Quantizer", "Rounding", "SymmetricScale"]

Rounding = Literal["half_even", "half_up", "half_away", "floor"]
SymmetricScale = Literal["max_code", "half_span", "larger_side"]
Kind = Literal["activation", "weight", "bias"]


@dataclass(frozen=True, slots=True)
class QuantSpec:
    """How values become codes; the scale and zero point that go with it are `QuantParams`.

    Attributes:
        bits: Width of a code.
        signed: Whether codes can be negative.
        symmetric: The zero point is fixed: 0 for signed codes, the middle of the range for unsigned ones.
        axis: Axis along which each slice has a scale of its own; None when one scale serves the whole tensor.
        symmetric_scale: The scale of a symmetric quantizer is the largest magnitude over ... the largest code
            (``max_code``, 127 for 8 bits), half the span of codes (``half_span``, 127.5), or the limit on the side
            of the larger magnitude (``larger_side``, 128 when that is the negative one).
        power_of_two: Scales are rounded up to a power of two.
        narrow: The lowest signed code is not used (-127..127).
        rounding: How a value between two codes is rounded.
        smallest_scale: A scale below this is replaced by 1, as some vendors do.
    """

    bits: int
    signed: bool
    symmetric: bool
    axis: int | None = None
    symmetric_scale: SymmetricScale = "max_code"
    power_of_two: bool = False
    narrow: bool = False
    rounding: Rounding = "half_even"
    smallest_scale: float = 0.0

    @property
    def dtype(self) -> str:
        """The short name of its codes: ``u8``, ``s8``, ``u16``, ``s16``, ``s4``, ``s32`` ..."""
        return f"{'s' if self.signed else 'u'}{self.bits}"

    @property
    def code_min(self) -> int:
        """Smallest code."""
        return -(1 << (self.bits - 1)) + self.narrow if self.signed else 0

    @property
    def code_max(self) -> int:
        """Largest code."""
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    def along(self, axis: int | None) -> "QuantSpec":
        """The same with another granularity."""
        return replace(self, axis=axis)


@dataclass(frozen=True, slots=True, eq=False)
class QuantParams:
    """Scale and zero point: ``value = (code - zero_point) * scale``.

    Attributes:
        scale: float32, positive and finite; of shape [] for a whole tensor, [C] for one per slice.
        zero_point: int64 of the same shape; a code that stands for zero.
    """

    scale: Array
    zero_point: Array


@dataclass(frozen=True, slots=True, order=True)
class Consumer:
    """One input of one node."""

    node: str
    input: int


@dataclass(frozen=True, slots=True, eq=False)
class Quantizer:
    """One switchable quantization of one tensor at one place.

    A quantized model is a float model and its quantizers: with all of them on it is the quantized model, with
    all of them off the float one, with some of them on something between.

    Attributes:
        name: Unique in its model.
        tensor: The tensor of the float model that it quantizes.
        kind: What that tensor is.
        spec: How.
        params: With which scale and zero point.
        consumers: The node inputs that see the quantized values; others see the float ones.
        output: Whether the tensor is an output of the network, and leaves it quantized.
        after: Name of the quantizer of the same tensor whose result this one quantizes again; empty when it
            quantizes the float values.
        codes: The codes of a constant tensor where they are not what rounding its values would give (the rounding
            was learned, or the float values are not known exactly); None otherwise.
    """

    name: str
    tensor: str
    kind: Kind
    spec: QuantSpec
    params: QuantParams
    consumers: tuple[Consumer, ...]
    output: bool = False
    after: str = ""
    codes: Array | None = None
