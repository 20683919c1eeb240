"""What integer nodes compute: numbers that are still exact, and that know how to become codes of a tensor."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from roundoff.core.quantizers import (
    QuantParams,
    QuantSpec,
    Rounding,
    aligned,
    code_dtype,
    dequantize,
    round_values,
)
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array

# Multiplying whole numbers by a real one the way integer hardware does: by a whole multiplier, then a shift.

# Products up to this stay within 64 bits when one half is added.
_SAFE_BITS = 62
# Right shifts of a 64-bit product beyond this change nothing any more.
_LONGEST_SHIFT = 63
# Where the product is rounded first, what is left has 32 bits, and longer shifts leave nothing of it.
_LONGEST_SECOND_SHIFT = 31


@dataclass(frozen=True, slots=True, eq=False)
class FixedPoint:
    """Real multipliers as ``multiplier * 2**(exponent - bits)``.

    Attributes:
        multiplier: int64, 0 or of exactly `bits` significant bits; negative for a negative factor.
        exponent: int64 of the same shape.
        bits: Significant bits, at most 62.
    """

    multiplier: Array
    exponent: Array
    bits: int


def fixed_point(factor: Array, bits: int) -> FixedPoint:
    """The nearest fixed-point numbers to real factors (half away from zero)."""
    fraction, exponent = np.frexp(np.asarray(factor, dtype=np.float64))
    bits = min(bits, _SAFE_BITS)
    multiplier = round_values(np.asarray(np.ldexp(fraction, bits)), "half_away").astype(np.int64)
    # Rounding may carry into one bit more.
    carried = np.abs(multiplier) == 1 << bits
    multiplier = np.where(carried, multiplier // 2, multiplier)
    return FixedPoint(multiplier, exponent.astype(np.int64) + carried, bits)


def multiply(values: Array, factor: FixedPoint, rounding: Rounding, *, twice: bool) -> Array:
    """Exact products with a fixed-point number, rounded to whole numbers.

    Args:
        values: int64.
        factor: Of a shape that broadcasts with them.
        rounding: How the shift rounds.
        twice: Round the upper half of the product first (half up), then shift.

    Returns:
        int64.
    """
    left = np.maximum(factor.exponent, 0) if twice else np.zeros((), dtype=np.int64)
    if _magnitude(values).bit_length() + int(left.max(initial=0)) + factor.bits <= _SAFE_BITS:
        return _multiply(values, left, factor, rounding, twice=twice)
    # Rare: numbers without limit are exact here, if slow.
    wide = FixedPoint(factor.multiplier.astype(object), factor.exponent.astype(object), factor.bits)
    product = _multiply(values.astype(object), left.astype(object), wide, rounding, twice=twice)
    limits = np.iinfo(np.int64)
    return np.asarray(np.clip(product, limits.min, limits.max).astype(np.int64))


def _magnitude(values: Array) -> int:
    return max(abs(int(values.min())), abs(int(values.max()))) if values.size else 0


def _multiply(values: Array, left: Array, factor: FixedPoint, rounding: Rounding, *, twice: bool) -> Array:
    if not twice:
        return shift_right(values * factor.multiplier, factor.bits - factor.exponent, rounding)
    high = shift_right((values << left) * factor.multiplier, np.asarray(factor.bits), "half_up")
    right = np.maximum(-factor.exponent, 0)
    vanishing = right > _LONGEST_SECOND_SHIFT
    return np.asarray(np.where(vanishing, 0, shift_right(high, np.where(vanishing, 0, right), rounding)))


def shift_right(values: Array, places: Array, rounding: Rounding) -> Array:
    """Divide whole numbers by powers of two and round; negative places shift to the left.

    Args:
        values: int64 of magnitudes below 2**62, or Python integers of any size.
        places: Of a shape that broadcasts with them.
        rounding: How to round.
    """
    if values.dtype != object:
        places = np.minimum(places, _LONGEST_SHIFT)
    if rounding == "half_away":
        magnitude = shift_right(np.abs(values), places, "half_up")
        return np.asarray(np.where(values < 0, -magnitude, magnitude))
    right = np.maximum(places, 0)
    one = np.ones((), dtype=values.dtype)
    half = np.where(right > 0, one << np.maximum(right - 1, 0), 0)
    if rounding == "half_up":
        quotient = (values + half) >> right
    else:
        quotient = values >> right
        if rounding == "half_even":
            rest = values - (quotient << right)
            quotient = quotient + ((rest > half) | ((rest == half) & (half > 0) & (quotient % 2 == 1)))
    return np.asarray(quotient << np.maximum(-places, 0))


# Differences of codes of this width have at most one bit more.
_FLOAT32_BITS = 23
Move: TypeAlias = Callable[[Array], Sequence[Array]]
"""Rearranges the elements of an array of a known shape; several arrays when it is split."""


class Result(ABC):
    """What a node computed from quantized inputs."""

    __slots__ = ()

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @abstractmethod
    def real(self) -> Array:
        """The values it stands for, float64 or as ONNX dequantizes codes."""

    @abstractmethod
    def codes_for(self, params: QuantParams, spec: QuantSpec, arithmetic: Arithmetic) -> Array:
        """Codes of a tensor with this scale and zero point, computed as the hardware does."""

    @abstractmethod
    def rearranged(self, move: Move) -> "tuple[Result, ...]":
        """The same elements in another order or selection."""

    def narrow(self) -> "Result":
        """The same, which becomes codes with the narrow multiplier of the hardware where it needs one."""
        return self


@dataclass(frozen=True, slots=True, eq=False)
class Wide(Result):
    """Numbers with a scale, wider than any code: sums of products, differences to a zero point.

    Attributes:
        total: float64, float32 or int64, whole numbers when `integral`.
        scale: float64 of a shape that broadcasts with them; the values are ``total * scale``.
        integral: Whether the hardware has them as integers; otherwise they are real numbers in a float unit.
        largest: Magnitude that no number exceeds, where that is known.
        narrowly: Whether they become codes with the narrow multiplier.
    """

    total: Array
    scale: Array
    integral: bool = True
    largest: float = np.inf
    narrowly: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its values."""
        return self.total.shape

    def real(self) -> Array:
        """Numbers times scale."""
        return np.asarray(self.total * self.scale)

    def codes_for(self, params: QuantParams, spec: QuantSpec, arithmetic: Arithmetic) -> Array:
        """Multiplied by the ratio of the scales, rounded once or as fixed-point multipliers do, and saturated."""
        rank = self.total.ndim
        factor = self.scale / aligned(params.scale, rank, spec.axis).astype(np.float64)
        zero_point = aligned(params.zero_point, rank, spec.axis)
        if self.integral and arithmetic.requantization == "fixed_point":
            bits = arithmetic.narrow_bits if self.narrowly else arithmetic.multiplier_bits
            multiplier = fixed_point(factor, bits)
            whole = self.total.astype(np.int64, copy=False)
            steps = multiply(whole, multiplier, arithmetic.rounding, twice=arithmetic.rounds_twice)
        else:
            steps = self._rounded(factor, arithmetic.rounding)
        if zero_point.any():
            # Bounded before the zero point is added: numbers at the end of 64 bits have no room for it.
            np.clip(steps, spec.code_min - zero_point, spec.code_max - zero_point, out=steps)
            steps += zero_point
        else:
            np.clip(steps, spec.code_min, spec.code_max, out=steps)
        return steps.astype(code_dtype(spec))

    def _rounded(self, factor: Array, rounding: Rounding) -> Array:
        """The numbers times a factor, as whole numbers in float64; what is no number becomes 0."""
        product = np.asarray(np.multiply(self.total, factor, dtype=np.float64))
        # The usual way of rounding needs no further array.
        steps = np.rint(product, out=product) if rounding == "half_even" else round_values(product, rounding)
        if not self.integral and np.isnan(steps).any():
            steps[np.isnan(steps)] = 0
        return steps

    def rearranged(self, move: Move) -> "tuple[Result, ...]":
        """Moved numbers, each with its scale."""
        totals = move(self.total)
        if self.scale.ndim == 0:
            return tuple(replace(self, total=total) for total in totals)
        scales = move(np.broadcast_to(self.scale, self.total.shape))
        return tuple(
            Wide(*pair, integral=self.integral, narrowly=self.narrowly)
            for pair in zip(totals, scales, strict=True)
        )

    def narrow(self) -> "Wide":
        """The same numbers, for the narrow multiplier."""
        return replace(self, narrowly=True)


