"""Results made of others, which become codes by rules of their own."""

from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.fixed_point import fixed_point, multiply
from roundoff.core.quantization import code_dtype, quantize, round_values
from roundoff.core.quantizer import QuantParams, QuantSpec
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.runtime.integer.results import Coded, Move, Result, Wide, aligned

__all__ = ["Clipped", "CodeMean", "ShiftedSum", "Table"]


@dataclass(frozen=True, slots=True, eq=False)
class Clipped(Result):
    """Another result between two bounds; the bounds become codes too, as fused activations do it.

    Attributes:
        inner: What is bounded.
        low: Smallest value.
        high: Largest value; where it is below the smallest, everything is equal to it, as in ONNX.
    """

    inner: Result
    low: float
    high: float

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its values."""
        return self.inner.shape

    def real(self) -> Array:
        """The inner values within the bounds."""
        return np.clip(self.inner.real(), self.low, self.high)

    def codes_for(self, params: QuantParams, spec: QuantSpec, arithmetic: Arithmetic) -> Array:
        """Codes of the inner result between the codes of the bounds."""
        codes = self.inner.codes_for(params, spec, arithmetic)
        shape = aligned(params.scale, codes.ndim, spec.axis).shape
        rounded = replace(spec, rounding=arithmetic.rounding)
        low, high = (
            quantize(np.full(shape, bound, np.float32), params, rounded) for bound in (self.low, self.high)
        )
        return np.clip(codes, low, high)

    def rearranged(self, move: Move) -> "tuple[Result, ...]":
        """Moved, within the same bounds."""
        return tuple(replace(self, inner=inner) for inner in self.inner.rearranged(move))


@dataclass(frozen=True, slots=True, eq=False)
class ShiftedSum(Result):
    """The sum or difference of two quantized tensors in fixed-point arithmetic.

    Both are brought to a common scale of higher precision, added there, and brought to the scale of the result.

    Attributes:
        left: First operand.
        right: Second operand.
        sign: 1 for the sum, -1 for the difference.
    """

    left: Coded
    right: Coded
    sign: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its values."""
        return np.broadcast_shapes(self.left.shape, self.right.shape)

    def real(self) -> Array:
        """The exact sum, before any fixed-point rounding."""
        return np.asarray(self.left.wide().real() + self.sign * self.right.wide().real())

    def codes_for(self, params: QuantParams, spec: QuantSpec, arithmetic: Arithmetic) -> Array:
        """Both operands scaled to a common precision, added, and scaled to the result."""
        common = 2 * np.maximum(self.left.scale, self.right.scale)
        # So that the sum of two shifted codes fits 32 bits.
        places = 20 if max(self.left.spec.bits, self.right.spec.bits) <= 8 else 15
        left, right = (
            self._scaled(operand, operand.scale / common, places, arithmetic)
            for operand in (self.left, self.right)
        )
        total = left + self.sign * right
        return Wide(total, common / (1 << places)).codes_for(params, spec, arithmetic)

    def _scaled(self, operand: Coded, factor: Array, places: int, arithmetic: Arithmetic) -> Array:
        shifted = operand.centred().astype(np.int64) << places
        multiplier = fixed_point(factor, arithmetic.multiplier_bits)
        return multiply(shifted, multiplier, arithmetic.rounding, twice=arithmetic.rounds_twice)

    def rearranged(self, move: Move) -> "tuple[Result, ...]":
        """Both operands moved alike."""
        lefts, rights = (
            [replace(operand, codes=codes) for codes in move(np.broadcast_to(operand.codes, self.shape))]
            for operand in (self.left, self.right)
        )
        return tuple(ShiftedSum(left, right, self.sign) for left, right in zip(lefts, rights, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class CodeMean(Result):
    """Means of codes of one tensor.

    Attributes:
        total: Sums of codes without zero points.
        counts: How many were added, broadcasting with the sums.
        source: The tensor's scale and zero point.
    """

    total: Array
    counts: Array
    source: Coded

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its values."""
        return self.total.shape

    def real(self) -> Array:
        """Exact means."""
        return self._wide().real()

    def codes_for(self, params: QuantParams, spec: QuantSpec, arithmetic: Arithmetic) -> Array:
        """The mean of the codes where fixed-point hardware keeps the scale, else requantized sums."""
        if arithmetic.requantization != "fixed_point" or not self.source.shares_scale(params, spec):
            return self._wide().codes_for(params, spec, arithmetic)
        # Where the scale stays, fixed-point kernels divide the sum of the codes themselves.
        mean = (self.total + self.counts * params.zero_point) / self.counts
        codes = np.clip(round_values(np.asarray(mean), arithmetic.rounding), spec.code_min, spec.code_max)
        return np.asarray(codes.astype(code_dtype(spec)))

    def rearranged(self, move: Move) -> "tuple[Result, ...]":
        """Moved sums, each with its count."""
        counts = move(np.broadcast_to(self.counts, self.total.shape))
        pairs = zip(move(self.total), counts, strict=True)
        return tuple(CodeMean(total, count, self.source) for total, count in pairs)

    def _wide(self) -> Wide:
        return Wide(self.total, self.source.scale.reshape(()) / self.counts)


@dataclass(frozen=True, slots=True, eq=False)
class Table(Result):
    """A function of codes, tabulated over all of them.

    Attributes:
        index: For each element, which entry.
        entries: Values of the function, float32.
    """

    index: Array
    entries: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its values."""
        return self.index.shape

    def real(self) -> Array:
        """The entries looked up."""
        return np.asarray(self.entries[self.index])

    def codes_for(self, params: QuantParams, spec: QuantSpec, arithmetic: Arithmetic) -> Array:
        """The codes of the entries, looked up."""
        rounded = replace(spec, rounding=arithmetic.rounding)
        if spec.axis is not None:
            return quantize(self.real(), params, rounded)
        return np.asarray(quantize(self.entries, params, rounded)[self.index])

    def rearranged(self, move: Move) -> "tuple[Result, ...]":
        """Moved places in the table."""
        return tuple(replace(self, index=index) for index in move(self.index))