@dataclass(frozen=True, slots=True, eq=False)
class Coded(Result):
    """Codes of a quantized tensor."""

    codes: Array
    params: QuantParams
    spec: QuantSpec

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its values."""
        return self.codes.shape

    @property
    def scale(self) -> Array:
        """float64, broadcasting with the codes."""
        return aligned(self.params.scale, self.codes.ndim, self.spec.axis).astype(np.float64)

    @property
    def whole(self) -> bool:
        """Whether one scale serves the whole tensor."""
        return self.params.scale.size == 1

    @property
    def largest(self) -> int:
        """Largest magnitude that a code can have once its zero point is taken off."""
        low = self.params.zero_point.min(initial=np.iinfo(np.int64).max)
        high = self.params.zero_point.max(initial=np.iinfo(np.int64).min)
        return int(max(self.spec.code_max - low, high - self.spec.code_min))

    @property
    def float_type(self) -> type[np.float32] | type[np.float64]:
        """The narrowest float type that holds differences of codes exactly."""
        return np.float32 if self.spec.bits <= _FLOAT32_BITS else np.float64

    def centred(self, dtype: type[np.floating] = np.float64) -> Array:
        """The codes without their zero points, whole numbers in a float type that holds them exactly."""
        zero_point = aligned(self.params.zero_point, self.codes.ndim, self.spec.axis)
        values = self.codes.astype(dtype)
        if zero_point.any():
            values -= zero_point.astype(dtype)
        return values

    def wide(self) -> Wide:
        """The same numbers without zero points."""
        return Wide(self.centred(), self.scale)

    def shares_scale(self, params: QuantParams, spec: QuantSpec) -> bool:
        """Whether its codes mean the same in another tensor."""
        return (
            (self.spec.axis == spec.axis or self.whole)
            and np.array_equal(self.params.scale.ravel(), params.scale.ravel())
            and np.array_equal(self.params.zero_point.ravel(), params.zero_point.ravel())
        )

    def real(self) -> Array:
        """The values of the codes, as ONNX dequantizes them."""
        return dequantize(self.codes, self.params, self.spec.axis)

    def codes_for(self, params: QuantParams, spec: QuantSpec, arithmetic: Arithmetic) -> Array:
        """The same codes where scale and zero point stay, else requantized ones."""
        if not self.shares_scale(params, spec):
            # Codes that only change their scale are multiplied as narrowly as any of a narrow machine.
            wide = self.wide().narrow() if arithmetic.narrow else self.wide()
            return wide.codes_for(params, spec, arithmetic)
        if self.spec.code_min >= spec.code_min and self.spec.code_max <= spec.code_max:
            return self.codes.astype(code_dtype(spec), copy=False)
        # In a type that holds all limits: numpy 2.0 refuses those that the type of the codes does not hold.
        codes = self.codes.astype(np.int64)
        return np.asarray(np.clip(codes, spec.code_min, spec.code_max).astype(code_dtype(spec)))

    def rearranged(self, move: Move) -> "tuple[Result, ...]":
        """Moved codes; without zero points where slices have scales of their own."""
        if self.whole:
            return tuple(replace(self, codes=codes, spec=self.spec.along(None)) for codes in move(self.codes))
        return self.wide().rearranged(move)


def as_wide(result: Result) -> Wide:
    """Any result as numbers with a scale; what has none of its own becomes real numbers."""
    if isinstance(result, Wide):
        return result
    if isinstance(result, Coded):
        return result.wide()
    return Wide(np.asarray(result.real(), dtype=np.float64), np.ones(()), integral=False)


OverflowKind = Literal["bias", "accumulator"]
_KINDS: tuple[OverflowKind, OverflowKind] = ("bias", "accumulator")


@dataclass(frozen=True, slots=True)
class AccumulatorOverflow:
    """Numbers of one node that did not fit their register.

    Attributes:
        node: The node.
        kind: A bias that has no code, or a sum of products that exceeds the accumulator.
        count: How many numbers, over all runs.
        elements: Out of how many.
        worst_ratio: Largest magnitude over the largest that fits; above 1.
    """

    node: str
    kind: OverflowKind
    count: int
    elements: int
    worst_ratio: float

    def merged(self, other: "AccumulatorOverflow") -> "AccumulatorOverflow":
        """Both together."""
        return AccumulatorOverflow(
            self.node,
            self.kind,
            self.count + other.count,
            self.elements + other.elements,
            max(self.worst_ratio, other.worst_ratio),
        )


@dataclass(frozen=True, slots=True)
class FloatNode:
    """A node that was computed in float.

    Attributes:
        node: Its name.
        op_type: Its operation.
        why: Why not with integers.
    """

    node: str
    op_type: str
    why: str


@dataclass(frozen=True, slots=True)
class IntegerReport:
    """How the nodes that ran so far were computed; nodes that only compute constants or shapes are in no list.

    Attributes:
        integer_nodes: With integers alone, in execution order.
        table_nodes: By looking up input codes in a table.
        float_nodes: In float, from dequantized inputs.
        overflows: Numbers that did not fit, one entry for each node and kind.
    """

    integer_nodes: tuple[str, ...] = ()
    table_nodes: tuple[str, ...] = ()
    float_nodes: tuple[FloatNode, ...] = ()
    overflows: tuple[AccumulatorOverflow, ...] = ()

    def merged(self, other: "IntegerReport") -> "IntegerReport":
        """The report of the runs of both."""
        overflows = {(entry.node, entry.kind): entry for entry in self.overflows}
        for entry in other.overflows:
            known = overflows.get((entry.node, entry.kind))
            overflows[entry.node, entry.kind] = entry if known is None else known.merged(entry)
        float_nodes = {entry.node: entry for entry in (*other.float_nodes, *self.float_nodes)}
        return IntegerReport(
            tuple(dict.fromkeys((*self.integer_nodes, *other.integer_nodes))),
            tuple(dict.fromkeys((*self.table_nodes, *other.table_nodes))),
            tuple(float_nodes.values()),
            tuple(overflows.values()),
        )


class Recorder:
    """Collects what becomes the report; its size does not depend on the number of runs.

    Args:
        order: All nodes in execution order.
    """

    def __init__(self, order: tuple[str, ...]) -> None:
        self._order = order
        self._integer: set[str] = set()
        self._tables: set[str] = set()
        self._float: dict[str, FloatNode] = {}
        self._overflows: dict[tuple[str, OverflowKind], AccumulatorOverflow] = {}
        self._sums: Counter[str] = Counter()

    def summed(self, node: str, count: int) -> None:
        """A node added up so many sums, whether they fit or not."""
        self._sums[node] += count

    def ran(self, node: str, *, table: bool) -> None:
        """A node was computed with integers, or by a table."""
        (self._tables if table else self._integer).add(node)

    def ran_in_float(self, node: str, op_type: str, why: str) -> None:
        """A node was computed in float."""
        self._float.setdefault(node, FloatNode(node, op_type, why))

    def overflowed(self, overflow: AccumulatorOverflow) -> None:
        """Numbers of a node did not fit; of how many sums, `summed` says."""
        key = overflow.node, overflow.kind
        known = self._overflows.get(key)
        self._overflows[key] = overflow if known is None else known.merged(overflow)

    def report(self) -> IntegerReport:
        """Everything so far."""
        return IntegerReport(
            tuple(node for node in self._order if node in self._integer),
            tuple(node for node in self._order if node in self._tables),
            tuple(self._float[node] for node in self._order if node in self._float),
            tuple(entry for node in self._order for entry in self._overflows_of(node)),
        )

    def _overflows_of(self, node: str) -> Iterator[AccumulatorOverflow]:
        bias, sums = (self._overflows.get((node, kind)) for kind in _KINDS)
        if bias is not None:
            yield bias
        if sums is not None:
            yield replace(sums, elements=self._sums[node])
